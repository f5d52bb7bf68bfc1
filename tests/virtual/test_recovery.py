"""What dies comes back: paths, NATs, mappings, the relay. Frames are lost for a moment at most."""

import itertools
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kafila.defaults import LOST_AFTER, ROUND_AGAIN
from kafila.net.paths import State
from tests.nats import Nat
from tests.virtual.network import Network, Packet, clear
from tests.virtual.pair import Pair
from tests.virtual.servers import RENDEZVOUS
from tests.virtual.test_matrix import AD, APD, EI, FIVE, HERE, MOST, THERE, Both, allowed, pair

DIRECT: Final = [each for each in itertools.product(FIVE, FIVE) if allowed(*each)]
RELAYED: Final = [each for each in itertools.product(FIVE, FIVE) if not allowed(*each)]
NOTICED: Final = 1.5
"""Seconds from the last frame that came through to the first that came through elsewhere: a
heartbeat, the patience for its answer, a trip."""
WELL: Final = 6.0
"""Seconds until nothing more is lost, whatever went on before: four trips of 0.4 s until an answer
is overdue, where the relay was far, and two things that went wrong to be noticed in turn."""


def straight(packet: Packet) -> bool:
    """Whether it goes to or comes from the rendezvous."""
    return RENDEZVOUS[0] in (packet.source[0], packet.target[0])


def edge(
    kinds: tuple[Both, Both], *, loss: float = 0.0, seed: int = 0, **nat: float | bool
) -> tuple[Pair, list[Nat]]:
    """An edge that has been up for a while, and carries frames both ways."""
    network = Network(loss=loss, seed=seed)
    nats = [
        Nat(host, *kind, ports="random", seed=seed, **nat)  # type: ignore[arg-type]
        for host, kind in zip((HERE, THERE), kinds, strict=True)
    ]
    made = pair(network, ([nats[0]], [nats[1]]))
    made.introduce()
    assert (made.until_direct(3) is not None) == allowed(*kinds)
    network.run(3)
    for member in made.members:
        member.talk()
    network.run(2)
    return made, nats


def quiet(made: Pair) -> None:
    """No more was sent or kept open than one edge needs."""
    for member in made.members:
        assert member.busiest() <= MOST
        assert member.most_sockets <= 2
        assert len(member.sockets) <= 1


@pytest.mark.parametrize(
    ("kinds", "loss"), [*((each, 0.0) for each in DIRECT), *((each, 0.05) for each in DIRECT[::3])]
)
def test_a_black_hole(kinds: tuple[Both, Both], loss: float) -> None:
    made, _ = edge(kinds, loss=loss)
    network = made.network
    network.passes = straight
    network.run(12)
    assert all(each.state is State.RELAYED for each in made.members)
    for member in made.members:
        assert member.outage() <= NOTICED
    network.passes = clear
    assert made.until_direct(sum(ROUND_AGAIN[:2])) is not None
    network.run(1)
    for member in made.members:
        assert member.outage() <= NOTICED
    network.run(10)
    quiet(made)


@pytest.mark.parametrize("victim", ["anna", "bert"])
@pytest.mark.parametrize("kinds", DIRECT[::3])
def test_a_black_hole_in_one_direction(kinds: tuple[Both, Both], victim: str) -> None:
    """Who is heard no longer learns of it from the other, who uses the relay then."""
    made, _ = edge(kinds)
    network = made.network
    network.passes = lambda packet: straight(packet) or packet.sender != victim
    network.run(6)
    assert all(each.state is State.RELAYED for each in made.members)
    network.passes = clear
    assert made.until_direct(sum(ROUND_AGAIN[:2])) is not None
    network.run(1)
    for member in made.members:
        assert member.outage() <= NOTICED + 0.5


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("kinds", DIRECT[::2])
def test_a_nat_that_forgets_everything(
    kinds: tuple[Both, Both], which: tuple[int, ...], drop: bool
) -> None:
    """The relay's address of the member is gone too, and found again by its own heartbeat."""
    made, nats = edge(kinds, drop=drop)
    for each in which:
        nats[each].reboot()
    network = made.network
    network.run(LOST_AFTER + 1)  # it may take one end as long to see that the path is dead
    assert made.until_direct(3) is not None
    network.run(15)
    assert made.direct
    for member in made.members:
        assert member.outage() <= NOTICED
    quiet(made)


