"""From beginning to end: two members are classified, the path between them is predicted from that,
and then they look for it."""

import itertools
from collections import Counter

import pytest

from kafila.plan.reach import through
from kafila.plan.values import Nat as Found
from tests.nats import Nat
from tests.virtual.classifying import classify, found
from tests.virtual.network import Network
from tests.virtual.pair import Pair
from tests.virtual.test_matrix import AT_CARRIER, EI, FIVE, HERE, NINE, THERE, Both, pair, single

NAMES = ("anna", "bert")


def predicted(made: Pair) -> bool:
    """Classify both; tell whether the path between them is predicted to be direct."""
    one, other = (found(classify(each.host, made.rendezvous)) for each in made.members)
    return through(one, other, NAMES).path == "direct"


def introduced(made: Pair) -> bool:
    """Introduce both; tell whether the path became direct."""
    made.introduce()
    return made.until_direct(6) is not None


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("one", FIVE)
def test_the_measured_pairs(one: Both, loss: float) -> None:
    """All right; with loss at most one in a hundred predicted relayed that is direct."""
    said: Counter[tuple[bool, bool]] = Counter()
    for other, seed in itertools.product(FIVE, range(5)):
        made = pair(Network(loss=loss, jitter=0.03, seed=seed), single((one, other), seed))
        said[predicted(made), introduced(made)] += 1
    assert said[True, False] == 0, said
    assert said[False, True] <= (0 if loss == 0 else 1), said


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("one", NINE)
def test_all_81_are_never_promised_too_much(one: Both, loss: float) -> None:
    for other, drop in itertools.product(NINE, (True, False)):
        network = Network(loss=loss, seed=drop)
        made = pair(network, single((one, other), 1, drops=(drop, not drop)))
        promised = predicted(made)
        network.link.loss = min(loss, 0.1)
        assert not promised or introduced(made), other
        if loss == 0:
            assert promised == (through(Found(*one), Found(*other), NAMES).path == "direct")


def test_rows_of_nats() -> None:
    """A home's behind a carrier's, one of each of the five in each place."""
    for (inner, outer), other in itertools.product(itertools.product(FIVE, FIVE), FIVE):
        sides = (
            [Nat(AT_CARRIER[0], *inner, drop=False), Nat(HERE, *outer, ports="random")],
            [Nat(THERE, *other, seed=1)],
        )
        made = pair(Network(), sides)
        promised = predicted(made)
        assert introduced(made) == promised, (inner, outer, other)


def test_one_carrier_is_not_counted_on() -> None:
    """Whether it turns packets was not measured: predicted relayed, and perhaps it is direct."""
    for hairpin in (True, False):
        network = Network()
        carrier = network.internet.carrier(Nat(HERE, EI, EI, hairpin=hairpin))
        made = Pair(network, *(carrier.home(Nat(each, *FIVE[2])) for each in AT_CARRIER))
        made.register()
        assert not predicted(made)
        assert introduced(made) == hairpin


def test_without_udp() -> None:
    network = Network()
    shut = network.internet.home(Nat(HERE, EI, EI), open_udp=False)
    made = Pair(network, shut, network.internet.home(Nat(THERE, EI, EI)))
    assert not predicted(made)
