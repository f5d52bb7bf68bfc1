"""The rendezvous' memory in virtual time."""

from collections import defaultdict

import pytest

from kafila import defaults as d
from kafila.messages import Message
from kafila.probe.report import session_id
from kafila.rendezvous.actions import Action, Close, Log, Send
from kafila.rendezvous.allowed import Allowed
from kafila.rendezvous.messages import (
    Arrived,
    AskRelays,
    Drop,
    End,
    Ended,
    Enter,
    Entered,
    Gone,
    Join,
    Joined,
    Leave,
    Left,
    Mail,
    Notice,
    Open,
    Opened,
    Pass,
    Passed,
    Ping,
    Pong,
    Present,
    Refused,
    Relays,
    pass_proof,
)
from kafila.rendezvous.registry import Registry
from kafila.rendezvous.relay import Relay

RENDEZVOUS = b"r" * 32


def key(name: str) -> bytes:
    return name.encode().ljust(32, b".")


class World:
    """A registry with named clients: what each was sent, who was closed."""

    def __init__(self, allowed: Allowed | None = None) -> None:
        self.relay = Relay(bytes(32), wall=lambda: 1.8e9)
        self.registry = Registry(RENDEZVOUS, self.relay, allowed)
        self.now = 1000.0
        self.inbox: dict[str, list[Notice]] = defaultdict(list)
        self.closed: dict[str, str] = {}
        self.log: list[str] = []
        self._names: list[str] = []

    def connect(self, name: str, who: str | None = None, host: str = "203.0.113.7") -> None:
        self._names.append(name)
        self._do(self.registry.connected(len(self._names), key(who or name), host, self.now))

    def say(self, name: str, message: Message | bytes) -> list[Notice]:
        """Send it; what the sender has been sent since the call before."""
        data = message if isinstance(message, bytes) else message.encode()
        self._do(self.registry.received(self._names.index(name) + 1, data, self.now))
        return self.take(name)

    def leave(self, name: str) -> None:
        number = self._names.index(name) + 1
        self._do(self.registry.disconnected(number, self.now, f"{name} closed the connection"))

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self._do(self.registry.tick(self.now))

    def take(self, name: str) -> list[Notice]:
        return self.inbox.pop(name, [])

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.inbox[self._names[action.connection - 1]].append(action.message)
                case Close():
                    self.closed[self._names[action.connection - 1]] = action.reason
                case Log():
                    self.log.append(action.line)


@pytest.fixture
def world() -> World:
    return World()


def refusal(notices: list[Notice]) -> Refused:
    assert len(notices) == 1
    assert isinstance(notices[0], Refused)
    return notices[0]


def hosted(world: World, members: int = 3) -> int:
    world.connect("host")
    (opened,) = world.say("host", Open(members=members))
    assert isinstance(opened, Opened)
    return opened.number


def joined(world: World, name: str, number: int) -> int:
    world.connect(name)
    (answer,) = world.say(name, Join(number=number))
    assert isinstance(answer, Joined)
    assert answer.host == key("host").hex()
    return answer.attempt


def test_mail_passes_between_host_and_each_joiner(world: World) -> None:
    number = hosted(world)
    anna, bert = joined(world, "anna", number), joined(world, "bert", number)
    assert world.take("host") == [
        Arrived(attempt=anna, key=key("anna").hex()),
        Arrived(attempt=bert, key=key("bert").hex()),
    ]
    world.say("anna", Mail(attempt=anna, body="from anna"))
    assert world.take("host") == [Mail(attempt=anna, body="from anna")]
    world.say("host", Mail(attempt=bert, body="to bert"))
    assert world.take("bert") == [Mail(attempt=bert, body="to bert")]
    assert world.take("anna") == []


def test_a_joiner_cannot_write_in_anothers_name(world: World) -> None:
    number = hosted(world)
    anna, _ = joined(world, "anna", number), joined(world, "bert", number)
    world.take("host")
    answer = refusal(world.say("bert", Mail(attempt=anna, body="as anna")))
    assert answer.why == "malformed"
    assert not any(isinstance(notice, Mail) for notice in world.take("host"))
    assert "bert" in world.closed


