"""The relay in virtual time: the codec, both machines against each other, and every limit."""

import heapq
import itertools
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila import defaults as d
from kafila.address import Address
from kafila.net.carrier import tunnel_address
from kafila.net.datagram import BINDING
from kafila.net.relay import Binding
from kafila.net.relaying import (
    BINDING_SIZE,
    FRAME_HEAD,
    Answer,
    Bind,
    Bound,
    Challenge,
    Grant,
    State,
    answer,
    decode_binding,
    frame_head,
    named_flow,
    relay_flow,
    relay_side,
)
from kafila.rendezvous.actions import Log
from kafila.rendezvous.relay import DROPS, Relay

SESSION = b"s" * 32
ANNA, BERT = b"a" * 32, b"b" * 32
HOME, AWAY = ("198.51.100.1", 4000), ("203.0.113.9", 5000)
SECRET = b"k" * 32


class Wire:
    """A carrier that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Address]] = []

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        self.sent.append((datagram, address))

    def send_all(self, datagrams: Sequence[bytes], address: Address) -> None:
        self.sent += [(datagram, address) for datagram in datagrams]


WIRE = Wire()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return 1.8e9 + self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def relay(clock: Clock) -> Relay:
    return Relay(SECRET, wall=clock.wall)


def told(
    relay: Relay, message: bytes, source: Address, now: float
) -> Bind | Challenge | Answer | Bound:
    """What the relay answers."""
    answer = relay.binding(message, WIRE, source, now)
    assert answer is not None
    return decode_binding(answer)


def challenged(relay: Relay, grant: Grant, source: Address, now: float) -> bytes:
    """The cookie of an address."""
    message = Bind(grant.flow, grant.side, b"t" * 8).encode()
    challenge = told(relay, message, source, now)
    assert isinstance(challenge, Challenge)
    return challenge.cookie


def bind(relay: Relay, grant: Grant, source: Address, now: float) -> Bound:
    cookie = challenged(relay, grant, source, now)
    return answered(relay, answer(grant, b"u" * 8, cookie), source, now)


def answered(relay: Relay, message: Answer, source: Address, now: float) -> Bound:
    bound = told(relay, message.encode(), source, now)
    assert isinstance(bound, Bound)
    return bound


def both(relay: Relay, now: float, session: bytes = SESSION) -> bytes:
    """Bind both ends; the head of their frames."""
    anna, bert = relay.grant(session, ANNA, BERT), relay.grant(session, BERT, ANNA)
    assert bind(relay, anna, HOME, now).state is State.ALONE
    assert bind(relay, bert, AWAY, now).state is State.BOTH
    return frame_head(anna.flow)


# --- the codec -------------------------------------------------------------------------------

octets8, octets16, octets32 = (st.binary(min_size=n, max_size=n) for n in (8, 16, 32))
sides = st.integers(0, 1)
hosts = st.ip_addresses(v=4).map(str) | st.integers(2**96, 2**128 - 1).map(
    lambda number: str(IPv6Address(number))
)
messages = st.one_of(
    st.builds(Bind, octets8, sides, octets8),
    st.builds(Challenge, octets8, sides, octets8, octets16),
    st.builds(
        Answer, octets8, sides, octets8, octets32, st.integers(0, 2**32 - 1), octets16, octets16
    ),
    st.builds(
        Bound,
        octets8,
        sides,
        octets8,
        octets8,
        st.sampled_from(State),
        st.none() | st.tuples(hosts, st.integers(1, 65535)),
    ),
)


@given(messages)
def test_messages_come_back_as_they_were_and_all_have_one_length(
    message: Bind | Challenge | Answer | Bound,
) -> None:
    datagram = message.encode()
    assert len(datagram) == BINDING_SIZE
    assert decode_binding(datagram) == message
    assert named_flow(datagram) == message.flow


@given(
    st.binary(max_size=200)
    | st.binary(min_size=BINDING_SIZE - 1, max_size=BINDING_SIZE - 1).map(
        lambda data: bytes([BINDING]) + data
    )
)
def test_no_datagram_breaks_the_readers(datagram: bytes) -> None:
    relay = Relay(SECRET)
    grant = relay.grant(SESSION, ANNA, BERT)
    readers: list[Callable[[], object]] = [
        lambda: decode_binding(datagram),
        lambda: named_flow(datagram),
        lambda: relay.binding(datagram, WIRE, HOME, 0.0),
        lambda: Binding(grant, 0.0).receive(datagram, 0.0),
    ]
    for read in readers:
        try:
            result = read()
        except ValueError:
            continue
        if isinstance(result, bytes):
            assert len(result) <= len(datagram)
    relay.forward(datagram, HOME, 0.0)
    assert relay.flows == 0


def test_both_members_name_their_flow_alike_and_hold_one_end_each() -> None:
    assert relay_flow(SESSION, ANNA, BERT) == relay_flow(SESSION, BERT, ANNA)
    assert relay_flow(SESSION, ANNA, BERT) != relay_flow(b"t" * 32, ANNA, BERT)
    assert (relay_side(ANNA, BERT), relay_side(BERT, ANNA)) == (0, 1)


# --- the handshake ---------------------------------------------------------------------------


def test_frames_pass_unchanged_between_two_bound_ends(relay: Relay) -> None:
    head = both(relay, 1000.0)
    there = relay.forward(head + b"from anna", HOME, 1000.0)
    assert there is not None
    assert there.source == AWAY
    back = relay.forward(head + b"from bert", AWAY, 1000.0)
    assert back is not None
    assert back.source == HOME
    assert (relay.datagrams, relay.bytes) == (2, 2 * (FRAME_HEAD + 9))


def test_the_relay_says_where_it_sees_an_end(relay: Relay) -> None:
    grant = relay.grant(SESSION, ANNA, BERT)
    assert bind(relay, grant, HOME, 0).observed == HOME
    assert bind(relay, grant, ("2001:db8::7", 9), 0).observed == ("2001:db8::7", 9)
    assert bind(relay, grant, tunnel_address(HOME, 1), 0).observed is None


def test_nothing_is_kept_of_who_only_asks(relay: Relay) -> None:
    for number in range(1000):
        message = Bind(number.to_bytes(8), 0, b"t" * 8).encode()
        relay.binding(message, WIRE, (f"192.0.2.{number % 250}", 1000 + number), 1.0)
    assert relay.flows == 0
    assert not relay._sessions
    assert not relay._crowds


def test_a_cookie_is_for_one_address_flow_and_side_and_gets_old(relay: Relay) -> None:
    grant = relay.grant(SESSION, ANNA, BERT)
    cookie = challenged(relay, grant, HOME, 0.0)
    message = answer(grant, b"u" * 8, cookie).encode()
    assert isinstance(told(relay, message, AWAY, 0.0), Challenge)
    other = relay.grant(SESSION, BERT, ANNA)
    wrong = answer(other, b"u" * 8, cookie).encode()
    assert isinstance(told(relay, wrong, HOME, 0.0), Challenge)
    assert relay.flows == 0
    assert answered(relay, answer(grant, b"u" * 8, cookie), HOME, 1.0).state is State.ALONE
    assert isinstance(told(relay, message, HOME, 3 * d.RELAY_COOKIE_SECONDS), Challenge)


def test_a_grant_is_for_one_end_of_one_rendezvous_and_expires(relay: Relay, clock: Clock) -> None:
    grant = relay.grant(SESSION, ANNA, BERT)
    forged = [
        Grant(BERT, SESSION, grant.flow, grant.side, grant.expires, b"x" * 16),
        Grant(BERT, SESSION, grant.flow, grant.side, grant.expires + 1, grant.token),
        Grant(BERT, b"t" * 32, grant.flow, grant.side, grant.expires, grant.token),
        Grant(BERT, SESSION, grant.flow, 1 - grant.side, grant.expires, grant.token),
        Grant(BERT, SESSION, b"f" * 8, grant.side, grant.expires, grant.token),
        Relay(b"another", wall=clock.wall).grant(SESSION, ANNA, BERT),
    ]
    for each in forged:
        assert bind(relay, each, HOME, 0.0).state is State.REFUSED
    assert relay.flows == 0
    clock.now += d.RELAY_GRANT_SECONDS
    assert bind(relay, grant, HOME, 0.0).state is State.REFUSED
    assert bind(relay, relay.grant(SESSION, ANNA, BERT), HOME, 0.0).state is State.ALONE


def test_who_reads_along_cannot_bind(relay: Relay) -> None:
    """Neither the token nor what was proven with it serves at another address."""
    grant = relay.grant(SESSION, ANNA, BERT)
    proof = answer(grant, b"u" * 8, challenged(relay, grant, HOME, 0.0))
    assert grant.token not in proof.encode()
    elsewhere = challenged(relay, grant, AWAY, 0.0)
    stolen = Answer(
        proof.flow, proof.side, proof.transaction, SESSION, proof.expires, elsewhere, proof.proof
    )
    assert answered(relay, stolen, AWAY, 0.0).state is State.REFUSED


def test_tokens_outlive_a_restart_of_the_relay_and_its_boot_does_not(clock: Clock) -> None:
    before, after = Relay(SECRET, wall=clock.wall), Relay(SECRET, wall=clock.wall)
    grant = before.grant(SESSION, ANNA, BERT)
    first, second = bind(before, grant, HOME, 0.0), bind(after, grant, HOME, 0.0)
    assert first.state is second.state is State.ALONE
    assert first.boot != second.boot


def test_an_end_that_moved_is_bound_anew_and_its_old_address_is_nobodys(relay: Relay) -> None:
    head = both(relay, 0.0)
    moved = ("198.51.100.77", 4444)
    assert bind(relay, relay.grant(SESSION, ANNA, BERT), moved, 1.0).state is State.BOTH
    assert relay.forward(head + b"x", HOME, 1.0) is None
    there = relay.forward(head + b"x", AWAY, 1.0)
    assert there is not None
    assert there.source == moved


def test_an_end_that_is_not_refreshed_is_forgotten(relay: Relay) -> None:
    head = both(relay, 0.0)
    bind(relay, relay.grant(SESSION, ANNA, BERT), HOME, 30.0)
    relay.tick(d.RELAY_FORGET)
    assert relay.forward(head + b"x", HOME, d.RELAY_FORGET) is None
    assert relay.dropped["alone"] == 1
    assert relay.flows == 1
    relay.tick(d.RELAY_FORGET + 30.0)
    assert relay.flows == 0
    assert not relay._crowds


# --- limits ----------------------------------------------------------------------------------


def test_what_is_not_forwarded_is_counted_by_its_reason(relay: Relay) -> None:
    grant = relay.grant(SESSION, ANNA, BERT)
    head = frame_head(grant.flow)
    relay.forward(head + b"x", HOME, 0.0)
    bind(relay, grant, HOME, 0.0)
    relay.forward(head + b"x", HOME, 0.0)
    relay.forward(head + b"x", ("192.0.2.66", 6), 0.0)
    bind(relay, relay.grant(SESSION, BERT, ANNA), AWAY, 0.0)
    relay.forward(head, HOME, 0.0)
    relay.forward(head + bytes(d.PATH_SIZES[-1] + 1), HOME, 0.0)
    assert relay.dropped == dict.fromkeys(DROPS, 0) | {"unbound": 2, "alone": 1, "size": 2}
    assert relay.datagrams == 0
    largest = head + bytes(d.PATH_SIZES[-1])
    assert relay.forward(largest, HOME, 0.0) is not None
    relay.congested(largest)
    assert (relay.datagrams, relay.bytes, relay.dropped["congested"]) == (0, 0, 1)


def test_an_edge_has_its_rate_and_burst(clock: Clock) -> None:
    relay = Relay(SECRET, rate=8.0, wall=clock.wall)  # a megabyte a second
    head = both(relay, 0.0)
    frame = head + bytes(1000 - len(head))
    burst = sum(relay.forward(frame, HOME, 0.0) is not None for _ in range(2000))
    assert burst == pytest.approx(d.RELAY_BURST_SECONDS * 1e6 / 1000, abs=2)
    later = sum(relay.forward(frame, AWAY, 10.0 + i / 2000) is not None for i in range(20000))
    assert later == pytest.approx(10_000 + burst, abs=2)
    assert relay.dropped["edge rate"] == 22000 - relay.datagrams


def test_all_edges_share_the_total_rate(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "RELAY_TOTAL_MBIT_PER_S", 8.0)
    relay = Relay(SECRET, rate=8.0, wall=clock.wall)
    heads = [both(relay, 0.0, bytes([number]) * 32) for number in range(4)]
    for i in range(8000):
        relay.forward(heads[i % 4] + bytes(991), HOME, i / 4000)
    assert relay.bytes == pytest.approx(2e6 + d.RELAY_BURST_SECONDS * 1e6, rel=0.01)
    assert relay.dropped["total rate"] > 0
    assert relay.dropped["edge rate"] == 0


def test_a_session_has_its_budget_and_is_told(clock: Clock) -> None:
    relay = Relay(SECRET, budget=1e6 / 2**30, wall=clock.wall)
    head = both(relay, 0.0)
    other = both(relay, 0.0, b"o" * 32)
    for i in range(2000):
        relay.forward(head + bytes(991), HOME, i / 1000)
    assert relay.bytes == 1_000_000 == relay.relayed(SESSION)
    assert relay.dropped["budget"] == 1000
    assert bind(relay, relay.grant(SESSION, ANNA, BERT), HOME, 30.0).state is State.SPENT
    (line,) = [action.line for action in relay.tick(40.0) if isinstance(action, Log)]
    assert "has used up the 0.95 MiB" in line
    assert relay.tick(41.0) == []
    assert relay.forward(other + b"x", HOME, 41.0) is not None


def test_a_budget_outlives_its_flows_and_counts_anew_after_a_day(clock: Clock) -> None:
    relay = Relay(SECRET, budget=1000 / 2**30, wall=clock.wall)
    relay.forward(both(relay, 0.0) + bytes(991), HOME, 0.0)
    relay.tick(2 * d.RELAY_FORGET)
    assert relay.flows == 0
    now = d.RELAY_BUDGET_SECONDS - 1
    assert bind(relay, relay.grant(SESSION, ANNA, BERT), HOME, now).state is State.SPENT
    relay.tick(now + 1)
    head = both(relay, now + 1)
    assert relay.forward(head + bytes(991), HOME, now + 1) is not None
    assert relay.forward(head + bytes(991), HOME, now + 1) is None


def test_a_relay_without_a_budget_forwards_nothing(clock: Clock) -> None:
    relay = Relay(SECRET, budget=0, wall=clock.wall)
    anna = relay.grant(SESSION, ANNA, BERT)
    assert bind(relay, anna, HOME, 0.0).state is State.SPENT
    assert bind(relay, relay.grant(SESSION, BERT, ANNA), AWAY, 0.0).state is State.SPENT
    assert relay.forward(frame_head(anna.flow) + b"x", HOME, 0.0) is None


def test_flows_are_bounded_per_address_and_in_all(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d, "RELAY_FLOWS", 5)
    monkeypatch.setattr(d, "RELAY_FLOWS_PER_ADDRESS", 3)

    def state(number: int, source: Address) -> State:
        return bind(relay, relay.grant(bytes([number]) * 32, ANNA, BERT), source, 0.0).state

    assert [state(i, (HOME[0], 1000 + i)) for i in range(4)] == [State.ALONE] * 3 + [State.BUSY]
    assert state(0, (HOME[0], 1000)) is State.ALONE  # a refresh is no new one
    assert [state(10 + i, AWAY) for i in range(3)] == [State.ALONE] * 2 + [State.BUSY]
    relay.tick(d.RELAY_FORGET)
    assert state(20, AWAY) is State.ALONE


def test_challenges_to_one_network_have_a_rate(relay: Relay) -> None:
    message = Bind(b"f" * 8, 0, b"t" * 8).encode()

    def challenges(source: Address, now: float) -> int:
        return sum(relay.binding(message, WIRE, source, now) is not None for _ in range(1000))

    assert challenges(HOME, 0.0) == d.RELAY_CHALLENGES_BURST
    assert challenges(AWAY, 0.0) == d.RELAY_CHALLENGES_BURST
    assert challenges(HOME, 1.0) == d.RELAY_CHALLENGES_PER_SECOND
    assert challenges(("127.0.0.1", 9), 0.0) == 1000  # nobody else can feign it


def test_remembered_sessions_are_bounded(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "RELAY_SESSIONS", 8)
    for number in range(50):
        now = 2 * d.RELAY_FORGET * number
        relay.tick(now)
        bind(relay, relay.grant(bytes([number]) * 32, ANNA, BERT), HOME, now)
    assert len(relay._sessions) <= 8


# --- both machines against each other --------------------------------------------------------


class Net:
    """A member's binding and the relay, 50 ms apart, with loss; the relay can be down."""

    def __init__(self, clock: Clock, seed: int, loss: float) -> None:
        self.clock = clock
        self.relay: Relay | None = Relay(SECRET, wall=clock.wall)
        self.source = HOME
        grant = self.relay.grant(SESSION, ANNA, BERT)
        self.binding = Binding(grant, clock.now, Random(seed).randbytes)
        self.sent = 0
        self._loss = loss
        self._random = Random(seed)
        self._count = itertools.count()
        self._events: list[tuple[float, int, bool, bytes, Address]] = []

    def run(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while True:
            due = self.binding.timer()
            arriving = self._events[0][0] if self._events else until
            self.clock.now = now = max(self.clock.now, min(due, arriving, until))
            if now >= until:
                return
            if arriving <= due:
                _, _, up, datagram, source = heapq.heappop(self._events)
                self._arrive(up, datagram, source, now)
            self._send(self.binding.poll(now), now)

    def _arrive(self, up: bool, datagram: bytes, source: Address, now: float) -> None:
        if not up:
            if source == self.source:
                try:
                    self._send(self.binding.receive(datagram, now), now)
                except ValueError:  # an answer to something long answered
                    return
        elif self.relay is not None:
            answer = self.relay.binding(datagram, WIRE, source, now)
            assert answer is not None
            self._post(False, answer, source, now)

    def _send(self, messages: list[bytes], now: float) -> None:
        self.sent += len(messages)
        for message in messages:
            self._post(True, message, self.source, now)

    def _post(self, up: bool, datagram: bytes, source: Address, now: float) -> None:
        if self._random.random() >= self._loss:
            heapq.heappush(self._events, (now + 0.05, next(self._count), up, datagram, source))


def test_a_binding_takes_two_round_trips_and_is_refreshed_every_ten_seconds(clock: Clock) -> None:
    net = Net(clock, 0, 0.0)
    net.run(0.21)
    assert net.binding.bound
    assert net.binding.state is State.ALONE
    assert net.binding.rtt == pytest.approx(0.1)
    assert net.binding.observed == HOME
    assert net.sent == 2
    net.run(10 * (d.RELAY_REFRESH + 0.1))
    assert net.sent == 2 + 10
    assert net.binding.bound


@pytest.mark.parametrize("seed", range(20))
def test_a_binding_survives_loss(clock: Clock, seed: int) -> None:
    net = Net(clock, seed, 0.3)
    net.run(20.0)
    assert net.binding.state is State.ALONE
    net.run(500.0)
    assert net.binding.state is State.ALONE
    assert net.relay is not None
    assert net.relay.flows == 1
    assert net.sent < 300


def test_a_new_source_address_is_noticed_and_bound(clock: Clock) -> None:
    net = Net(clock, 1, 0.0)
    net.run(1.0)
    net.source = AWAY
    net.run(11.0)
    assert net.binding.observed == AWAY
    assert net.binding.bound


def test_a_restart_of_the_relay_is_noticed_and_bound(clock: Clock) -> None:
    net = Net(clock, 2, 0.0)
    net.run(1.0)
    boot = net.binding.boot
    net.relay = None
    net.run(15.0)
    lost = not net.binding.bound
    net.relay = again = Relay(SECRET, wall=clock.wall)
    net.run(d.RELAY_AGAIN_MOST + 1.0)
    assert lost
    assert net.binding.bound
    assert net.binding.boot not in (None, boot)
    assert again.flows == 1


def test_asking_at_once_costs_one_message_while_one_is_on_its_way(clock: Clock) -> None:
    net = Net(clock, 3, 0.0)
    net.run(1.0)
    sent = net.sent
    for _ in range(100):
        net.binding.refresh(clock.now)
        net.run(0.0005)
    assert net.sent == sent + 1


def test_a_grant_that_expired_is_refused_until_it_is_renewed(clock: Clock) -> None:
    net = Net(clock, 4, 0.0)
    net.run(1.0)
    net.run(d.RELAY_GRANT_SECONDS + 15.0)
    assert net.binding.state is State.REFUSED
    assert not net.binding.bound
    assert net.relay is not None
    net.binding.renew(net.relay.grant(SESSION, ANNA, BERT), clock.now)
    net.run(1.0)
    assert net.binding.bound


def test_a_relay_that_is_never_satisfied_makes_nobody_send_faster(clock: Clock) -> None:
    grant = Relay(SECRET).grant(SESSION, ANNA, BERT)
    binding = Binding(grant, 0.0)
    now, sent = 0.0, 0
    waiting: list[bytes] = []
    while now < 100.0:
        waiting += binding.poll(now)
        sent += len(waiting)
        answers, waiting = waiting, []
        for asked in answers:
            question = decode_binding(asked)
            challenge = Challenge(grant.flow, grant.side, question.transaction, b"c" * 16)
            waiting += binding.receive(challenge.encode(), now)
        now += 0.001
    assert sent < 100


def test_answers_to_what_was_not_asked_are_nothing(clock: Clock) -> None:
    binding = Binding(Relay(SECRET).grant(SESSION, ANNA, BERT), 0.0)
    (asked,) = binding.poll(0.0)
    question = decode_binding(asked)
    for forged in (
        Bound(question.flow, question.side, b"x" * 8, b"b" * 8, State.BOTH, None),
        Bound(question.flow, 1 - question.side, question.transaction, b"b" * 8, State.BOTH, None),
        Bound(b"x" * 8, question.side, question.transaction, b"b" * 8, State.BOTH, None),
        question,
    ):
        with pytest.raises(ValueError):  # noqa: PT011 (every parser's only error)
            binding.receive(forged.encode(), 0.0)
    assert binding.state is None
