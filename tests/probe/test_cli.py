"""`kafila netcheck` as a process, and what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafila.cli.netcheck import _text
from kafila.errors import NetworkProblem
from kafila.probe.report import Nat
from tests.rendezvous.test_cli import listening, process

DIRECT = ["direct"] * 5 + ["relayed"]


def netcheck(home: Path, rendezvous: str, *more: str) -> "subprocess.CompletedProcess[str]":
    words = ["netcheck", "--rendezvous", rendezvous, "--listen", "127.0.0.1:0"]
    return subprocess.run(
        [sys.executable, "-m", "kafila", *words, "--home", str(home), *more],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_machine_without_a_nat(tmp_path: Path) -> None:
    """Seen from its own network only, which the loopback is."""
    with process(tmp_path / "rendezvous") as running:
        port, _ = listening(running)
        at = f"127.0.0.1:{port}"
        done = netcheck(tmp_path / "member", at, "--json", "--stun", at)
        shown = netcheck(tmp_path / "member", at)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    nat = Nat.model_validate(found["nat"])
    assert (nat.mapping, nat.public) == ("endpoint-independent", "127.0.0.1")
    assert (found["class"], found["translated"]) == ("ordinary", None)
    assert found["udp"] is True
    assert found["rendezvous_inside"] is True
    assert found["rendezvous"]["datagram_bytes"] == 8900
    assert found["rendezvous"]["rtt_us"] > 0
    assert found["rendezvous"]["tcp"] is False
    assert [each["path"] for each in found["reaches"]] == DIRECT
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "UDP         IPv4 yes, IPv6 no"
    assert "address     127.0.0.1, this machine's own, in its own network" in lines
    assert "mapping     endpoint-independent" in lines
    assert "class       ordinary" in lines
    assert "filtering   address-dependent, or none" in lines
    assert lines[-2:] == ["  through the relay (UDP is blocked at the other)", "      UDP blocked"]


def test_a_rendezvous_that_has_only_ipv6(tmp_path: Path) -> None:
    """A NAT of IPv4 is not seen over it, which is no fault of the network."""
    with process(tmp_path / "rendezvous", "[::1]:0") as running:
        assert running.stdout is not None
        at = running.stdout.readline().split()[1]
        shown = netcheck(tmp_path / "member", at, "--listen", "[::1]:0")
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "UDP         IPv4 not asked, IPv6 no"
    assert any("name its IPv4 address" in line for line in lines)


def test_no_rendezvous(tmp_path: Path) -> None:
    """A name that leads nowhere is known at once."""
    done = netcheck(tmp_path, "no.such.host.invalid")
    assert done.returncode == NetworkProblem.exit_code
    assert done.stdout == ""
    assert "no.such.host.invalid" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "nat", "words"),
    [
        (
            {"udp": False, "class": "blocked"},
            {"blocked": True, "public": None},
            "UDP is blocked: every edge of this machine goes through the relay, over TCP",
        ),
        ({"udp": False}, {"public": None}, "no server answered; check again"),
        ({}, {"mapping": "unknown"}, "the mapping needs a server at another address"),
        ({}, {"filtering": "unknown"}, "the filtering needs a second port of the rendezvous"),
        ({"carrier_grade": True}, {}, "a carrier's NAT (100.64.0.0/10) is in the way"),
        ({"ports_kept": False}, {}, "203.0.113.7, of a NAT that changes port numbers"),
        ({"translated": False}, {}, "203.0.113.7, this machine's own: no NAT"),
        ({"translated": None}, {}, "203.0.113.7, this machine's own, in its own network"),
        ({}, {}, "class       ordinary"),
    ],
)
def test_what_a_person_reads(change: dict[str, object], nat: dict[str, object], words: str) -> None:
    usual: dict[str, object] = {
        "mapping": "endpoint-independent",
        "filtering": "address-and-port-dependent",
        "blocked": False,
        "public": "203.0.113.7",
        "ipv6": False,
    }
    found: dict[str, object] = {
        "nat": usual | nat,
        "class": "ordinary",
        "udp": True,
        "translated": True,
        "ports_kept": True,
        "carrier_grade": False,
        "rendezvous_inside": False,
        "reaches": [],
        "rendezvous": {
            "rtt_us": None,
            "rtt_spread_us": None,
            "datagram_bytes": None,
            "tcp": True,
            "ipv6": False,
        },
    }
    assert words in _text(found | change)
