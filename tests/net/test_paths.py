"""The state machine of an edge in virtual time: two ends, NATs, a relay, and what goes wrong."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.defaults import (
    BIRTHDAY_GUESSES,
    BIRTHDAY_SOCKETS,
    CALL_SECONDS,
    MAX_PATHS,
    OPENER_TTLS,
    PATH_SIZES,
    PREPARE_ALONE,
    PREPARE_TIMEOUT,
    PUNCH_SECONDS,
    ROUND_AGAIN,
)
from kafila.net.checks import CHECK_SIZE, Check, CheckType
from kafila.net.path import Path
from kafila.net.paths import Close, Gather, PathChecks, Send, State
from kafila.net.punching import Punch
from kafila.net.relaying import FRAME_HEAD
from tests.net.virtual import EDGE, KEY, PLAN, Depends, End, Nat, Socket, World

ANNA, BERT = ("203.0.113.1", 5000), ("203.0.113.2", 5000)
HOME = ("198.51.100.1", "198.51.100.2")
Behaviour = tuple[Depends, Depends]
FULL: Behaviour = ("nothing", "nothing")
ADDRESS: Behaviour = ("nothing", "address")
PORT: Behaviour = ("nothing", "port")
DEPENDENT: Behaviour = ("port", "port")


def nats(one: Behaviour, other: Behaviour, *, drops: bool = True) -> tuple[Nat, Nat]:
    return Nat(HOME[0], *one, drops), Nat(HOME[1], *other, drops)


def checks_of(end: End) -> PathChecks:
    assert end.checks is not None
    return end.checks


def used(end: End) -> Path:
    path = checks_of(end).used
    assert path is not None
    return path


def both(world: World, *states: State) -> Callable[[], bool]:
    ends = (world.anna, world.bert)
    return lambda: all(end.checks is not None and end.checks.state in states for end in ends)


def straight(world: World) -> Callable[[float, str, Send], bool]:
    """Whether something goes through the relay, or is lost on a straight way."""
    return lambda now, sender, send: send.socket in (world.anna.relay, world.bert.relay)


def kept_busy(world: World) -> None:
    """QUIC has something to say at both ends, all the time."""
    for end in (world.anna, world.bert):
        if end.checks is not None:
            end.do(end.checks.busy(world.now))
    world.after(0.5, lambda: kept_busy(world))


# --- no relay ------------------------------------------------------------------------------------


def test_both_ends_find_the_path_in_two_round_trips() -> None:
    world = World()
    world.start(relayed=False)
    assert checks_of(world.anna).used is None
    assert world.run(9, both(world, State.DIRECT)) == pytest.approx(4 * world.delay)
    for end, address in ((world.anna, BERT), (world.bert, ANNA)):
        assert used(end).address == address
        assert used(end).rtt_us == 80_000
        assert checks_of(end).carrying == (used(end),)
        assert checks_of(end).why == ""
    world.run(1)
    assert used(world.anna).size == 8900


def test_a_peer_that_comes_late_is_answered_at_once() -> None:
    world = World()
    world.start(7, relayed=False)
    assert world.run(20, both(world, State.DIRECT)) < 7.3


def test_one_candidate_list_is_enough() -> None:
    """The other end learns the address from the PING that reaches it."""
    world = World()
    world.anna.start([BERT], client=True, relayed=False)
    world.bert.start([], client=False, relayed=False)
    world.run(1)
    assert used(world.bert).address == ANNA


@pytest.mark.parametrize(("largest", "size"), [(1199, None), (1200, 1200), (1500, 1452)])
def test_a_path_is_as_large_as_what_came_through(largest: int, size: int | None) -> None:
    world = World(largest=largest)
    world.start(relayed=False)
    world.run(3)
    for end in (world.anna, world.bert):
        path = checks_of(end).used
        assert (path and path.size) == size


def test_silence_is_asked_again_ever_more_slowly_and_with_little() -> None:
    world = World()
    world.passes = lambda now, sender, send: False
    world.anna.start([BERT], client=True, relayed=False)
    world.run(0.7)
    times = [round(time, 3) for time, _ in world.anna.sent]
    assert times == [0, 0.02, 0.06, 0.14, 0.3, 0.5, 0.7]
    world.run(60)
    assert all(len(send.datagram) == CHECK_SIZE for _, send in world.anna.sent)
    assert sum(time > 30 for time, _ in world.anna.sent) == 30


@given(st.sets(st.integers(1, 60), max_size=30))
def test_lost_checks_are_made_good(lost: set[int]) -> None:
    world = World()
    count = iter(range(1, 10**6))
    world.passes = lambda now, sender, send: next(count) not in lost
    world.start(relayed=False)
    assert world.run(20, both(world, State.DIRECT)) < 20


def test_the_shorter_path_wins_and_is_not_left_for_a_little() -> None:
    world = World()
    one, other, third = ("203.0.113.8", 1), ("203.0.113.9", 1), ("203.0.113.10", 1)
    anna = world.anna.start([one, other, third], client=True, relayed=False)

    def answer(address: tuple[str, int], delay: float) -> None:
        """The peer answers everything that went to this address, so much later."""
        for sent, send in world.anna.sent[:]:
            check = Check.decode(send.datagram)
            if send.address == address and check.type is CheckType.PING:
                world.anna.sent.remove((sent, send))
                pong = Check(CheckType.PONG, False, 1, EDGE, check.transaction, PLAN, check.size)
                arrival = max(world.now, sent + delay)
                datagram = pong.encode(KEY)
                world.now = arrival
                world.anna.do(
                    anna.receive(
                        datagram, Check.decode(datagram), world.anna.main, address, arrival
                    )
                    or []
                )

    world.anna.do(anna.poll(0.0))
    for _ in range(2):
        answer(one, 0.030)
    assert used(world.anna).address == one
    for _ in range(2):
        answer(other, 0.029)  # neither 5 ms nor a tenth better
    assert used(world.anna).address == one
    for _ in range(2):
        answer(third, 0.020)
    assert anna.find(world.anna.main, third) is used(world.anna)


def test_who_lacks_the_key_is_ignored() -> None:
    world = World()
    world.anna.start([BERT], client=True, relayed=False)
    world.bert.start([ANNA], client=False, relayed=False, key=b"m" * 32)
    world.run(5)
    for end in (world.anna, world.bert):
        assert checks_of(end).used is None
        assert not checks_of(end).present
    assert [path.address for path in checks_of(world.anna).paths] == [BERT]


def test_a_replay_from_elsewhere_gains_no_path() -> None:
    """Mallory repeats what bert sent. It is answered, never with more; it proves nothing."""
    mallory = ("203.0.113.66", 6)
    world = World()
    world.start(relayed=False)
    world.run(1)
    anna = checks_of(world.anna)
    for _, send in world.bert.sent:
        check = Check.decode(send.datagram)
        answers = anna.receive(send.datagram, check, world.anna.main, mallory, 1.0) or []
        sends = [each for each in answers if isinstance(each, Send) and each.address == mallory]
        assert sum(len(each.datagram) for each in sends) <= 2 * len(send.datagram)
        pongs = [each for each in sends if Check.decode(each.datagram).type is CheckType.PONG]
        assert len(pongs) == (check.type is CheckType.PING)
    path = anna.find(world.anna.main, mallory)
    assert path is None or not path.checked
    assert used(world.anna).address == BERT


def test_paths_do_not_grow_without_bound() -> None:
    world = World()
    world.start(relayed=False)
    world.run(0.01)
    ping = world.bert.sent[0][1].datagram
    for port in range(1, 100):
        checks_of(world.anna).receive(
            ping, Check.decode(ping), world.anna.main, ("203.0.113.66", port), 0.01
        )
    assert len(checks_of(world.anna).paths) == MAX_PATHS


@pytest.mark.parametrize("relayed", [True, False])
@pytest.mark.parametrize(
    "other", [{"plan": b"q" * 8, "protocol": 1}, {"plan": PLAN, "protocol": 2}]
)
def test_another_plan_or_version_is_told_to_both(
    other: dict[str, bytes | int], relayed: bool
) -> None:
    world = World()
    plan, protocol = bytes(other["plan"]), int(other["protocol"])
    straight_candidates = [] if relayed else [BERT]  # then the relay is the only way
    world.anna.start(straight_candidates, client=True, relayed=relayed)
    world.bert.start([], client=False, relayed=relayed, plan=plan, protocol=protocol)
    world.run(1)
    anna, bert = checks_of(world.anna), checks_of(world.bert)
    assert (anna.mismatch, bert.mismatch) == ((protocol, plan), (1, PLAN))
    assert anna.timer() is bert.timer() is None


def test_an_old_ping_of_another_plan_ends_nothing() -> None:
    """Only an answer to our own fresh PING says what the peer's plan is now."""
    world = World()
    world.anna.start([BERT], client=True, relayed=False)
    ping = Check(CheckType.PING, False, 1, EDGE, b"t" * 8, b"q" * 8, 1200).encode(KEY)
    checks_of(world.anna).receive(ping, Check.decode(ping), world.anna.main, BERT, 0.0)
    assert checks_of(world.anna).mismatch is None


