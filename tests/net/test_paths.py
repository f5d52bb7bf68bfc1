"""The paths of an edge in virtual time: two ends, a wire between them that loses and repeats."""

import heapq
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.address import Address
from kafila.defaults import MAX_CANDIDATES, MAX_PATHS
from kafila.net.datagram import Check, CheckType
from kafila.net.paths import PathChecks, Send, edge_key, reachable

KEY = b"k" * 32
EDGE = b"e" * 8
PLAN = b"p" * 8
ANNA = ("192.0.2.1", 1000)
BERT = ("192.0.2.2", 2000)
DELAY = 0.04


def checks(*, client: bool, key: bytes = KEY, plan: bytes = PLAN, protocol: int = 1) -> PathChecks:
    numbers = itertools.count()
    return PathChecks(
        key=key,
        edge=EDGE,
        client=client,
        protocol=protocol,
        plan=plan,
        now=0.0,
        random=lambda size: next(numbers).to_bytes(size),
    )


class Wire:
    """A network of two sockets with a clock of its own: anna is the client, bert the server."""

    def __init__(
        self,
        anna: PathChecks,
        bert: PathChecks,
        passes: Callable[[int, Send], bool] = lambda number, send: True,
        largest: int = 65535,
    ) -> None:
        self.ends = {ANNA: anna, BERT: bert}
        self.now = 0.0
        self.sent: list[tuple[Address, Send]] = []
        self._passes = passes
        self._largest = largest
        self._flying: list[tuple[float, int, Address, Send]] = []

    def put(self, source: Address, sends: list[Send]) -> None:
        for send in sends:
            self.sent.append((source, send))
            number = len(self.sent)
            if len(send.datagram) <= self._largest and self._passes(number, send):
                heapq.heappush(self._flying, (self.now + DELAY, number, source, send))

    def run(self, until: float) -> None:
        for address, end in self.ends.items():
            self.put(address, end.poll(self.now))
        while True:
            timers = [(end.timer(), address) for address, end in self.ends.items()]
            due = [(time, address) for time, address in timers if time is not None]
            arrivals = self._flying[:1]
            following = min([time for time, _ in due] + [each[0] for each in arrivals], default=9e9)
            if following > until:
                self.now = until
                return
            self.now = max(self.now, following)
            if arrivals and arrivals[0][0] <= self.now:
                _, _, source, send = heapq.heappop(self._flying)
                if send.address in self.ends:
                    end = self.ends[send.address]
                    check = Check.decode(send.datagram)
                    answers = end.receive(send.datagram, check, None, source, self.now)
                    self.put(send.address, answers or [])
            else:
                _, address = min(due)
                self.put(address, self.ends[address].poll(self.now))


def test_both_ends_find_the_path_in_a_round_trip() -> None:
    anna, bert = checks(client=True), checks(client=False)
    anna.add(None, [BERT])
    bert.add(None, [ANNA])
    Wire(anna, bert).run(until=2 * DELAY)
    for end, address in ((anna, BERT), (bert, ANNA)):
        assert end.chosen is not None
        assert end.chosen.address == address
        assert end.chosen.size == 8900
        assert end.chosen.rtt_us == 80_000
        assert end.timer() is None


def test_one_candidate_list_is_enough() -> None:
    """The other end learns the address from the PING that reaches it."""
    anna, bert = checks(client=True), checks(client=False)
    anna.add(None, [BERT])
    Wire(anna, bert).run(until=1)
    assert bert.chosen is not None
    assert bert.chosen.address == ANNA


@pytest.mark.parametrize(("largest", "size"), [(1199, None), (1200, 1200), (1500, 1452)])
def test_a_path_is_as_large_as_what_came_through(largest: int, size: int | None) -> None:
    anna, bert = checks(client=True), checks(client=False)
    anna.add(None, [BERT])
    bert.add(None, [ANNA])
    Wire(anna, bert, largest=largest).run(until=3)
    for end in (anna, bert):
        assert (end.chosen and end.chosen.size) == size


def test_silence_is_asked_again_ever_more_slowly() -> None:
    anna = checks(client=True)
    anna.add(None, [BERT])
    wire = Wire(anna, checks(client=False), passes=lambda number, send: False)
    wire.run(until=2.0)
    rounds = [send for _, send in wire.sent if len(send.datagram) == 1200]
    assert len(rounds) == 5 + 3  # at 0, 50, 150, 350 and 750 ms, then every 400 ms
    assert len(wire.sent) == len(rounds) + 2 * 3  # larger ones in the first three rounds only
    assert anna.chosen is None


@given(st.sets(st.integers(1, 40), max_size=25))
def test_lost_checks_are_made_good(lost: set[int]) -> None:
    anna, bert = checks(client=True), checks(client=False)
    anna.add(None, [BERT])
    bert.add(None, [ANNA])
    Wire(anna, bert, passes=lambda number, send: number not in lost).run(until=20)
    assert anna.chosen is not None
    assert bert.chosen is not None


def test_the_shorter_path_wins() -> None:
    anna = checks(client=True)
    one, other = ("198.51.100.1", 1), ("192.0.2.9", 1)
    anna.add(None, [one, other])
    bert = checks(client=False)
    pongs = []
    for send in anna.poll(0.0):
        if len(send.datagram) == 1200:
            check = Check.decode(send.datagram)
            (pong, *_) = bert.receive(send.datagram, check, None, ANNA, 0.0) or []
            pongs.append((send.address, pong.datagram))
    (_, first), (_, second) = pongs
    anna.receive(first, Check.decode(first), None, one, 0.030)
    assert anna.timer() is not None  # undecided: a better path may answer in a moment
    anna.receive(second, Check.decode(second), None, other, 0.031)
    anna.poll(0.060)
    assert anna.chosen is not None
    assert anna.chosen.address == one


