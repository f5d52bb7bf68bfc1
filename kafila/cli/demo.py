"""`kafila demo`: everything on this machine, in one command."""

import click


@click.command(epilog="Example: kafila demo --once")
@click.option("--once", is_flag=True, help="End after the first answer.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where the head's API answers.  [default: any free port]",
)
def demo(once: bool, port: int) -> None:
    """Rendezvous, three member processes and a chat with the embedded demo model."""
    from kafila.demo import run

    def write(text: str) -> None:
        click.echo(text, nl=False)

    run(once=once, port=port, say=click.echo, write=write)