def test_a_silent_path_is_kept_in_hope_where_there_is_no_other() -> None:
    world = World()
    world.start(relayed=False)
    world.passes = lambda now, sender, send: not 10 < now < 20
    world.run(19)
    for end in (world.anna, world.bert):
        assert checks_of(end).state is State.SEEKING
        assert checks_of(end).carrying == (used(end),)
    assert world.run(30, both(world, State.DIRECT)) < 22


# --- with a relay --------------------------------------------------------------------------------


def test_the_relayed_path_carries_at_once() -> None:
    world = World(*nats(PORT, PORT))
    world.start()
    anna = checks_of(world.anna)
    assert anna.state is State.RELAYED
    assert (used(world.anna).kind, used(world.anna).checked) == ("relayed", False)
    assert anna.why == "looking for a direct path"
    assert world.run(9, both(world, State.DIRECT)) < 0.5
    world.run(2)
    assert anna.relay is not None
    assert anna.relay.rtt_us == 160_000
    assert anna.relay.size == PATH_SIZES[-1] - FRAME_HEAD


MEASURED = {  # rows and columns: what the mapping and the filter depend on, each
    FULL: "direct direct direct direct direct",
    ADDRESS: "direct direct direct direct direct",
    PORT: "direct direct direct relay relay",
    ("address", "port"): "direct direct relay relay relay",
    DEPENDENT: "direct direct relay relay relay",
}


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("row", MEASURED)
def test_direct_wherever_real_nats_allow_it(row: Behaviour, drops: bool) -> None:
    """The matrix that was measured on kernels; NATs without a firewall are no worse."""
    outcomes = []
    for column in MEASURED:
        world = World(*nats(row, column, drops=drops))
        world.start()
        found = world.run(1, both(world, State.DIRECT)) < 1
        outcomes.append("direct" if found else "relay")
    assert " ".join(outcomes) == MEASURED[row]


