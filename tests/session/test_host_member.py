"""Host and member machines against each other, in virtual time and without a network."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem, UsageProblem
from kafila.probe.report import Nat, Workspace
from kafila.session import messages as say
from kafila.session.claims import _claims
from kafila.session.code import Code, parse_code
from kafila.session.collect import (
    Action,
    Compute,
    Drop,
    Helped,
    Host,
    HostState,
    Post,
    Tell,
)
from kafila.session.events import (
    Event,
    JoinerRefused,
    MemberJoined,
    MemberLeft,
    ReportReceived,
)
from kafila.session.host import answer_exchange
from kafila.session.member import Member, MemberState
from tests.session.samples import MANIFEST, report

CODE = parse_code("7-amber-falcon-canyon")
WRONG = parse_code("7-amber-falcon-river")
HOST = b"h" * 32
FULL = report("anna", HOST).model_copy(update={"upload": 5_000_000})


def key(name: str) -> bytes:
    return name.encode().ljust(32, b".")


@dataclass
class Joiner:
    name: str
    attempt: int
    member: Member
    error: KafilaError | None = None
    dropped: bool = False
    mail: deque[str] = field(default_factory=deque)


class World:
    """A host and joiners; the mail between them runs until nobody has anything to say."""

    def __init__(self, members: int = 3) -> None:
        self.now = 0.0
        own = report("hanna", HOST)
        self.host = Host(CODE, HOST, own, MANIFEST, members, self.now)
        self.events: list[Event] = []
        self.joiners: dict[int, Joiner] = {}
        self.bodies: list[str] = []

    def join(self, name: str, code: Code = CODE, who: str | None = None) -> Joiner:
        attempt = len(self.joiners) + 1
        joiner = Joiner(name, attempt, Member(code, key(who or name), name))
        self.joiners[attempt] = joiner
        self._do(self.host.arrived(attempt, key(who or name), self.now))
        greeting = joiner.member.greet(HOST)
        self.post(joiner, greeting)
        return joiner

    def post(self, joiner: Joiner, body: str) -> None:
        """The joiner mails; then everybody answers until it is quiet."""
        self.bodies.append(body)
        self._do(self.host.mail(joiner.attempt, body, self.now))
        for other in self.joiners.values():
            while other.mail and other.error is None:
                try:
                    answers = other.member.hear(other.mail.popleft())
                except KafilaError as error:
                    other.error = error
                else:
                    for answer in answers:
                        self.post(other, answer)

    def deliver(self, joiner: Joiner) -> None:
        self.post(joiner, joiner.member.report(report(joiner.name, joiner.member.key)))

    def state(self) -> HostState:
        return self.host.state

    def leave(self, joiner: Joiner) -> None:
        self._do(self.host.left(joiner.attempt, self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._do(self.host.tick(self.now))
        for joiner in self.joiners.values():
            while joiner.mail and joiner.error is None:
                try:
                    joiner.member.hear(joiner.mail.popleft())
                except KafilaError as error:
                    joiner.error = error

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Post():
                    self.bodies.append(action.body)
                    self.joiners[action.attempt].mail.append(action.body)
                case Drop():
                    self.joiners[action.attempt].dropped = True
                case Compute():
                    answer = answer_exchange(CODE, action)
                    self._do(self.host.computed(action.attempt, answer, self.now))
                case Tell():
                    self.events.append(action.event)


def test_a_whole_session() -> None:
    world = World()
    anna, bert = world.join("anna"), world.join("bert")
    for joiner in (anna, bert):
        assert joiner.member.state is MemberState.MEASURING
        assert joiner.member.welcome is not None
        assert joiner.member.welcome.manifest == MANIFEST
        assert joiner.member.welcome.host == "hanna"
    world.deliver(bert)
    assert bert.member.state is MemberState.DONE
    assert world.state() is HostState.COLLECTING
    world.deliver(anna)
    assert anna.member.received is not None
    assert anna.member.received.reports == 3
    assert world.state() is HostState.COMPLETE
    names = [r.name for r in world.host.reports.values()]
    assert names == ["hanna", "bert", "anna"]
    assert world.events == [
        MemberJoined("anna", 2, 3),
        MemberJoined("bert", 3, 3),
        ReportReceived("bert", 2, 3),
        ReportReceived("anna", 3, 3),
    ]


def test_no_mail_shows_words_names_or_reports() -> None:
    world = World(members=2)
    world.deliver(world.join("anna"))
    assert world.state() is HostState.COMPLETE
    everything = " ".join(world.bodies)
    for secret in (*CODE.words, "processor of anna", "bandwidth", "example/tiny"):
        assert secret not in everything


def test_a_wrong_code_is_refused_and_the_host_goes_on() -> None:
    world = World(members=2)
    guesser = world.join("guesser", WRONG)
    assert isinstance(guesser.error, IdentityProblem)
    assert "words of the code are wrong" in str(guesser.error)
    assert guesser.dropped
    assert world.host.failures == 1
    world.deliver(world.join("anna"))
    assert world.state() is HostState.COMPLETE


@pytest.mark.parametrize(("members", "allowed"), [(3, 10), (8, 16)])
def test_guesses_are_capped(members: int, allowed: int) -> None:
    world = World(members)
    for i in range(allowed):
        assert world.state() is HostState.COLLECTING
        assert isinstance(world.join(f"guesser-{i}", WRONG).error, IdentityProblem)
        world.wait(1)
    assert world.state() is HostState.VOID
    late = world.join("anna")
    assert isinstance(late.error, IdentityProblem)
    assert "void" in str(late.error)


def test_guesses_do_not_stop_members_who_have_all_joined() -> None:
    world = World(members=2)
    anna = world.join("anna")
    early = [world.join(f"guesser-{i}", WRONG) for i in range(12)]
    assert all("all joined" in str(guesser.error) for guesser in early)
    assert world.host.failures == 0
    world.deliver(anna)
    assert world.state() is HostState.COMPLETE


def test_a_surplus_member_is_refused_before_it_can_guess() -> None:
    world = World(members=3)
    world.join("anna"), world.join("bert")
    surplus = world.join("cleo")
    assert isinstance(surplus.error, IdentityProblem)
    assert "for 3 members and they have all joined" in str(surplus.error)
    assert surplus.member.state is MemberState.GREETED


def test_two_who_race_for_the_last_place() -> None:
    world = World(members=2)
    slow = exchanged(world, "slow")
    (proof,) = slow.member.hear(slow.mail.popleft())
    quick = world.join("quick")
    assert quick.member.state is MemberState.MEASURING
    world.post(slow, proof)
    assert isinstance(slow.error, IdentityProblem)
    assert "all joined" in str(slow.error)


def test_a_duplicate_name_is_refused_before_measuring() -> None:
    world = World(members=4)
    world.join("anna")
    for taken, who in (("anna", "another anna"), ("hanna", "another hanna")):
        twin = world.join(taken, who=who)
        assert isinstance(twin.error, UsageProblem)
        assert "--name" in str(twin.error)
        assert twin.member.state is MemberState.CONFIRMED
    assert sum(isinstance(event, JoinerRefused) for event in world.events) == 2
    assert world.join("anna2", who="another anna").error is None


def test_a_member_joins_again_and_replaces_its_earlier_attempt() -> None:
    world = World(members=2)
    first = world.join("anna")
    world.leave(first)
    assert world.events[-1] == MemberLeft("anna")
    again = world.join("anna")
    assert again.error is None
    world.deliver(again)
    assert world.state() is HostState.COMPLETE


def test_it_replaces_the_earlier_attempt_even_before_that_has_left() -> None:
    world = World(members=2)
    first = world.join("anna")
    again = world.join("anna")
    assert first.dropped
    assert again.member.state is MemberState.MEASURING


def test_a_place_is_free_again_when_its_member_left_without_a_report() -> None:
    world = World(members=2)
    world.leave(world.join("anna"))
    assert world.join("bert").member.state is MemberState.MEASURING


def test_a_reported_member_may_leave() -> None:
    world = World(members=3)
    anna = world.join("anna")
    world.deliver(anna)
    world.leave(anna)
    assert world.events[-1] == ReportReceived("anna", 2, 3)
    world.join("bert")
    assert "all joined" in str(world.join("cleo").error)


def test_a_member_that_reported_joins_again_and_replaces_its_report() -> None:
    world = World(members=3)
    world.deliver(world.join("anna"))
    again = world.join("anna2", who="anna")  # it measured anew, under another name
    assert world.host.reports[key("anna")].name == "anna"
    world.deliver(again)
    assert world.host.reports[key("anna")].name == "anna2"
    assert world.host.missing == 1
    world.deliver(world.join("bert"))
    assert world.state() is HostState.COMPLETE


def test_a_report_must_carry_the_members_own_key_and_name() -> None:
    for name, owner in (("anna", "bert"), ("bert", "anna")):
        world = World(members=2)
        anna = world.join("anna")
        world.post(anna, anna.member.report(report(name, key(owner))))
        assert isinstance(anna.error, NetworkProblem)
        assert "another key or name" in str(anna.error)
        assert world.host.missing == 1


HUGE = (1 << 53) - 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"overhead_us": HUGE}, f"overhead_us is {HUGE}, where at most {d.CLAIM_US} is believed"),
        ({"rtt_us": d.CLAIM_US + 1}, "rtt_us is"),
        ({"bandwidth": HUGE}, "bandwidth is"),
        ({"upload": HUGE}, "upload is"),
        ({"room_bytes": d.CLAIM_BYTES + 1}, "room_bytes is"),
        ({"workspace": Workspace(base_bytes=0, row_bytes=HUGE, context_bytes=0)}, "row_bytes is"),
        ({"rows_ns": {1: 5, HUGE: 6}}, "a number of rows is"),
        ({"rows_ns": {1: 5, 2: HUGE}}, "rows_ns of 2 is"),
        ({"pairs_us": {"bert": HUGE}}, "pairs_us of bert is"),
    ],
)
def test_numbers_that_no_machine_can_have_are_refused(
    change: dict[str, object], words: str
) -> None:
    world = World(members=2)
    anna = world.join("anna")
    claimed = report("anna", anna.member.key).model_copy(update=change)
    world.post(anna, anna.member.report(claimed))
    assert isinstance(anna.error, NetworkProblem)
    assert "the report cannot be true: " in str(anna.error)
    assert words in str(anna.error)
    assert world.host.missing == 1
    again = world.join("anna")
    world.deliver(again)
    assert world.state() is HostState.COMPLETE


def test_every_number_of_a_report_has_its_limit() -> None:
    """A field that is added to reports needs one too."""
    bounded = {what.split(" ")[0].split(".")[0] for what, *_ in _claims(FULL)}
    numbers = {name for name, value in FULL if type(value) is int}
    assert numbers - bounded == {"protocol", "flops", "flops_spread"}


def test_a_joiner_that_says_nothing_is_dropped() -> None:
    world = World()
    world.joiners[1] = Joiner("mute", 1, Member(CODE, key("mute"), "mute"))
    world._do(world.host.arrived(1, key("mute"), world.now))
    world.wait(d.STEP_SECONDS)
    assert world.joiners[1].dropped
    assert isinstance(world.joiners[1].error, NetworkProblem)


def test_the_code_expires_unless_everyone_has_joined() -> None:
    world = World(members=3)
    world.join("anna")
    world.wait(d.CODE_SECONDS)
    assert world.state() is HostState.EXPIRED

    world = World(members=2)
    anna = world.join("anna")
    world.wait(d.CODE_SECONDS)
    assert world.state() is HostState.COLLECTING
    world.deliver(anna)
    assert world.state() is HostState.COMPLETE

    world = World(members=2)
    world.join("anna")
    world.wait(d.CODE_SECONDS + d.COLLECT_SECONDS)
    assert world.state() is HostState.EXPIRED


def exchanged(world: World, name: str = "anna") -> Joiner:
    """A joiner whose member has sent its exchange and not yet heard the host's."""
    joiner = Joiner(name, 1, Member(CODE, key(name), name))
    world.joiners[1] = joiner
    world._do(world.host.arrived(1, key(name), world.now))
    world._do(world.host.mail(1, joiner.member.greet(HOST), world.now))
    return joiner


