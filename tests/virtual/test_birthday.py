"""Ports that are guessed: where one side is found at one port and filters by port, and the other
maps by destination."""

import itertools

import pytest

from kafila.defaults import BIRTHDAY_GUESSES, BIRTHDAY_RATE, BIRTHDAY_SOCKETS
from kafila.net.paths import State
from kafila.net.punching import Punch
from tests.virtual.network import Network
from tests.virtual.pair import Pair
from tests.virtual.test_matrix import AD, APD, EI, PORTS, Both, pair, single

INDEPENDENT: Both = (EI, APD)
RATE = 2 * BIRTHDAY_RATE + 100
"""Guesses or openers, in a busy second the last of one round and the first of the next, and the
ordinary PINGs."""


def introduce(made: Pair, one: Both, other: Both) -> None:
    """As the plan would: both know of both NATs."""

    def punch(own: Both, theirs: Both) -> Punch:
        return Punch(True, own[0] != EI, own[1] == APD, theirs[0] != EI, theirs[1] == APD)

    made.introduce(0.02, anna=punch(one, other), bert=punch(other, one))


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("dependent", [(APD, APD), (AD, APD)])
@pytest.mark.parametrize("client", [True, False])
def test_nine_of_ten_become_direct(dependent: Both, client: bool, loss: float) -> None:
    """Whichever end is which, however ports are given out. The sockets that were not needed are
    closed when the round is over, and what is sent stays below the rate."""
    kinds = (dependent, INDEPENDENT) if client else (INDEPENDENT, dependent)
    tries, direct = 12, 0
    for seed in range(tries):
        network = Network(loss=loss, seed=seed)
        made = pair(network, single(kinds, seed))
        introduce(made, *kinds)
        began = network.now
        direct += made.until_direct(5.5) is not None
        network.run(began + 9.5 - network.now)  # before another round
        for member in made.members:
            assert member.busiest() <= RATE
            assert member.most_sockets <= BIRTHDAY_SOCKETS + 1
            assert len(member.sockets) <= 6  # several may have been found at once
            assert sum(member.sent.values()) <= 2 * BIRTHDAY_GUESSES + 4 * BIRTHDAY_SOCKETS
    assert direct >= 0.9 * tries, direct


def test_nothing_is_guessed_that_cannot_be_found() -> None:
    for one, other in itertools.product(((APD, APD), (AD, APD)), repeat=2):
        made = pair(Network(), single((one, other)))
        introduce(made, one, other)
        assert made.until_direct(30) is None
        for member in made.members:
            assert member.most_sockets <= 1
            assert member.busiest() <= 100
            assert member.state is State.RELAYED


def test_it_stays_with_a_path_that_was_guessed() -> None:
    """Its heartbeats keep it, and the edge has no rest of the salvo to carry."""
    made = pair(Network(seed=3), single(((APD, APD), INDEPENDENT), 1))
    introduce(made, (APD, APD), INDEPENDENT)
    assert made.until_direct(20) is not None
    network = made.network
    network.run(10)
    for member in made.members:
        member.talk()
        member.sent.clear()
        member.states.clear()
    network.run(200)
    for member in made.members:
        assert [state for _, state in member.states] == [State.DIRECT]
        assert member.outage() == 0
        assert member.busiest() <= 40


def test_the_ports_of_a_birthday_are_those_of_its_nat() -> None:
    """A NAT that keeps ports, gives them at random, or in turn: all are found."""
    for ports in PORTS:
        made = pair(Network(seed=1), single((INDEPENDENT, (APD, APD))))
        made.bert.host.nats[0].ports = ports
        introduce(made, INDEPENDENT, (APD, APD))
        assert made.until_direct(30) is not None