def test_who_lacks_the_key_is_ignored() -> None:
    anna, mallory = checks(client=True), checks(client=False, key=b"m" * 32)
    anna.add(None, [BERT])
    mallory.add(None, [ANNA])
    Wire(anna, mallory).run(until=5)
    assert anna.chosen is None
    assert mallory.chosen is None
    assert [path.address for path in anna.paths] == [BERT]


def test_a_reflected_ping_is_not_the_peers() -> None:
    anna = checks(client=True)
    anna.add(None, [BERT])
    for send in anna.poll(0.0):
        check = Check.decode(send.datagram)
        assert anna.receive(send.datagram, check, None, BERT, 0.01) is None
    assert anna.chosen is None


def test_a_replay_from_elsewhere_gains_no_path() -> None:
    """Mallory repeats what bert sent. It is answered, never with more; it proves nothing."""
    mallory = ("203.0.113.66", 6)
    anna, bert = checks(client=True), checks(client=False)
    anna.add(None, [BERT])
    bert.add(None, [ANNA])
    wire = Wire(anna, bert)
    wire.run(until=1)
    for source, send in [each for each in wire.sent if each[0] == BERT]:
        check = Check.decode(send.datagram)
        answers = anna.receive(send.datagram, check, None, mallory, 1.0) or []
        pongs = [each for each in answers if Check.decode(each.datagram).type is CheckType.PONG]
        assert len(pongs) == (check.type is CheckType.PING)
        assert all(len(pong.datagram) <= len(send.datagram) for pong in pongs)
        assert source == BERT
    path = anna.find(None, mallory)
    assert path is None or not path.checked
    assert anna.chosen is not None
    assert anna.chosen.address == BERT


def test_paths_do_not_grow_without_bound() -> None:
    anna, bert = checks(client=True), checks(client=False)
    bert.add(None, [ANNA])
    ping = bert.poll(0.0)[0].datagram
    for port in range(1, 100):
        anna.receive(ping, Check.decode(ping), None, ("203.0.113.1", port), 0.0)
    assert len(anna.paths) == MAX_PATHS


@pytest.mark.parametrize(
    "other", [{"plan": b"q" * 8, "protocol": 1}, {"plan": PLAN, "protocol": 2}]
)
def test_another_plan_or_version_is_told_to_both(other: dict[str, bytes | int]) -> None:
    anna = checks(client=True)
    bert = checks(client=False, plan=bytes(other["plan"]), protocol=int(other["protocol"]))
    anna.add(None, [BERT])
    bert.add(None, [ANNA])
    Wire(anna, bert).run(until=1)
    assert anna.chosen is bert.chosen is None
    assert anna.mismatch is not None
    assert (anna.mismatch.protocol, anna.mismatch.plan) == (other["protocol"], other["plan"])
    assert bert.mismatch is not None
    assert (bert.mismatch.protocol, bert.mismatch.plan) == (1, PLAN)


def test_an_old_ping_of_another_plan_ends_nothing() -> None:
    """Only an answer to our own fresh PING says what the peer's plan is now."""
    anna, old = checks(client=True), checks(client=False, plan=b"q" * 8)
    anna.add(None, [BERT])
    old.add(None, [ANNA])
    for send in old.poll(0.0):
        anna.receive(send.datagram, Check.decode(send.datagram), None, BERT, 0.0)
    assert anna.mismatch is None


def test_a_path_the_peer_uses_is_checked_even_when_another_is_chosen() -> None:
    anna, bert = checks(client=True), checks(client=False)
    anna.add(None, [BERT])
    bert.add(None, [ANNA])
    Wire(anna, bert).run(until=1)
    other = ("192.0.2.3", 3000)
    ping = Check(CheckType.PING, False, 1, EDGE, b"t" * 8, PLAN, 1200).encode(KEY)
    _, *pings = anna.receive(ping, Check.decode(ping), None, other, 1.0) or []
    assert pings
    assert not anna.wanted(None, other, 1.01)  # not with every datagram
    assert anna.wanted(None, other, 1.06)
    answer = bert.receive(pings[0].datagram, Check.decode(pings[0].datagram), None, ANNA, 1.0)
    assert answer
    anna.receive(answer[0].datagram, Check.decode(answer[0].datagram), None, other, 1.1)
    path = anna.find(None, other)
    assert path is not None
    assert path.checked
    assert not anna.wanted(None, other, 9.0)


def test_both_members_derive_one_edge() -> None:
    assert edge_key(b"s" * 32, b"a" * 32, b"b" * 32) == edge_key(b"s" * 32, b"b" * 32, b"a" * 32)
    assert edge_key(b"s" * 32, b"a" * 32, b"b" * 32) != edge_key(b"s" * 32, b"a" * 32, b"c" * 32)


def test_loopback_leads_nowhere_from_another_machine() -> None:
    loopback, lan = ("127.0.0.1", 5), ("192.0.2.1", 5)
    assert reachable([lan, loopback], [("192.0.2.1", 9)]) == [lan, loopback]
    assert reachable([lan, loopback], [("192.0.2.7", 9), ("127.0.0.1", 9)]) == [lan]
    assert reachable([loopback], [("192.0.2.7", 9)]) == [loopback]


def test_only_addresses_of_one_host_are_tried_and_not_many() -> None:
    bad = ["224.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "example.org", "1.2.3"]
    assert reachable([(host, 5) for host in bad] + [("192.0.2.1", 0)], []) == []
    many = [("192.0.2.1", port) for port in range(1, 30)]
    assert reachable(many, []) == many[:MAX_CANDIDATES]
