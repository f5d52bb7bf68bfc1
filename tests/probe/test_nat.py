"""The classifier against NATs of every behaviour, in virtual time: never unsafely wrong."""

import itertools
from collections import Counter
from collections.abc import Iterable

import pytest

from kafila import defaults as d
from kafila.plan.values import Behaviour
from kafila.probe.nat import Verdict
from tests.nats import BEHAVIOURS, Nat, Ports
from tests.probe.world import FIRST, HOME, World

EI, AD, APD = BEHAVIOURS
PORTS: tuple[Ports, ...] = ("preserve", "random", "sequential")
STRICTNESS = {EI: 0, AD: 1, APD: 2, "unknown": 3}
PAIRS = list(itertools.product(BEHAVIOURS, BEHAVIOURS))

HERE, THERE = "203.0.113.1", "203.0.113.77"


def nat(mapping: Behaviour, filtering: Behaviour, seed: int, host: str = HERE) -> Nat:
    """One of many of this behaviour: each policy for ports, with and without inbound drop."""
    return Nat(
        host, mapping, filtering, ports=PORTS[seed % 3], drop=seed % 2 == 0, seed=seed + len(host)
    )


def strictest(behaviours: Iterable[Behaviour]) -> Behaviour:
    return max(behaviours, key=STRICTNESS.__getitem__)


def safe(verdict: Verdict, mapping: Behaviour, filtering: Behaviour) -> bool:
    """Nothing less than the truth is claimed."""
    return (
        STRICTNESS[verdict.mapping] >= STRICTNESS[mapping]
        and STRICTNESS[verdict.filtering] >= STRICTNESS[filtering]
    )


def classified(world: World, away: Nat | None = None) -> Verdict:
    """The verdict, a stranger's part included where there is one and it is wanted."""
    verdict = world.run()
    if away is not None and world.classifier.wants_stranger:
        return world.visit([away])
    return verdict


@pytest.mark.parametrize(("loss", "right"), [(0.0, 1.0), (0.1, 0.99), (0.3, 0.95)])
@pytest.mark.parametrize(("mapping", "filtering"), PAIRS)
def test_every_behaviour_under_loss(
    mapping: Behaviour, filtering: Behaviour, loss: float, right: float
) -> None:
    runs = 300
    verdicts: Counter[tuple[Behaviour, Behaviour]] = Counter()
    for seed in range(runs):
        world = World([nat(mapping, filtering, seed)], loss=loss, seed=seed)
        verdict = classified(world, nat(EI, APD, seed, THERE))
        assert safe(verdict, mapping, filtering), f"seed {seed}: {verdict}"
        verdicts[verdict.mapping, verdict.filtering] += 1
    assert verdicts[mapping, filtering] >= right * runs, verdicts


@pytest.mark.parametrize("loss", [0.6, 0.9])
def test_a_path_that_loses_nearly_all_makes_nothing_look_better(loss: float) -> None:
    for (mapping, filtering), seed in itertools.product(PAIRS, range(40)):
        world = World([nat(mapping, filtering, seed)], loss=loss, seed=seed)
        verdict = classified(world, nat(EI, EI, seed, THERE))
        assert safe(verdict, mapping, filtering)


@pytest.mark.parametrize(("theirs", "filters"), PAIRS)
def test_a_stranger_instead_of_another_server(theirs: Behaviour, filters: Behaviour) -> None:
    """What an open stranger tells is all; one that filters may leave the mapping unknown."""
    for (mapping, filtering), seed in itertools.product(PAIRS, range(12)):
        world = World([nat(mapping, filtering, seed)], stun=False, seed=seed)
        verdict = classified(world, nat(theirs, filters, seed, THERE))
        assert safe(verdict, mapping, filtering)
        assert verdict.filtering == filtering
        # Where the rendezvous sees it is its door for others only if it maps independently;
        # otherwise its own knocks must come in first. Then ours must come in there.
        comes_in = filtering == EI or (filtering == AD and mapping == EI)
        if (theirs == EI or comes_in) and (mapping == EI or filters != APD):
            assert verdict.mapping == mapping
        else:
            assert verdict.mapping in (mapping, "unknown")