def test_numbers_are_counted_up_and_not_reused_soon(world: World) -> None:
    first = hosted(world)
    world.leave("host")
    world.connect("again")
    (opened,) = world.say("again", Open(members=2))
    assert isinstance(opened, Opened)
    assert opened.number == first + 1


def test_unknown_and_past_sessions_are_told_apart(world: World) -> None:
    number = hosted(world)
    world.connect("lost")
    answer = refusal(world.say("lost", Join(number=number + 1)))
    assert answer.why == "unknown"
    assert f"no session {number + 1}" in answer.text
    assert world.say("host", End(text="all 3 members reported")) == [
        Ended(text="all 3 members reported")
    ]
    world.connect("late")
    answer = refusal(world.say("late", Join(number=number)))
    assert (answer.why, answer.text) == (
        "ended",
        f"session {number} is over: all 3 members reported",
    )


def test_a_host_that_leaves_ends_its_session(world: World) -> None:
    joined(world, "anna", hosted(world))
    world.leave("host")
    assert world.take("anna") == [Ended(text="its host has left")]
    assert "anna" in world.closed


def test_a_joiner_that_leaves_or_is_dropped(world: World) -> None:
    number = hosted(world)
    anna, bert = joined(world, "anna", number), joined(world, "bert", number)
    world.take("host")
    world.leave("anna")
    assert world.take("host") == [Left(attempt=anna)]
    assert world.say("host", Drop(attempt=bert)) == []
    assert "bert" in world.closed
    assert world.say("bert", Mail(attempt=bert, body="still here?")) == []
    world.leave("bert")
    assert world.take("host") == []
    assert joined(world, "anna again", number) > bert


def test_codes_expire_for_joining_and_then_for_good(world: World) -> None:
    number = hosted(world)
    anna = joined(world, "anna", number)
    world.take("host")
    world.wait(d.CODE_SECONDS)
    world.connect("late")
    assert "expired" in refusal(world.say("late", Join(number=number))).text
    world.say("anna", Mail(attempt=anna, body="my report"))
    assert world.take("host") == [Mail(attempt=anna, body="my report")]
    world.wait(d.COLLECT_SECONDS)
    assert world.take("host") == [Ended(text="its time ran out")]
    assert world.take("anna") == [Ended(text="its time ran out")]


def test_a_copied_identity_is_refused_while_the_first_lives(world: World) -> None:
    number = hosted(world)
    joined(world, "anna", number)
    world.connect("copy", "anna")
    assert world.take("anna") == [Ping()]
    assert world.say("copy", Join(number=number)) == []
    world.say("anna", Pong())
    answer = refusal(world.take("copy"))
    assert answer.why == "copied"
    assert "copied" in answer.text
    assert "copy" in world.closed
    assert "anna" not in world.closed
    assert any("connected twice" in line for line in world.log)


def test_a_restarted_member_takes_over_from_its_dead_connection(world: World) -> None:
    number = hosted(world)
    first = joined(world, "anna", number)
    world.take("host")
    world.connect("anna restarted", "anna")
    world.say("anna restarted", Join(number=number))
    world.wait(d.PROOF_OF_LIFE)
    assert "anna" in world.closed
    (answer,) = world.take("anna restarted")
    assert isinstance(answer, Joined)
    assert world.take("host") == [
        Left(attempt=first),
        Arrived(attempt=answer.attempt, key=key("anna").hex()),
    ]
    world.leave("anna")  # the shell reports it late
    assert world.take("host") == []


def test_a_newcomer_succeeds_at_once_when_the_first_leaves(world: World) -> None:
    number = hosted(world)
    joined(world, "anna", number)
    world.connect("anna restarted", "anna")
    world.connect("third", "anna")
    assert refusal(world.take("third")).why == "copied"
    world.leave("anna")
    (answer,) = world.say("anna restarted", Join(number=number))
    assert isinstance(answer, Joined)