@pytest.mark.parametrize("kinds", DIRECT[::3])
def test_mappings_that_end_however_much_they_are_used(kinds: tuple[Both, Both]) -> None:
    """As some carriers' do, every minute or so."""
    made, _ = edge(kinds, absolute=60.0)
    network = made.network
    away = 0.0
    for _ in range(1300):
        network.run(0.1)
        away += 0 if made.direct else 0.1
    for member in made.members:
        assert member.outage() <= NOTICED
    assert away <= 3 * 4 * 3.0  # so much a time: the path, the relay's mapping, at either end
    quiet(made)


@pytest.mark.parametrize("refreshed", [True, False])
@pytest.mark.parametrize("kinds", DIRECT[::3])
def test_heartbeats_keep_the_shortest_usual_mapping(
    kinds: tuple[Both, Both], refreshed: bool
) -> None:
    """30 s, with nothing to carry at all; the relayed path too is there when it is needed."""
    made, _ = edge(kinds, lifetime=30.0, refreshed=refreshed)
    network = made.network
    for member in made.members:
        member.hush()
    network.run(300)
    assert made.direct
    network.passes = straight
    network.run(5)
    assert made.anna.checks is not None
    assert made.anna.checks.relay is not None
    assert made.anna.checks.relay.alive
    for member in made.members:
        assert {state for _, state in member.states[-1:]} <= {State.SUSPECT, State.RELAYED}
        assert member.busiest() <= MOST
        before = len(member.frames)
        member.say()
        network.run(0.2)
        assert member.frames[before][1]


@pytest.mark.parametrize("kinds", DIRECT[::3])
def test_a_mapping_shorter_than_the_heartbeat(kinds: tuple[Both, Both]) -> None:
    """An edge without traffic loses its path each time; a frame comes through all the same."""
    made, _ = edge(kinds, lifetime=4.0)
    for member in made.members:
        member.hush()
    network = made.network
    for turn in range(12):
        network.run(7.3)
        member = made.members[turn % 2]
        before = len(member.frames)
        member.talk()
        network.run(3)
        member.hush()
        network.run(0.5)
        assert all(came for _, came in member.frames[before + 30 :])
    for member in made.members:
        assert member.outage() <= NOTICED


@pytest.mark.parametrize("kinds", [*DIRECT[::4], *RELAYED[::3]])
def test_a_relay_that_is_restarted(kinds: tuple[Both, Both]) -> None:
    """It has forgotten all flows; the grants outlive it. Who is direct notices nothing."""
    made, _ = edge(kinds)
    network = made.network
    made.rendezvous.restart()
    network.run(15)
    for member in made.members:
        assert member.outage() <= (0 if allowed(*kinds) else 2.5)
        assert member.binding is not None
        assert member.binding.boot == made.rendezvous.relay.boot
        assert [state for _, state in member.states].count(State.SUSPECT) == 0


@pytest.mark.parametrize("kinds", RELAYED)
def test_a_nat_that_forgets_a_relayed_edge(kinds: tuple[Both, Both]) -> None:
    made, nats = edge(kinds, loss=0.03)
    for nat in nats:
        nat.reboot()
    made.network.run(10)
    for member in made.members:
        assert member.outage() <= 3.0
        assert member.state is State.RELAYED


