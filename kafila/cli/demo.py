"""`kafila demo`: everything on this machine, in one command."""

import click

from kafila import defaults


@click.command(epilog="Example: kafila demo --once")
@click.option("--once", is_flag=True, help="End after the first answer.")
@click.option(
    "--port", default=defaults.API_PORT, show_default=True, help="Where the head's API answers."
)
def demo(once: bool, port: int) -> None:
    """Rendezvous, three member processes and a chat with the embedded demo model."""
    from kafila.demo import run

    def write(text: str) -> None:
        click.echo(text, nl=False)

    run(once=once, port=port, say=click.echo, write=write)
