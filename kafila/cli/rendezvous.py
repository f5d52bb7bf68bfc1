"""`kafila rendezvous`: run the server through which members meet."""

import time
from typing import TYPE_CHECKING

import click

from kafila.defaults import HOME, RENDEZVOUS_PORT

if TYPE_CHECKING:
    from kafila.net.identity import Identity


@click.command(epilog="Example: kafila rendezvous --listen 0.0.0.0:4710")
@click.option(
    "--listen",
    default=f"0.0.0.0:{RENDEZVOUS_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen (UDP).",
)
@click.option(
    "--home",
    default=f"{HOME}/rendezvous",
    show_default=True,
    metavar="DIR",
    help="Where its key lives.",
)
def rendezvous(listen: str, home: str) -> None:
    """Run the server through which members meet.

    Prints its address and key on stdout and a line per session on stderr. It needs one UDP port
    that every member can reach; it never sees a code's words, a report or a token.
    """
    import asyncio
    from pathlib import Path

    from kafila.address import parse_address
    from kafila.net.identity import Identity

    address = parse_address(listen, any_port=True)
    asyncio.run(_serve(address, Identity.load_or_create(Path(home).expanduser())))


async def _serve(address: tuple[str, int], identity: "Identity") -> None:
    import asyncio
    import signal

    from kafila.rendezvous.server import Rendezvous

    server = await Rendezvous.open(identity, *address, _log)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        host, port = server.node.local_candidates()[0]
        click.echo(f"rendezvous {host}:{port} key {server.key.hex()}")
        if server.address[0] != host:
            _log(f"listening on UDP port {port} of every address of this machine")
        await stopped.wait()
    finally:
        await server.close()


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)