@pytest.mark.parametrize("skew", [0.0, 0.02, 0.1, 0.3, 1.0])
def test_openers_and_the_barrier_bear_any_skew(skew: float) -> None:
    """NATs that let the first PING of the peer spoil the way out."""
    world = World(*nats(PORT, PORT, drops=False))
    world.start(skew)
    assert world.run(9, both(world, State.DIRECT)) < skew + 0.5


def test_openers_go_first_and_nobody_hears_them() -> None:
    world = World(*nats(PORT, PORT))
    world.start()
    world.run(0.05)
    straight_ones = [send for _, send in world.anna.sent if send.socket is world.anna.main]
    far = [send.ttl for send in straight_ones if send.address[0] == HOME[1]]
    assert far == list(OPENER_TTLS)
    near = [send.ttl for send in straight_ones if send.address == world.bert.main.address]
    assert near == [None] * 2  # a LAN address waits for nothing
    assert not any(Check.decode(s.datagram).type is CheckType.PONG for _, s in world.bert.sent)


def test_without_the_peers_word_punching_begins_late_but_does() -> None:
    world = World(*nats(PORT, PORT))
    relayed = straight(world)
    world.passes = lambda now, sender, send: not relayed(now, sender, send)
    world.start()
    assert PREPARE_ALONE < world.run(9, both(world, State.DIRECT)) < PREPARE_ALONE + 1


