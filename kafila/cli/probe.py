"""`kafila probe`: measure this machine, alone or together with the other members."""

import socket
import sys
from typing import TYPE_CHECKING

import click

from kafila import defaults

if TYPE_CHECKING:
    from stages.config import Kept

EXAMPLES = """\b
Examples:
  kafila probe --model Qwen/Qwen3-8B
  kafila probe --model Qwen/Qwen3-8B --rendezvous r.example.org
  kafila probe --host --model Qwen/Qwen3-8B --members 4 --rendezvous r.example.org
  kafila probe --join 7-amber-falcon-reed@r.example.org
"""


@click.command(epilog=EXAMPLES)
@click.option("--model", metavar="SRC", help="Folder, hub id or `demo`: measure its shapes.")
@click.option(
    "--dtype",
    type=click.Choice(["int8"]),
    help="With --model: keep the blocks' matrices in 8 bits, with a scale for each row.",
)
@click.option("--host", is_flag=True, help="Open a session, print its code, collect the reports.")
@click.option(
    "--members",
    type=click.IntRange(2, defaults.MAX_MEMBERS),
    help="With --host: how many members there will be, this one included.",
)
@click.option(
    "--join",
    metavar="CODE[@HOST[:PORT]]",
    help="Join the session of this code; - reads it from stdin, out of other users' sight.",
)
@click.option(
    "--rendezvous",
    metavar="HOST[:PORT]",
    envvar="KAFILA_RENDEZVOUS",
    show_envvar=True,
    help="Where the members meet; this machine is timed and its NAT classified there.",
)
@click.option(
    "--stun",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A STUN server at another address, where the rendezvous suggests none.",
)
@click.option("--name", default=None, help="This member's name.  [default: the host name]")
@click.option("--home", type=click.Path(), default=defaults.HOME, show_default=True, help="Keys.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="0.0.0.0:0",
    show_default=True,
    help="UDP address of this process; port 0 is any.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default=None,
    help="Where the report goes; - is stdout.  [default: probes.yaml]",
)
def probe(
    model: str | None,
    dtype: str | None,
    host: bool,
    members: int | None,
    join: str | None,
    rendezvous: str | None,
    stun: tuple[str, ...],
    name: str | None,
    home: str,
    listen: str,
    output: str | None,
) -> None:
    """Measure this machine: bandwidth, overhead, arithmetic, room, and how it can be reached.

    Alone it writes probes.yaml. With --host it opens a session, prints a code for the other
    members, and writes everybody's report. With --join it hands its report to the host.
    """
    _check_words(host=host, join=join, members=members, rendezvous=rendezvous, output=output)
    if dtype and not model:
        raise click.UsageError("--dtype belongs to --model: it says how that is kept in memory")
    from functools import partial
    from pathlib import Path
    from typing import cast

    from kafila import yamlfile
    from kafila.address import parse_address
    from kafila.errors import BadFile
    from kafila.manifest import Manifest
    from kafila.net.identity import Identity
    from kafila.probe import device
    from kafila.probe.report import render_probes, write_probes
    from kafila.schema import member_name
    from kafila.session import probing
    from kafila.session.code import parse_invitation
    from kafila.session.view import ProbeView, report_line

    target = output or "probes.yaml"
    if not join and target != "-":
        yamlfile.check_writable(target)  # now, not when everybody has measured
    identity = Identity.load_or_create(Path(home).expanduser())
    name = member_name(name or socket.gethostname().split(".")[0])
    where = parse_address(rendezvous) if rendezvous else None
    servers = tuple(parse_address(each, port=defaults.STUN_PORT) for each in stun)
    view = ProbeView(code_to_stderr=output == "-", rendezvous=where)
    measure = partial(device.measure, name, identity, on_progress=view.progress)
    local = parse_address(listen, any_port=True)
    with view:
        if join:
            invitation = sys.stdin.readline() if join == "-" else join
            code, at = parse_invitation(invitation)
            meet = at or where
            if meet is None:
                raise click.UsageError(
                    "--join needs the rendezvous too: CODE@HOST[:PORT], or --rendezvous"
                )
            probing.run(
                probing.join(
                    measure,
                    identity=identity,
                    where=probing.Meeting(meet, local, servers),
                    code=code,
                    name=name,
                    on_event=view.event,
                )
            )
            click.echo("next: kafila serve plan.yaml, with the plan that the host makes", err=True)
            return
        manifest = Manifest.of(model).kept_as(cast("Kept | None", dtype)) if model else None
        if host:
            assert members is not None
            assert where is not None  # _check_words
            probes = probing.run(
                probing.host(
                    measure,
                    manifest,
                    identity=identity,
                    where=probing.Meeting(where, local, servers),
                    members=members,
                    on_event=view.event,
                )
            )
        elif where is not None:
            meeting = probing.Meeting(where, local, servers)
            probes = probing.run(probing.at(measure, manifest, identity=identity, where=meeting))
        else:
            probes = probing.alone(measure, manifest)
    for report in probes.reports:
        click.echo(report_line(report), err=True)
    try:
        write_probes(probes, target)
    except BadFile as problem:
        click.echo(render_probes(probes), nl=False)  # nothing that was measured is lost
        raise BadFile(f"{problem}; the reports are on stdout instead") from None
    if target != "-":
        named = "" if target == "probes.yaml" else f"{target} "
        click.echo(f"{target} written; next: kafila plan {named}> plan.yaml", err=True)


def _check_words(
    *,
    host: bool,
    join: str | None,
    members: int | None,
    rendezvous: str | None,
    output: str | None,
) -> None:
    """The combinations that mean nothing."""
    if host and join:
        raise click.UsageError("--host opens a session and --join joins one; use one of them")
    if host and members is None:
        raise click.UsageError("--host needs --members: how many there will be, you included")
    if host and rendezvous is None:
        raise click.UsageError("--host needs --rendezvous HOST[:PORT]: where the members meet")
    if members is not None and not host:
        raise click.UsageError("--members belongs to --host")
    if join and output:
        raise click.UsageError("with --join the report goes to the host; leave out --output")