def test_a_host_that_does_not_know_the_words_is_refused() -> None:
    joiner = exchanged(World())
    joiner.member.hear(joiner.mail.popleft())
    assert joiner.member.state is MemberState.CONFIRMING
    with pytest.raises(IdentityProblem, match="does not know the code's words"):
        joiner.member.hear(say.confirm(b"x" * 32))


def test_a_rendezvous_that_swaps_a_key_gets_nobody_confirmed() -> None:
    world = World()
    joiner = Joiner("anna", 1, Member(CODE, key("anna"), "anna"))
    world.joiners[1] = joiner
    world._do(world.host.arrived(1, key("mallory"), world.now))
    world.post(joiner, joiner.member.greet(HOST))
    assert isinstance(joiner.error, IdentityProblem)
    assert world.host.failures == 1
    assert world.host.missing == 2


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no json",
        '{"v":2,"kind":"exchange","message":"41"}',
        say.exchange(b"A" + b"\xff" * 32),
        say.exchange(b"B" + bytes(32)),
        say.confirm(b"x" * 32),
        '{"v":2,"kind":"sealed","box":"AAAA"}',
        '{"v":2,"kind":"sealed","box":"***"}',
        '{"v":9,"kind":"exchange"}',
        "[" * 40000,
    ],
)
def test_nonsense_from_a_joiner_is_refused_in_words(body: str) -> None:
    world = World()
    joiner = Joiner("x", 1, Member(CODE, key("x"), "x"))
    world.joiners[1] = joiner
    world._do(world.host.arrived(1, key("x"), world.now))
    world.post(joiner, body)
    assert joiner.dropped
    assert isinstance(joiner.error, NetworkProblem | IdentityProblem)
    assert world.host.failures == 0