def test_a_lost_ready_costs_the_time_to_say_it_again() -> None:
    world = World(*nats(PORT, PORT))
    seen: list[float] = []

    def passes(now: float, sender: str, send: Send) -> bool:
        lost = Check.decode(send.datagram).type is CheckType.READY and len(seen) < 2
        if lost:
            seen.append(now)
        return not lost

    world.passes = passes
    world.start()
    assert world.run(9, both(world, State.DIRECT)) < PREPARE_TIMEOUT + 0.2
    assert len(seen) == 2


def test_words_are_not_answered_for_ever() -> None:
    world = World(*nats(DEPENDENT, DEPENDENT))
    world.start()
    world.run(60)
    kinds = [Check.decode(send.datagram).type for _, send in world.anna.sent]
    assert kinds.count(CheckType.READY) + kinds.count(CheckType.CALL) < 40


@pytest.mark.parametrize("pair", [(PORT, PORT), (DEPENDENT, ADDRESS), (FULL, DEPENDENT)])
def test_a_tenth_lost_changes_little(pair: tuple[Behaviour, Behaviour]) -> None:
    times = []
    for seed in range(50):
        world = World(*nats(*pair, drops=False), loss=0.1, seed=seed)
        world.start(skew=world.rng.random() / 5)
        times.append(world.run(60, both(world, State.DIRECT)))
    assert max(times) < 2
    assert sorted(times)[25] < 0.6


def test_a_tenth_lost_seldom_makes_a_path_suspect() -> None:
    world = World(*nats(PORT, PORT), loss=0.1)
    world.start()
    world.run(2)
    kept_busy(world)
    moves: list[State] = []

    def note() -> bool:
        state = checks_of(world.anna).state
        if not moves or moves[-1] is not state:
            moves.append(state)
        return False

    world.run(300, note)
    assert State.RELAYED not in moves
    assert len(moves) < 40


# --- when a path dies ----------------------------------------------------------------------------


def test_a_black_hole_is_noticed_bridged_and_left() -> None:
    world = World(*nats(PORT, PORT))
    world.start()
    world.run(2)
    kept_busy(world)
    relayed = straight(world)
    world.passes = lambda now, sender, send: not 10 < now < 20 or relayed(now, sender, send)
    assert world.run(30, both(world, State.SUSPECT)) < 11.5
    for end in (world.anna, world.bert):
        assert [path.kind for path in checks_of(end).carrying] == ["direct", "relayed"]
    assert world.run(30, both(world, State.RELAYED)) < 13.5
    assert checks_of(world.anna).why == "the direct path fell silent"
    world.run(19)
    assert checks_of(world.anna).why == "nothing came through, 1 try"
    assert world.run(40, both(world, State.DIRECT)) < 22


def test_a_black_hole_one_way_is_noticed_at_both_ends() -> None:
    world = World(*nats(PORT, PORT))
    world.start()
    world.run(2)
    relayed = straight(world)
    world.passes = lambda now, sender, send: (
        not 10 < now < 20 or sender == "bert" or relayed(now, sender, send)
    )
    kept_busy(world)
    assert world.run(30, both(world, State.RELAYED)) < 15
    assert world.run(40, both(world, State.DIRECT)) < 22


