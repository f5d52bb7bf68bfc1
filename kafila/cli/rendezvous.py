"""`kafila rendezvous`: run the server through which members meet."""

import time
from typing import TYPE_CHECKING

import click

from kafila import defaults

if TYPE_CHECKING:
    from kafila.address import Address
    from kafila.net.identity import Identity
    from kafila.rendezvous.server import Rules

EXAMPLES = """\b
Examples:
  kafila rendezvous
  kafila rendezvous --listen 203.0.113.5:4710 --allow members.txt
  kafila rendezvous --relay-budget 20 --metrics 127.0.0.1:9710
"""


MOST = 1e9
"""Of a rate in Mbit/s and a budget in GiB: more than any network carries."""


def _amount(_: click.Context, option: click.Parameter, value: float) -> float:
    if value != value:  # no range excludes NaN
        raise click.BadParameter("it must be a number", param=option)
    return value


@click.command(epilog=EXAMPLES)
@click.option(
    "--listen",
    default=f"0.0.0.0:{defaults.RENDEZVOUS_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen (UDP, and TCP for members that UDP does not reach).",
)
@click.option(
    "--second-port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="UDP port from which NATs are classified.  [default: the one after PORT]",
)
@click.option(
    "--home",
    default=f"{defaults.HOME}/rendezvous",
    show_default=True,
    metavar="DIR",
    help="Where its key lives.",
)
@click.option(
    "--allow",
    type=click.Path(dir_okay=False),
    default=None,
    metavar="FILE",
    help="Serve only these: a member's key or `token: SECRET` a line, # for comments.",
)
@click.option(
    "--stun",
    multiple=True,
    metavar="HOST:PORT",
    help="Another STUN server that members may ask; can be given more than once.",
)
@click.option(
    "--relay-rate",
    type=click.FloatRange(0, MOST, min_open=True),
    callback=_amount,
    default=defaults.RELAY_MBIT_PER_S,
    show_default=True,
    metavar="MBIT/S",
    help="What is relayed for one edge, both directions together.",
)
@click.option(
    "--relay-budget",
    type=click.FloatRange(0, MOST),
    callback=_amount,
    default=defaults.RELAY_BUDGET_GIB,
    show_default=True,
    metavar="GIB",
    help="What is relayed for one session a day; 0 relays nothing.",
)
@click.option(
    "--metrics",
    default=None,
    metavar="HOST[:PORT]",
    help="Where Prometheus may ask for /metrics.  [default: nowhere]",
)
def rendezvous(
    listen: str,
    second_port: int | None,
    home: str,
    allow: str | None,
    stun: tuple[str, ...],
    relay_rate: float,
    relay_budget: float,
    metrics: str | None,
) -> None:
    """Run the server through which members meet.

    Prints its address and key on stdout and a line per event on stderr. Members must reach its
    UDP port; it never sees a code's words, a report or a token, and relays what it cannot read.
    """
    import asyncio
    from pathlib import Path

    from kafila.address import parse_address
    from kafila.net.identity import Identity
    from kafila.rendezvous.allowed import read_allowed
    from kafila.rendezvous.server import Rules

    address = parse_address(listen, any_port=True)
    if address[1] == 65535 and second_port is None:
        raise click.UsageError("no port comes after 65535: name another with --second-port")
    at = parse_address(metrics, any_port=True, port=defaults.METRICS_PORT) if metrics else None
    rules = Rules(
        relay_rate=relay_rate,
        relay_budget=relay_budget,
        allowed=read_allowed(Path(allow)) if allow else None,
        stun=tuple(parse_address(each, port=defaults.STUN_PORT) for each in stun),
    )
    identity = Identity.load_or_create(Path(home).expanduser())
    asyncio.run(_serve(address, second_port, identity, rules, at))


async def _serve(
    address: "Address",
    second_port: int | None,
    identity: "Identity",
    rules: "Rules",
    metrics_at: "Address | None",
) -> None:
    import asyncio
    import signal

    from kafila.address import format_address
    from kafila.rendezvous.metrics import Metrics
    from kafila.rendezvous.server import Rendezvous
    from kafila.words import counted

    server = await Rendezvous.open(identity, *address, _log, second_port=second_port, rules=rules)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    metrics = None
    try:
        if metrics_at is not None:
            metrics = await Metrics.serve(server, *metrics_at)
        where = server.node.local_candidates()[0]
        click.echo(f"rendezvous {format_address(where)} key {server.key.hex()}")
        if server.address[0] != where[0]:
            second = server.second[server.node.udp].address[1]
            ports = f"{where[1]} (UDP and TCP) and {second} (UDP)"
            _log(f"listening on ports {ports} of every address of this machine")
        if metrics is not None:
            _log(f"metrics at http://{format_address(metrics.address)}/metrics")
        if rules.allowed is not None:
            keys, tokens = len(rules.allowed.keys), len(rules.allowed.tokens)
            _log(f"private: serves {counted(keys, 'key')} and {counted(tokens, 'token')}")
        await stopped.wait()
    finally:
        if metrics is not None:
            metrics.close()
        await server.close()


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)