@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_what_is_still_on_its_way_does_not_make_a_dead_path_look_alive(phase: float) -> None:
    """The round trip by a far relay is 0.4 s: frames come in after the PING that is never
    answered was sent."""
    made, nats = edge(RELAYED[0])
    made.network.link.delay = 0.1
    made.network.run(30 + phase)
    nats[0].reboot()
    made.network.run(10)
    for member in made.members:
        assert member.outage() <= 4.0


@pytest.mark.parametrize("kinds", [*DIRECT[::4], *RELAYED[::3]])
def test_a_rendezvous_that_is_away_for_a_minute(kinds: tuple[Both, Both]) -> None:
    made, _ = edge(kinds)
    network = made.network
    made.rendezvous.running = False
    network.run(60)
    for member in made.members:
        assert not allowed(*kinds) or member.outage() == 0
        assert member.busiest() <= MOST
    made.rendezvous.restart()
    made.rendezvous.running = True
    network.run(3)
    for member in made.members:
        assert member.frames[-10][1]
    network.run(60)
    assert made.direct == allowed(*kinds)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kinds", [((EI, APD), (EI, APD)), ((EI, AD), (APD, APD))])
def test_everything_is_away_for_a_while(kinds: tuple[Both, Both], seed: int) -> None:
    """Neither path nor relay: it comes back by itself, over whichever is there first."""
    made, _ = edge(kinds, seed=seed)
    network = made.network
    network.passes = lambda packet: False
    network.run(5 + 10 * seed)
    network.passes = clear
    for member in made.members:
        assert network.run(5, lambda m=member: m.frames[-8][1]) <= 3  # type: ignore[misc]
    assert made.until_direct(20) is not None
    quiet(made)


@pytest.mark.parametrize("kinds", DIRECT[::3])
def test_a_tenth_lost_moves_nothing_for_good(kinds: tuple[Both, Both]) -> None:
    made, _ = edge(kinds, loss=0.1)
    made.network.run(120)
    for member in made.members:
        assert State.RELAYED not in [state for _, state in member.states[1:]]
        assert member.outage() <= 0.5
        lost = sum(not came for _, came in member.frames[:-10])
        assert lost <= 0.16 * len(member.frames)


Fault = Callable[[Pair, list[Nat]], None]


def _passes(made: Pair, passes: Callable[[Packet], bool]) -> None:
    made.network.passes = passes


FAULTS: Final[tuple[Fault, ...]] = (
    lambda made, nats: _passes(made, straight),
    lambda made, nats: _passes(made, lambda packet: not straight(packet)),
    lambda made, nats: _passes(made, lambda packet: packet.sender != "bert"),
    lambda made, nats: nats[0].reboot(),
    lambda made, nats: nats[1].reboot(),
    lambda made, nats: made.rendezvous.restart(),
    lambda made, nats: setattr(made.network.link, "loss", 0.3),
    lambda made, nats: setattr(made.network.link, "delay", 0.1),
    lambda made, nats: setattr(made.network.link, "largest", 1232),
)


@given(
    st.sampled_from(DIRECT + RELAYED),
    st.lists(st.tuples(st.sampled_from(FAULTS), st.floats(0, 20)), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 99),
)
@settings(max_examples=30, derandomize=True, phases=[Phase.generate])
def test_any_row_of_faults(
    kinds: tuple[Both, Both], faults: list[tuple[Fault, float]], drop: bool, seed: int
) -> None:
    """When all is well again the edge works within seconds, and is direct after a round or two."""
    made, nats = edge(kinds, drop=drop, seed=seed)
    network = made.network
    for fault, seconds in faults:
        fault(made, nats)
        network.run(seconds)
    network.passes, network.link.loss, network.link.delay = clear, 0.0, 0.04
    network.run(WELL)
    before = [len(member.frames) for member in made.members]
    network.run(2)
    for member, first in zip(made.members, before, strict=True):
        assert all(came for _, came in member.frames[first:-5])
    if allowed(*kinds):
        assert made.until_direct(sum(ROUND_AGAIN) + 20) is not None
        network.run(30)
        assert made.direct
    quiet(made)