def test_a_refusal_in_the_clear_is_not_believed_after_confirmation() -> None:
    world = World()
    anna = world.join("anna")
    forged = say.body(say.Refused(why="code", text="forged"))
    with pytest.raises(NetworkProblem, match="do not arrive as it sent them"):
        anna.member.hear(forged)


def test_a_sealed_message_that_was_altered_ends_the_attempt() -> None:
    world = World()
    anna = world.join("anna")
    sealed = anna.member.report(report("anna", key("anna")))
    at = sealed.index('"box":"') + 20
    flipped = "A" if sealed[at] != "A" else "B"
    world.post(anna, sealed[:at] + flipped + sealed[at + 1 :])
    assert anna.dropped
    assert world.host.missing == 2


def test_a_member_of_another_version_is_told_both() -> None:
    world = World()
    joiner = Joiner("x", 1, Member(CODE, key("x"), "x"))
    world.joiners[1] = joiner
    world._do(world.host.arrived(1, key("x"), world.now))
    world.post(joiner, '{"v":9,"kind":"exchange"}')
    assert "protocol 2, this member 9" in str(joiner.error)


def test_host_and_member_help_each_other_while_it_measures() -> None:
    world = World(members=2)
    anna = world.join("anna")
    host = world.host
    assert host.helpers == {1}
    asked = host.mail(1, anna.member.help(say.Stand()), world.now)
    assert asked == [Helped(1, say.Stand())]
    standing = say.Standing(at="203.0.113.7:5000")
    world._do(host.help(1, standing))
    anna.member.hear(anna.mail.popleft())
    assert anna.member.helping == [standing]
    world.deliver(anna)
    assert world.state() is HostState.COMPLETE
    world.leave(anna)
    assert host.helpers == set()
    assert host.help(1, standing) == []


def test_help_before_the_welcome_is_refused() -> None:
    world = World()
    joiner = exchanged(world)
    (proof,) = joiner.member.hear(joiner.mail.popleft())
    world._do(world.host.mail(1, proof, world.now))
    joiner.member.hear(joiner.mail.popleft())
    world._do(world.host.mail(1, joiner.member.help(say.Stand()), world.now))
    assert joiner.dropped


@pytest.mark.parametrize("at", ["example.org:5", "203.0.113.7:0", "[fe80::1]:5", "x" * 400])
def test_places_are_numbers(at: str) -> None:
    with pytest.raises(ValueError, match="at"):
        say.Standing(at=at)


def test_a_host_learns_more_of_its_own_nat() -> None:
    world = World()
    found = Nat(mapping="endpoint-independent", filtering="address-dependent")
    world.host.revise(found)
    assert world.host.reports[HOST].nat == found