def test_the_peer_on_the_relay_is_a_hint() -> None:
    """It has noticed first; so look now, not at the next heartbeat."""
    world = World()
    world.start()
    world.run(30)
    anna = checks_of(world.anna)
    world.anna.sent.clear()
    assert anna.relay is not None
    world.anna.do(anna.over(anna.relay, world.now))
    assert [send.address for _, send in world.anna.sent] == [BERT]


@pytest.mark.parametrize("pair", [(PORT, PORT), (FULL, FULL), (DEPENDENT, ADDRESS)])
def test_a_rebooted_nat_costs_seconds(pair: tuple[Behaviour, Behaviour]) -> None:
    one, other = nats(*pair)
    world = World(one, other)
    world.start()
    world.run(2)
    kept_busy(world)
    world.run(10)
    one.reboot()
    world.run(15)
    assert both(world, State.DIRECT)()
    address = used(world.bert).address
    assert one.into(address[1], (HOME[1], 1)) or pair[0] != FULL
    world.run(60)
    assert both(world, State.DIRECT)()


def test_a_narrower_path_is_used_narrower() -> None:
    world = World()
    world.start()
    world.run(5)
    assert used(world.anna).size == 8900
    kept_busy(world)
    world.largest = 1452
    world.run(20)
    assert checks_of(world.anna).state is State.DIRECT
    assert used(world.anna).size == 1200


def test_every_retry_is_on_a_fresh_socket_and_later_and_leaves_none() -> None:
    world = World(*nats(DEPENDENT, DEPENDENT))
    asked: list[tuple[float, str]] = []
    for end in (world.anna, world.bert):

        def do(actions: list[object], end: End = end, perform: object = end.do) -> None:
            asked.extend((world.now, end.name) for each in actions if isinstance(each, Gather))
            assert callable(perform)
            perform(actions)

        end.do = do  # type: ignore[method-assign,assignment]
    world.start()
    world.run(300)
    times = [time for time, name in asked if name == "anna"]
    pauses = [late - early for early, late in itertools.pairwise(times)]
    round_ = PUNCH_SECONDS + 8 * world.delay
    for pause, wait in zip(pauses, (*ROUND_AGAIN[1:], ROUND_AGAIN[-1]), strict=False):
        assert pause == pytest.approx(round_ + wait, abs=0.5)
    assert len(times) == len([name for _, name in asked if name == "bert"]) >= 6
    assert checks_of(world.anna).why == f"nothing came through, {len(times) + 1} tries"
    for end in (world.anna, world.bert):
        assert list(end.sockets) == [end.main.address]


def test_without_a_fresh_socket_the_main_one_must_do() -> None:
    world = World(*nats(PORT, PORT))
    relayed = straight(world)
    world.passes = lambda now, sender, send: now > 7 or relayed(now, sender, send)
    for end in (world.anna, world.bert):
        end.opens = False
    world.start()
    assert world.run(40, both(world, State.DIRECT)) < 11
    assert list(world.anna.sockets) == [world.anna.main.address]


def test_a_call_that_nobody_answers_is_given_up() -> None:
    world = World(*nats(DEPENDENT, DEPENDENT))
    world.start()
    world.run(8)
    world.passes = lambda now, sender, send: Check.decode(send.datagram).type is not CheckType.CALL
    world.run(10.5)
    assert len(world.anna.sockets) == 2
    world.run(10.5 + CALL_SECONDS)
    assert len(world.anna.sockets) == 1
    assert world.bert.opened == 0


