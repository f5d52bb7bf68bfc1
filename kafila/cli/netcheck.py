"""`kafila netcheck`: what stands between this machine and others, and whom it will reach."""

import contextlib
import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from kafila import defaults

if TYPE_CHECKING:
    from kafila.net.identity import Identity
    from kafila.probe.netcheck import Netcheck
    from kafila.session.probing import Meeting

EXAMPLES = """\b
Examples:
  kafila netcheck --rendezvous r.example.org
  kafila netcheck --rendezvous r.example.org --stun stun.example.net --json
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--rendezvous",
    metavar="HOST[:PORT]",
    envvar="KAFILA_RENDEZVOUS",
    show_envvar=True,
    required=True,
    help="Where the members will meet.",
)
@click.option(
    "--stun",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A STUN server at another address (port 3478 unless given), to tell two kinds of mapping "
    "apart; needed where the rendezvous suggests none. Repeatable.",
)
@click.option("--home", type=click.Path(), default=defaults.HOME, show_default=True, help="Keys.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="0.0.0.0:0",
    show_default=True,
    help="UDP address of this process; port 0 is any.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, for scripts.")
def netcheck(rendezvous: str, stun: tuple[str, ...], home: str, listen: str, as_json: bool) -> None:
    """Say how this machine can be reached, and which members directly.

    Takes a second or two; docs/nat.md explains the words. Exit code 0: it was checked, whatever was
    found; 6: the rendezvous cannot be reached at all.
    """
    from pathlib import Path

    from kafila.address import parse_address
    from kafila.net.identity import Identity
    from kafila.session import probing

    where = probing.Meeting(
        rendezvous=parse_address(rendezvous),
        listen=parse_address(listen, any_port=True),
        stun=tuple(parse_address(each, port=defaults.STUN_PORT) for each in stun),
    )
    identity = Identity.load_or_create(Path(home).expanduser())
    found = probing.run(_check(identity, where))
    click.echo(json.dumps(found, indent=2) if as_json else _text(found))


async def _check(identity: "Identity", where: "Meeting") -> dict[str, Any]:
    """Everything that is printed, as JSON has it."""
    from kafila.errors import NetworkProblem
    from kafila.net.udp import is_ipv6
    from kafila.session.probing import meeting
    from kafila.session.timing import measure_rtt

    async with meeting(identity, where) as (node, client, net):
        await net.classify()
        timed: tuple[int, int] | tuple[None, None] = (None, None)
        with contextlib.suppress(NetworkProblem):  # its answers are lost, or too many of them
            timed = await measure_rtt(node, client.address)
        size = await net.largest_datagram()
        return _found(net) | {
            "rendezvous": {
                "rtt_us": timed[0],
                "rtt_spread_us": timed[1],
                "datagram_bytes": size,
                "tcp": net.tunnelled,
                "ipv6": is_ipv6(client.address[0]),
            }
        }


def _found(net: "Netcheck") -> dict[str, Any]:
    """What was found out of this machine, without the rendezvous' figures."""
    from kafila.plan.reach import KINDS, private, through

    verdict, nat = net.verdict(), net.nat()
    reaches = []
    for kind in KINDS:
        reach = through(nat.value(), kind, ("this machine", "the other"))
        other = {"mapping": kind.mapping, "filtering": kind.filtering}
        reaches.append(
            {"blocked": kind.blocked}
            | ({} if kind.blocked else other)
            | {"path": reach.path, "why": reach.why}
        )
    return {
        "nat": nat.model_dump(mode="json"),  # as reports have it
        "class": nat.kind,
        "udp": not verdict.silent,
        "translated": nat.translated,
        "ports_kept": verdict.preserved,
        "carrier_grade": net.carrier_grade,
        "rendezvous_inside": nat.public is not None and private(nat.public),
        "reaches": reaches,
    }


def _text(found: dict[str, Any]) -> str:
    """The same for a person."""
    nat = found["nat"]
    ipv4 = "not asked" if _only_ipv6(found) else _yes(found["udp"])
    lines = [("UDP", f"IPv4 {ipv4}, IPv6 {_yes(nat['ipv6'])}")]
    if found["udp"]:
        lines += [
            ("address", _address(found)),
            ("mapping", nat["mapping"]),
            ("filtering", _filtering(nat["filtering"])),
        ]
    lines.append(("class", "no NAT" if found["class"] == "none" else found["class"]))
    lines.append(("rendezvous", _rendezvous(found["rendezvous"])))
    lines += [("note", note) for note in _notes(found)]
    shown = [f"{name:<12}{words}" for name, words in lines]
    shown += ["", "this machine reaches, by the other member's NAT"]
    outcome = itemgetter("path", "why")
    for (path, why), alike in groupby(found["reaches"], outcome):
        shown.append("  directly" if path == "direct" else f"  through the relay ({why})")
        shown += [f"      {_kind(reach)}" for reach in alike]
    return "\n".join(shown)


def _kind(reach: dict[str, Any]) -> str:
    if reach["blocked"]:
        return "UDP blocked"
    return f"{reach['mapping']} mapping, {reach['filtering']} filtering"


def _address(found: dict[str, Any]) -> str:
    public = found["nat"]["public"]
    if not found["translated"]:
        known = found["translated"] is False
        return f"{public}, this machine's own{': no NAT' if known else ', in its own network'}"
    ports = "keeps" if found["ports_kept"] else "changes"
    return f"{public}, of a NAT that {ports} port numbers"


def _filtering(found: str) -> str:
    """Alone, one cannot tell it from none: that takes a stranger."""
    return f"{found}, or none" if found == "address-dependent" else found


def _rendezvous(at: dict[str, Any]) -> str:
    parts = ["over TCP, UDP does not reach it"] if at["tcp"] else []
    if at["rtt_us"] is not None:
        parts.append(f"{at['rtt_us'] / 1e3:.1f} ms (±{at['rtt_spread_us'] / 2e3:.1f})")
    if at["datagram_bytes"] is not None:
        parts.append(f"datagrams of {at['datagram_bytes']} bytes pass")
    return ", ".join(parts) or "it answers no STUN request"


def _notes(found: dict[str, Any]) -> list[str]:
    """What its user might do, or should know."""
    nat, notes = found["nat"], []
    if nat["blocked"]:
        notes.append("UDP is blocked: every edge of this machine goes through the relay, over TCP")
    elif _only_ipv6(found):
        notes.append(
            "the rendezvous was reached over IPv6, which no NAT translates: name its IPv4 address "
            "to know what is in the way of IPv4"
        )
    elif not found["udp"]:
        notes.append("no server answered; check again")
    elif nat["mapping"] == "unknown":
        notes.append("the mapping needs a server at another address: --stun HOST[:PORT]")
    if found["udp"] and nat["filtering"] == "unknown":
        notes.append(
            "the filtering needs a second port of the rendezvous, or a path that loses less"
        )
    if found["carrier_grade"]:
        notes.append("a carrier's NAT (100.64.0.0/10) is in the way: ports cannot be forwarded")
    if found["rendezvous_inside"]:
        notes.append(
            "the rendezvous is in this machine's own network: the way to members outside is unknown"
        )
    return notes


def _only_ipv6(found: dict[str, Any]) -> bool:
    """Whether IPv4 was not asked about."""
    return bool(found["rendezvous"]["ipv6"]) and not found["udp"] and not found["nat"]["blocked"]


def _yes(works: bool) -> str:
    return "yes" if works else "no"