def test_a_stranger_under_loss() -> None:
    right = 0
    for (mapping, filtering), seed in itertools.product(PAIRS, range(40)):
        world = World([nat(mapping, filtering, seed)], stun=False, loss=0.1, seed=seed)
        verdict = classified(world, nat(EI, AD, seed, THERE))
        assert safe(verdict, mapping, filtering)
        right += (verdict.mapping, verdict.filtering) == (mapping, filtering)
    assert right >= 0.99 * len(PAIRS) * 40


@pytest.mark.parametrize(("mapping", "filtering"), PAIRS)
def test_one_address_with_two_ports_tells_half(mapping: Behaviour, filtering: Behaviour) -> None:
    verdict = World([nat(mapping, filtering, 0)], stun=False).run()
    assert verdict.mapping == (APD if mapping == APD else "unknown")
    assert verdict.filtering == (APD if filtering == APD else AD)


@pytest.mark.parametrize(("mapping", "filtering"), PAIRS)
def test_one_port_and_another_server(mapping: Behaviour, filtering: Behaviour) -> None:
    verdict = World([nat(mapping, filtering, 0)], second=False).run()
    assert verdict.mapping == (EI if mapping == EI else APD)
    assert verdict.filtering == "unknown"


def test_two_nats_are_the_stricter_in_each_respect() -> None:
    for (inner, outer), seed in itertools.product(itertools.product(PAIRS, PAIRS), range(3)):
        home = nat(*inner, seed, "100.64.0.9")
        mapping, filtering = (strictest(each) for each in zip(inner, outer, strict=True))
        world = World([home, nat(*outer, seed + 1)], seed=seed)
        verdict = classified(world, nat(EI, APD, seed, THERE))
        assert (verdict.mapping, verdict.filtering) == (mapping, filtering)


def test_several_public_addresses_are_the_worst_mapping() -> None:
    """Also where most of them have no cookie of this member's."""
    pool = (HERE, "203.0.113.2")
    found = {
        World([Nat(HERE, APD, AD, pool=pool, seed=seed)], seed=seed).run().mapping
        for seed in range(50)
    }
    assert found == {APD, "unknown"}


def test_without_a_nat_the_mapping_is_independent_and_the_host_may_still_filter() -> None:
    bare = World([], stun=False, home=HERE)
    verdict = bare.run()
    assert (verdict.mapping, verdict.filtering, verdict.translated) == (EI, AD, False)
    assert verdict.preserved is None
    assert bare.visit([nat(EI, APD, 0, THERE)]).filtering == EI

    firewall = Nat(HERE, EI, APD)  # it keeps the address and the port
    verdict = World([firewall], stun=False, home=HERE).run()
    assert (verdict.mapping, verdict.filtering, verdict.translated) == (EI, APD, False)


def test_ports_that_are_kept() -> None:
    assert World([Nat(HERE, EI, APD)]).run().preserved is True
    assert World([Nat(HERE, EI, APD, ports="random")]).run().preserved is False


def test_silence_everywhere_is_noticed_in_time() -> None:
    world = World([nat(EI, EI, 0)], open_udp=False)
    began = world.now
    verdict = world.run()
    assert verdict.silent
    assert (verdict.mapping, verdict.filtering) == ("unknown", "unknown")
    assert world.now == began + d.CLASSIFY_SECONDS
    assert not world.classifier.wants_stranger


def test_it_is_quick_and_sends_little() -> None:
    for (mapping, filtering), loss in itertools.product(PAIRS, (0.0, 0.1, 0.3)):
        world = World([nat(mapping, filtering, 0)], loss=loss, seed=1)
        began = world.now
        world.run()
        assert world.now - began <= (2 if loss < 0.2 else 4)
        assert world.sent <= 60


def test_who_is_no_stranger() -> None:
    world = World([nat(EI, AD, 0)], stun=False)
    world.run()
    doors = world.classifier.doors((THERE, 5))
    assert [host for host, _ in doors] == [HERE, HERE]
    for host in (HERE, HOME, FIRST[0], "10.0.0.1"):
        assert world.classifier.doors((host, 5)) == ()


def test_what_comes_from_elsewhere_is_not_believed() -> None:
    """An answer from another address, or with a transaction of nobody's."""
    world = World([nat(APD, APD, 0)], seed=3)
    real = world.classifier.received

    def forged(*args: object) -> None:
        socket, datagram, _, now = args
        real(socket, datagram, ("198.51.100.200", 9), now)  # type: ignore[arg-type]

    world.classifier.received = forged  # type: ignore[method-assign, assignment]
    verdict = world.run()
    assert verdict.silent