def test_a_new_record_is_tried_at_once() -> None:
    """The peer is behind another NAT now, and says so through the rendezvous."""
    world = World(*nats(PORT, PORT))
    relayed = straight(world)
    world.passes = lambda now, sender, send: now > 20 or relayed(now, sender, send)
    world.start()
    world.run(22)
    assert both(world, State.RELAYED)()
    moved = [*world.bert.candidates(world.bert.main), ("198.51.100.9", 99)]
    world.anna.do(checks_of(world.anna).update(moved, world.now))
    assert world.run(40, both(world, State.DIRECT)) < 23.5
    asked = world.anna.opened
    world.anna.do(checks_of(world.anna).update(moved, world.now))  # the same again: nothing
    world.run(world.now + 3)
    assert world.anna.opened == asked


def test_records_that_change_all_the_time_cost_little() -> None:
    """The rendezvous shows old records of the peer in turns."""
    world = World(*nats(DEPENDENT, DEPENDENT))
    world.start()
    world.run(20)
    opened = world.anna.opened
    for number in range(1000):
        record = [("198.51.100.2", 1000 + number % 2)]
        world.anna.do(checks_of(world.anna).update(record, world.now))
        world.run(world.now + 0.01)
    assert 5 <= world.anna.opened - opened <= 12
    assert len(world.anna.sockets) <= 3


def test_a_relay_that_is_gone_is_not_waited_for() -> None:
    """Without it the known addresses are asked on, and a path that comes back is found."""
    world = World(*nats(FULL, FULL))
    world.start()
    world.run(2)
    world.passes = lambda now, sender, send: (
        not 10 < now < 40 and not straight(world)(now, sender, send)
    )
    world.run(39)
    assert both(world, State.RELAYED)()
    assert world.run(60, both(world, State.DIRECT)) < 42


def test_the_relayed_path_carries_again_when_the_relay_is_back() -> None:
    world = World(*nats(DEPENDENT, DEPENDENT))
    world.start()
    world.passes = lambda now, sender, send: not 3 < now < 30
    anna = checks_of(world.anna)
    relay = anna.relay
    assert relay is not None

    def works(seconds: float) -> bool:
        world.run(seconds)
        return relay.alive

    assert [works(2), works(20), works(33)] == [True, False, True]
    assert anna.carrying == (relay,)


def test_a_socket_of_a_round_that_is_past_is_closed() -> None:
    world = World()
    world.start()
    world.run(1)
    late = Socket(("203.0.113.1", 7))
    assert Close(late) in checks_of(world.anna).gathered(1, late, [], world.now)


def test_a_peer_that_knocks_long_after_is_still_let_in() -> None:
    """From an address that was given up; the relay is gone too."""
    world = World(*nats(FULL, FULL))
    relayed = straight(world)
    world.passes = lambda now, sender, send: relayed(now, sender, send)
    world.start()
    world.run(7)
    assert both(world, State.RELAYED)()
    assert all(path.next > 1e9 for path in checks_of(world.anna).paths if path.kind == "direct")
    world.passes = lambda now, sender, send: not relayed(now, sender, send)
    address = world.bert.main.address
    ping = Check(CheckType.PING, False, 1, EDGE, b"t" * 8, PLAN, CHECK_SIZE).encode(KEY)
    actions = checks_of(world.anna).receive(
        ping, Check.decode(ping), world.anna.main, address, world.now
    )
    types = [Check.decode(a.datagram).type for a in actions or [] if isinstance(a, Send)]
    assert types[:2] == [CheckType.PONG, CheckType.PING]


def test_old_words_are_nothing_new() -> None:
    """A relay that plays back a session's READY and CALL, again and again, brings about no round:
    the next one comes when it would have come."""
    world, left = World(*nats(DEPENDENT, DEPENDENT)), World(*nats(DEPENDENT, DEPENDENT))
    for each in (world, left):
        each.start()
    while world.now < 200:
        world.run(world.now + 1)
        left.run(world.now)
        for end, other in ((world.anna, world.bert), (world.bert, world.anna)):
            for sent_at, send in list(other.sent):
                said = Check.decode(send.datagram).type in (CheckType.READY, CheckType.CALL)
                if said and sent_at < world.now - 1:
                    end.take(send.datagram, end.relay, ("", 0))
        assert (world.anna.opened, world.bert.opened) == (left.anna.opened, left.bert.opened)
    assert world.anna.opened == 5