def test_a_contested_newcomer_has_one_message_kept(world: World) -> None:
    """Every first request is answered before there is a second: more is no client of ours."""
    number = hosted(world)
    joined(world, "anna", number)
    world.connect("copy", "anna")
    assert world.say("copy", Join(number=number)) == []
    assert refusal(world.say("copy", Join(number=number))).why == "malformed"
    assert "copy" in world.closed
    world.wait(d.PROOF_OF_LIFE + 1)
    assert "anna" not in world.closed


def test_what_a_connection_may_say_in_all_is_bounded(world: World) -> None:
    number = hosted(world)
    anna = joined(world, "anna", number)
    mail = Mail(attempt=anna, body="x" * d.MAIL_LIMIT)
    for _ in range(d.CLIENT_BYTES // d.MAIL_LIMIT + 1):
        world.now += 1
        if answers := world.say("anna", mail):
            break
    assert refusal(answers).why == "busy"
    assert "too much" in world.closed["anna"]


def test_a_member_may_stay_for_weeks(world: World) -> None:
    """The largest ring, the longest record, both said again as often as grants are renewed."""
    names = [f"m{number}" for number in range(d.MAX_MEMBERS)]
    record = "r" * d.RECORD_LIMIT
    world.connect("m0")
    for _ in range(int(28 * 24 * 3600 / (d.RELAY_GRANT_SECONDS / 2))):
        assert [type(each) for each in ask(world, "m0", names[1:3], names)] == [Relays]
        assert enter(world, "m0", record, names) == [Entered()]
        world.now += d.RELAY_GRANT_SECONDS / 2
    assert not world.closed


def test_a_contested_newcomer_that_leaves_is_forgotten(world: World) -> None:
    world.connect("anna")
    world.connect("copy", "anna")
    world.leave("copy")
    world.wait(d.PROOF_OF_LIFE + 1)
    assert "anna" not in world.closed


@pytest.mark.parametrize(
    ("data", "why", "words"),
    [
        (b"not json", "malformed", "malformed message"),
        (b'{"v":2,"kind":"open","members":3,"more":1}', "malformed", "more"),
        (b'{"v":2,"kind":"open","members":1000}', "malformed", "members"),
        (b'{"v":2,"kind":"open","members":"3"}', "malformed", "members"),
        (b'{"v":2,"kind":"opened","number":3,"expires_s":1}', "malformed", "kind"),
        (b'{"v":7,"kind":"something new"}', "version", "this member 7"),
        (b"[" * 60000, "malformed", "malformed"),
        (b'"' + b"x" * d.MESSAGE_LIMIT + b'"', "malformed", "bytes where"),
        (End(text="out of turn").encode(), "malformed", "out of turn"),
        (Mail(attempt=1, body="out of turn").encode(), "malformed", "out of turn"),
    ],
)
def test_bad_messages_are_refused_and_end_the_connection(
    world: World, data: bytes, why: str, words: str
) -> None:
    world.connect("anna")
    answer = refusal(world.say("anna", data))
    assert answer.why == why
    assert words in answer.text
    assert "anna" in world.closed
    assert world.say("anna", Open(members=2)) == []


def test_one_connection_has_one_role(world: World) -> None:
    number = hosted(world)
    assert refusal(world.say("host", Join(number=number))).why == "malformed"


def test_a_flood_of_messages_ends_the_connection(world: World) -> None:
    world.connect("anna")
    answers = [world.say("anna", Pong()) for _ in range(int(d.REQUESTS_BURST) + 1)]
    assert answers[:-1] == [[]] * int(d.REQUESTS_BURST)
    assert refusal(answers[-1]).why == "busy"


def test_messages_at_a_fair_rate_go_on_for_ever(world: World) -> None:
    number = hosted(world)
    anna = joined(world, "anna", number)
    for _ in range(5 * int(d.REQUESTS_BURST)):
        world.now += 1 / d.REQUESTS_PER_SECOND
        world.say("anna", Mail(attempt=anna, body="tick"))
    assert "anna" not in world.closed


def test_limits_per_address(world: World) -> None:
    for i in range(d.SESSIONS_PER_ADDRESS):
        world.connect(f"host {i}")
        assert isinstance(world.say(f"host {i}", Open(members=2))[0], Opened)
    world.connect("one more")
    assert refusal(world.say("one more", Open(members=2))).why == "busy"
    world.connect("elsewhere", host="198.51.100.1")
    assert isinstance(world.say("elsewhere", Open(members=2))[0], Opened)
    world.leave("host 0")
    world.connect("later")
    assert isinstance(world.say("later", Open(members=2))[0], Opened)


def test_connections_per_address_are_bounded(world: World) -> None:
    for i in range(d.CLIENTS_PER_ADDRESS):
        world.connect(f"client {i}", host="2001:db8::1")
    world.connect("same network", host="2001:db8::2")
    assert refusal(world.take("same network")).why == "busy"
    world.connect("other network", host="2001:db8:0:1::1")
    assert world.take("other network") == []


def test_guessing_numbers_is_slow(world: World) -> None:
    for i in range(int(d.JOINS_BURST)):
        world.connect(f"guess {i}")
        assert refusal(world.say(f"guess {i}", Join(number=5000 + i))).why == "unknown"
    world.connect("next")
    assert refusal(world.say("next", Join(number=1))).why == "busy"
    world.wait(5)
    world.connect("after a while")
    assert refusal(world.say("after a while", Join(number=1))).why == "unknown"


def test_a_connection_without_purpose_is_closed(world: World) -> None:
    world.connect("idle")
    number = hosted(world)
    joined(world, "anna", number)
    world.wait(d.IDLE_CLIENT)
    assert set(world.closed) == {"idle"}


RING = ["anna", "bert", "cleo"]


def enter(world: World, name: str, record: str, members: list[str] = RING) -> list[Notice]:
    keys = tuple(key(member).hex() for member in members)
    return world.say(name, Enter(session=session_id(keys), members=keys, record=record))


def test_members_of_a_plan_are_introduced_as_they_come_and_go(world: World) -> None:
    for name in RING:
        world.connect(name)
    assert enter(world, "anna", "record a") == [Entered()]
    assert enter(world, "bert", "record b") == [
        Entered(),
        Present(key=key("anna").hex(), record="record a"),
    ]
    assert world.take("anna") == [Present(key=key("bert").hex(), record="record b")]
    world.leave("bert")
    assert world.take("anna") == [Gone(key=key("bert").hex())]
    world.connect("bert again", "bert")
    world.take("anna")
    assert len(enter(world, "bert again", "record b2")) == 2
    assert world.take("anna") == [Present(key=key("bert").hex(), record="record b2")]
    assert len(enter(world, "cleo", "record c")) == 3


def test_who_leaves_over_a_misfit_says_so_to_the_others(world: World) -> None:
    for name in RING:
        world.connect(name)
        enter(world, name, f"record of {name}")
    for name in RING:
        world.take(name)
    assert world.say("bert", Leave()) == []
    assert world.take("anna") == [Gone(key=key("bert").hex(), misfit=True)]
    assert world.take("cleo") == [Gone(key=key("bert").hex(), misfit=True)]
    world.leave("bert")  # nobody is told twice
    assert world.take("anna") == []
    world.connect("host")
    assert refusal(world.say("host", Leave())).why == "malformed"


def test_a_new_record_replaces_the_old_one(world: World) -> None:
    world.connect("anna")
    world.connect("bert")
    enter(world, "anna", "record a")
    enter(world, "bert", "record b")
    world.take("anna")
    assert enter(world, "bert", "moved") == [Entered()]
    assert world.take("anna") == [Present(key=key("bert").hex(), record="moved")]


def test_only_members_of_the_named_set_enter(world: World) -> None:
    world.connect("stranger")
    answer = refusal(enter(world, "stranger", "record"))
    assert answer.why == "members"
    assert "not among" in answer.text
    world.connect("anna")
    wrong = Enter(session="0" * 64, members=(key("anna").hex(),), record="record")
    assert refusal(world.say("anna", wrong)).why == "members"
    world.connect("bert")
    twice = Enter(
        session=session_id([key("bert").hex()] * 2), members=(key("bert").hex(),) * 2, record="r"
    )
    assert refusal(world.say("bert", twice)).why == "members"


def test_a_ring_that_everyone_left_is_forgotten(world: World) -> None:
    world.connect("anna")
    enter(world, "anna", "record a")
    world.leave("anna")
    world.connect("bert")
    assert enter(world, "bert", "record b") == [Entered()]


def test_the_end_of_a_session_is_one_readable_line(world: World) -> None:
    number = hosted(world)
    joined(world, "anna", number)
    joined(world, "bert", number)
    world.wait(200)
    world.say("host", End(text="all its 3 members reported"))
    assert world.log[-1] == (
        f"session {number} is over after 3 min: all its 3 members reported "
        "(3 members were expected, 2 keys joined)"
    )


def test_the_end_of_a_ring_is_one_readable_line(world: World) -> None:
    for name in ("anna", "bert"):
        world.connect(name)
        enter(world, name, f"record of {name}")
    world.wait(2 * 3600 + 300)
    world.leave("anna")
    assert "left (1 of 3)" in world.log[-1]
    world.leave("bert")
    session = session_id([key(member).hex() for member in RING])
    assert world.log[-1] == (
        f"ring {session[:8]} is over after 2 h 05 min: 2 of 3 members came, 0.00 MiB relayed; "
        "the last one: bert closed the connection"
    )


def ask(world: World, name: str, neighbours: list[str], members: list[str] = RING) -> list[Notice]:
    keys = tuple(key(member).hex() for member in members)
    others = tuple(key(neighbour).hex() for neighbour in neighbours)
    return world.say(name, AskRelays(session=session_id(keys), members=keys, neighbours=others))


def test_members_are_granted_the_two_ends_of_their_flow(world: World) -> None:
    for name in RING:
        world.connect(name)
    (of_anna,) = ask(world, "anna", ["bert", "cleo"])
    (of_bert,) = ask(world, "bert", ["anna"])
    assert isinstance(of_anna, Relays)
    assert isinstance(of_bert, Relays)
    assert [grant.key for grant in of_anna.grants] == [key("bert").hex(), key("cleo").hex()]
    there, back = of_anna.grants[0], of_bert.grants[0]
    assert there.flow == back.flow != of_anna.grants[1].flow
    assert (there.side, back.side) == (0, 1)
    assert there.token != back.token
    assert there.expires == 1.8e9 + d.RELAY_GRANT_SECONDS
    assert enter(world, "anna", "record a") == [Entered()]  # and after it, for newer ones
    assert isinstance(ask(world, "anna", ["bert"])[0], Relays)


@pytest.mark.parametrize(
    ("neighbours", "members"),
    [
        (["bert"], ["bert", "cleo"]),  # not one of them
        (["emil"], RING),
        (["anna"], RING),
        (["bert", "bert"], RING),
    ],
)
def test_grants_are_for_members_and_their_edges_only(
    world: World, neighbours: list[str], members: list[str]
) -> None:
    world.connect("anna")
    assert refusal(ask(world, "anna", neighbours, members)).why == "members"
    assert "anna" in world.closed


def test_a_connection_serves_one_plan(world: World) -> None:
    world.connect("anna")
    ask(world, "anna", ["bert"])
    assert "one plan" in refusal(enter(world, "anna", "record", ["anna", "dora"])).text
    world.connect("again", "anna")
    world.connect("host")
    world.say("host", Open(members=2))
    keys = (key("host").hex(), key("bert").hex())
    request = AskRelays(session=session_id(keys), members=keys, neighbours=keys[1:])
    assert refusal(world.say("host", request)).why == "malformed"


def test_who_said_leave_may_come_again_on_the_same_connection(world: World) -> None:
    world.connect("anna")
    enter(world, "anna", "record")
    world.say("anna", Leave())
    assert enter(world, "anna", "record") == [Entered()]


# --- a private rendezvous --------------------------------------------------------------------

TOKEN = "a-long-enough-secret"


@pytest.fixture
def private() -> World:
    return World(Allowed(frozenset([key("anna")]), (TOKEN, "another-secret-of-it")))


def test_a_private_rendezvous_serves_the_keys_of_its_list(private: World) -> None:
    private.connect("anna")
    assert isinstance(private.say("anna", Open(members=2))[0], Opened)


@pytest.mark.parametrize("request_", [Open(members=2), Join(number=1)])
def test_everybody_else_is_refused_in_clear_words(private: World, request_: Message) -> None:
    private.connect("bert")
    answer = refusal(private.say("bert", request_))
    assert answer.why == "private"
    assert key("bert").hex() in answer.text
    assert "KAFILA_TOKEN" in answer.text
    assert "bert" in private.closed


def test_its_keeper_reads_whom_it_refuses(private: World) -> None:
    private.connect("bert")
    private.say("bert", Open(members=2))
    private.connect("cleo")
    private.say("cleo", Pass(proof="0" * 64))
    private.connect("dora")
    private.wait(d.STEP_SECONDS)
    for name, why in (
        ("bert", "not on the list"),
        ("cleo", "its token is none of ours"),
        ("dora", "not on the list"),
    ):
        (line,) = (line for line in private.log if key(name).hex() in line)
        assert line.startswith("refused ")
        assert line.endswith(why)


def test_a_flood_of_strangers_does_not_fill_the_log(private: World) -> None:
    count = 500
    for number in range(count):
        private.connect(f"s{number}")
        private.say(f"s{number}", Open(members=2))
    told = [line for line in private.log if "refused" in line]
    assert len(told) <= d.REFUSALS_BURST + 1
    private.wait(2 / d.REFUSALS_PER_SECOND)
    private.connect("late")
    private.say("late", Open(members=2))
    assert private.log[-1].endswith(f"({count - len(told)} more since the last such line)")


def test_strangers_get_no_grant_and_no_introduction(private: World) -> None:
    for name in ("bert", "cleo"):
        private.connect(name)
    assert refusal(ask(private, "bert", ["anna"])).why == "private"
    assert refusal(enter(private, "cleo", "record")).why == "private"


def test_a_token_lets_its_holder_in(private: World) -> None:
    private.connect("bert")
    proof = pass_proof(TOKEN, RENDEZVOUS, key("bert"))
    assert private.say("bert", Pass(proof=proof)) == [Passed()]
    assert isinstance(private.say("bert", Open(members=2))[0], Opened)
    assert all(TOKEN not in line for line in private.log)


@pytest.mark.parametrize(
    "proof",
    [
        pass_proof("a-long-enough-guess", RENDEZVOUS, key("bert")),
        pass_proof(TOKEN, b"x" * 32, key("bert")),  # for another rendezvous
        pass_proof(TOKEN, RENDEZVOUS, key("cleo")),  # overheard from another client
    ],
)
def test_a_token_is_proven_by_its_holder_to_this_rendezvous(private: World, proof: str) -> None:
    private.connect("bert")
    answer = refusal(private.say("bert", Pass(proof=proof)))
    assert answer.why == "private"
    assert "KAFILA_TOKEN" in answer.text


def test_a_stranger_takes_no_place_for_long(private: World) -> None:
    private.connect("anna")
    private.connect("bert")
    private.wait(d.STEP_SECONDS)
    assert set(private.closed) == {"bert"}


def test_an_open_rendezvous_does_not_mind_a_token(world: World) -> None:
    world.connect("bert")
    assert world.say("bert", Pass(proof="0" * 64)) == [Passed()]
    assert isinstance(world.say("bert", Open(members=2))[0], Opened)


def test_a_token_is_shown_before_anything_else(private: World) -> None:
    private.connect("anna")
    private.say("anna", Open(members=2))
    assert refusal(private.say("anna", Pass(proof="0" * 64))).why == "malformed"
