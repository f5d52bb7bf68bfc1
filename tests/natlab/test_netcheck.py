"""`kafila netcheck` as a process behind real NATs, at a rendezvous with one address."""

import json
from collections.abc import Callable

import pytest

from tools.natlab import nat as nats
from tools.natlab.lab import Lab

pytestmark = pytest.mark.netns


Find = Callable[..., dict[str, object]]


@pytest.fixture
def found(lab: Callable[..., Lab]) -> Find:
    """What it finds behind a carrier's NAT, and a home's before it that keeps everything open."""

    def run(carrier: nats.Nat, *, home: bool = True) -> dict[str, object]:
        scene = lab(0.01)
        at = scene.start_servers(scene.rendezvous())
        above = scene.router("carrier", carrier, carrier=True)
        router = scene.router("home", nats.EIF, behind=above) if home else above
        host = scene.host("host", router)
        words = ("-m", "kafila", "netcheck", "--rendezvous", at, "--home", "host", "--json")
        scene.start(host, "netcheck", *words)
        answer = json.loads(scene.processes.finish("netcheck", 60.0))
        assert isinstance(answer, dict)
        return answer

    return run


def test_two_nats_are_told_as_one_behaviour(found: Find) -> None:
    said = found(nats.ADM)
    nat = said["nat"]
    assert isinstance(nat, dict)
    assert (nat["mapping"], nat["filtering"]) == nats.ADM.behaviour
    assert nat["public"] == "203.0.113.1"
    assert (said["class"], said["udp"], said["translated"]) == ("restrictive", True, True)


def test_a_carriers_customer_is_told(found: Find) -> None:
    said = found(nats.APDF, home=False)
    assert (said["carrier_grade"], said["translated"]) == (True, True)


def test_blocked_udp_is_told(found: Find) -> None:
    said = found(nats.Nat("EI", "APD", udp_blocked=True))
    nat = said["nat"]
    assert isinstance(nat, dict)
    assert nat["blocked"]
    assert (said["class"], said["udp"]) == ("blocked", False)