words = st.tuples(
    st.sampled_from(CheckType),
    st.integers(0, 80) | st.integers(2**64 - 2, 2**64 - 1),
    st.sampled_from([0, 1, CHECK_SIZE, 1200]),
    st.lists(st.tuples(st.ip_addresses().map(str), st.integers(0, 65535)), max_size=8),
    st.sampled_from(["main", "relay"]),
    st.integers(1, 40),
    st.floats(0, 3),
)


@given(st.lists(words, max_size=60), st.sampled_from([FULL, PORT, DEPENDENT]))
@settings(max_examples=60)
def test_whatever_the_peer_says_costs_little(said: list[tuple], kind: Behaviour) -> None:  # type: ignore[type-arg]
    """A peer with the key that says anything at any time: paths and sockets stay few."""
    world = World(*nats(kind, kind))
    world.anna.start([BERT], client=True, punch=Punch(True, True, True, False, False))
    for type_, number, size, places, way, port, pause in said:
        transaction = number.to_bytes(8)
        check = Check(type_, False, 1, EDGE, transaction, PLAN, size)
        if type_ is CheckType.PING:
            check = Check(type_, False, 1, EDGE, transaction, PLAN, max(size, CHECK_SIZE))
        if type_ is CheckType.CALL:
            check = Check(type_, False, 1, EDGE, transaction, PLAN, size % 2, tuple(places))
        socket = world.anna.relay if way == "relay" else world.anna.main
        datagram = check.encode(KEY)
        world.anna.take(datagram, socket, (f"198.51.100.{port}", port))
        world.run(world.now + pause)
        assert len(checks_of(world.anna).paths) <= MAX_PATHS
        assert len(world.anna.sockets) <= 2 * (BIRTHDAY_SOCKETS + 2)
    before = len(world.anna.sent)
    world.run(world.now + 100)
    assert len(world.anna.sent) - before < 2 * BIRTHDAY_SOCKETS * len(ROUND_AGAIN) + 1000


# --- birthday ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [(PORT, DEPENDENT), (DEPENDENT, PORT)])
def test_birthday_finds_what_nothing_else_does(pair: tuple[Behaviour, Behaviour]) -> None:
    found = 0
    for seed in range(20):
        world = World(*nats(*pair), seed=seed)
        first, second = pair[0] is DEPENDENT, pair[1] is DEPENDENT
        world.start(
            0.05,
            punch_anna=Punch(True, first, True, second, True),
            punch_bert=Punch(True, second, True, first, True),
        )
        found += world.run(5, both(world, State.DIRECT)) < 5
        sent = [send for _, send in world.anna.sent + world.bert.sent if send.socket]
        assert len(sent) < BIRTHDAY_GUESSES + 3 * BIRTHDAY_SOCKETS
        world.run(25)
        assert len(world.anna.sockets) + len(world.bert.sockets) <= 6
    assert found >= 18


def test_birthday_is_for_those_who_asked_and_after_an_ordinary_round_otherwise() -> None:
    world = World(*nats(PORT, DEPENDENT))
    world.start(punch_anna=Punch(False, False, True, True, True))
    world.run(12)
    assert world.anna.opened <= 1
    assert checks_of(world.anna).why.startswith("one NAT maps by destination")
    world = World(*nats(DEPENDENT, PORT))
    world.start(punch_anna=Punch(True, True, True, False, False))  # it might work as it is
    world.run(6)
    assert world.anna.opened == 0
    world.run(12)
    assert world.anna.opened == 1 + BIRTHDAY_SOCKETS
