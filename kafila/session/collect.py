"""The host's side of a session as a machine: who has joined, who reported, who guessed. Sans-IO.

What came and `now` go in, actions come out; host.py drives it. Must not know the rendezvous, nor
how anything was measured.
"""

import enum
import math
from dataclasses import dataclass

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.manifest import Manifest
from kafila.messages import Malformed, OtherVersion
from kafila.probe.report import Nat, Report
from kafila.session import messages as say
from kafila.session.claims import untrue
from kafila.session.code import Code
from kafila.session.events import (
    Event,
    JoinerRefused,
    MemberJoined,
    MemberLeft,
    ReportReceived,
)
from kafila.session.pake import Channel, PakeFailure, Terms


@dataclass(frozen=True)
class Post:
    """Mail this to the joiner."""

    attempt: int
    body: str


@dataclass(frozen=True)
class Drop:
    """Have the rendezvous close this joiner's connection."""

    attempt: int


@dataclass(frozen=True)
class Compute:
    """Answer this key exchange off the loop, and hand the outcome to `Host.computed`."""

    attempt: int
    theirs: bytes
    terms: Terms


@dataclass(frozen=True)
class Welcomed:
    """This joiner may be asked for help from now on, and may ask."""

    attempt: int


@dataclass(frozen=True)
class Helped:
    """The joiner asked for help or answered; see kafila.session.helping."""

    attempt: int
    message: say.Helping


@dataclass(frozen=True)
class Tell:
    event: Event


Action = Post | Drop | Compute | Welcomed | Helped | Tell


class HostState(enum.Enum):
    COLLECTING = "joiners may come, reports may come"
    COMPLETE = "every report is in"
    VOID = "too many wrong guesses"
    EXPIRED = "the time ran out"


class JoinerState(enum.Enum):
    ARRIVED = "its key exchange is awaited"
    COMPUTING = "its key exchange is being answered"
    ANSWERED = "its confirmation is awaited"
    CONFIRMED = "it knows the words; its name is awaited"
    MEASURING = "it is welcome; its report is awaited"
    REPORTED = "its report is kept"


HELPERS = (JoinerState.MEASURING, JoinerState.REPORTED)
PLACED = (JoinerState.CONFIRMED, JoinerState.MEASURING, JoinerState.REPORTED)


@dataclass
class _Joiner:
    attempt: int
    key: bytes
    deadline: float
    state: JoinerState = JoinerState.ARRIVED
    channel: Channel | None = None
    name: str = ""


class Host:
    """A session's state, from the code to the last report."""

    def __init__(
        self, code: Code, key: bytes, report: Report, manifest: Manifest | None, members: int,
        now: float,
    ) -> None:  # fmt: skip
        self.state = HostState.COLLECTING
        self.reports = {key: report}
        self.failures = 0
        self._code = code
        self._key = key
        self._name = report.name
        self._manifest = manifest
        self._members = members
        self._code_until = now + d.CODE_SECONDS
        self._collect_until = self._code_until + d.COLLECT_SECONDS
        self._joiners: dict[int, _Joiner] = {}

    @property
    def guesses(self) -> int:
        """Failed confirmations that void the code."""
        return max(d.GUESSES, 2 * self._members)

    @property
    def missing(self) -> int:
        return self._members - len(self.reports)

    @property
    def _placed(self) -> set[bytes]:
        """Keys that hold a place: who has reported, and who knows the words and is connected."""
        return {j.key for j in self._joiners.values() if j.state in PLACED} | {*self.reports}

    # --- what came ---------------------------------------------------------------------------

    def arrived(self, attempt: int, key: bytes, now: float) -> list[Action]:
        """A joiner whose connection has proven `key`. It replaces an earlier one of this key."""
        actions: list[Action] = []
        for earlier in [j for j in self._joiners.values() if j.key == key]:
            actions += self._forget(earlier)
        joiner = _Joiner(attempt, key, now + d.STEP_SECONDS)
        self._joiners[attempt] = joiner
        if self._full_for(key):
            return actions + self._refuse(joiner, "full", self._full_text())
        return actions

    def left(self, attempt: int, now: float) -> list[Action]:
        """The rendezvous says that this joiner's connection is gone."""
        joiner = self._joiners.pop(attempt, None)
        if joiner is None or joiner.state is not JoinerState.MEASURING:
            return []
        return [Tell(MemberLeft(joiner.name))]

    def mail(self, attempt: int, body: str, now: float) -> list[Action]:
        joiner = self._joiners.get(attempt)
        if joiner is None:
            return []
        try:
            return self._hear(joiner, say.decode_clear(body), now)
        except OtherVersion as error:
            text = f"the host speaks protocol {PROTOCOL}, this member {error.theirs}"
            return self._refuse(joiner, "version", f"{text}; update the older one")
        except (Malformed, PakeFailure) as error:
            return self._refuse(joiner, "malformed", f"the host could not read this: {error}")

    def computed(
        self, attempt: int, answer: tuple[bytes, Channel] | None, now: float
    ) -> list[Action]:
        """The outcome of a `Compute`: our message and the channel, or None for no point."""
        joiner = self._joiners.get(attempt)
        if joiner is None or joiner.state is not JoinerState.COMPUTING:
            return []
        if answer is None:
            return self._refuse(joiner, "malformed", "that was no key exchange")
        message, joiner.channel = answer
        self._enter(joiner, JoinerState.ANSWERED, now + d.STEP_SECONDS)
        return [Post(attempt, say.exchange(message))]

    def help(self, attempt: int, message: say.Helping) -> list[Action]:
        """Say this to a joiner that is here."""
        joiner = self._joiners.get(attempt)
        if joiner is None or joiner.state not in HELPERS:
            return []
        assert joiner.channel is not None
        return [Post(attempt, say.seal(joiner.channel.outgoing, message))]

    def revise(self, nat: Nat) -> None:
        """The host knows more of its own NAT."""
        own = self.reports[self._key]
        self.reports[self._key] = own.model_copy(update={"nat": nat})

    @property
    def helpers(self) -> set[int]:
        """Joiners that are here and welcome."""
        return {attempt for attempt, j in self._joiners.items() if j.state in HELPERS}

    def tick(self, now: float) -> list[Action]:
        """Time has passed; call about once a second."""
        actions: list[Action] = []
        for joiner in [j for j in self._joiners.values() if now >= j.deadline]:
            actions += self._refuse(joiner, "late", "the host waited too long for the next step")
        full = len(self._placed) >= self._members
        if self.state is HostState.COLLECTING:
            if now >= (self._collect_until if full else self._code_until):
                self.state = HostState.EXPIRED
            elif self.failures >= self.guesses and not full:
                self.state = HostState.VOID
        return actions

    # --- inside ------------------------------------------------------------------------------

    def _hear(self, joiner: _Joiner, message: say.Clear, now: float) -> list[Action]:
        match joiner.state, message:
            case JoinerState.ARRIVED, say.Exchange():
                joiner.state = JoinerState.COMPUTING
                terms = Terms(self._code.number, joiner.key, self._key)
                return [Compute(joiner.attempt, bytes.fromhex(message.message), terms)]
            case JoinerState.ANSWERED, say.Confirm():
                return self._check(joiner, bytes.fromhex(message.proof), now)
            case (
                (JoinerState.CONFIRMED | JoinerState.MEASURING | JoinerState.REPORTED),
                say.Sealed(),
            ):
                assert joiner.channel is not None
                plain = say.unseal(joiner.channel.incoming, message)
                match joiner.state, plain:
                    case JoinerState.CONFIRMED, say.Hello():
                        return self._welcome(joiner, plain.name)
                    case JoinerState.MEASURING, say.Measured():
                        return self._keep(joiner, plain.report)
                    case (
                        (JoinerState.MEASURING | JoinerState.REPORTED),
                        (say.Stand() | say.Standing() | say.Knock() | say.Knocked()),
                    ):
                        return [Helped(joiner.attempt, plain)]
        return self._refuse(joiner, "malformed", f"the host did not expect {message.kind} now")

    def _check(self, joiner: _Joiner, proof: bytes, now: float) -> list[Action]:
        assert joiner.channel is not None
        if self.failures >= self.guesses:
            return self._refuse(joiner, "void", "the code is void after too many wrong guesses")
        try:
            joiner.channel.confirm(proof)
        except PakeFailure:
            self.failures += 1
            return self._refuse(joiner, "code", "the words of the code are wrong")
        if self._full_for(joiner.key):  # somebody else was quicker
            return self._refuse(joiner, "full", self._full_text())
        self._enter(joiner, JoinerState.CONFIRMED, now + d.STEP_SECONDS)
        return [Post(joiner.attempt, say.confirm(joiner.channel.proof))]

    def _welcome(self, joiner: _Joiner, name: str) -> list[Action]:
        others = {j.name for j in self._joiners.values() if j.state in PLACED and j is not joiner}
        others |= {r.name for key, r in self.reports.items() if key != joiner.key}
        if name in others:
            text = f"there is already a member named {name}; choose another with --name"
            return self._refuse(joiner, "name", text)
        joiner.name = name
        self._enter(joiner, JoinerState.MEASURING, math.inf)  # the session's end is its deadline
        assert joiner.channel is not None
        welcome = say.Welcome(host=self._name, members=self._members, manifest=self._manifest)
        return [
            Post(joiner.attempt, say.seal(joiner.channel.outgoing, welcome)),
            Welcomed(joiner.attempt),
            Tell(MemberJoined(name, len(self._placed), self._members)),
        ]

    def _keep(self, joiner: _Joiner, report: Report) -> list[Action]:
        if report.key != joiner.key.hex() or report.name != joiner.name:
            text = "the report carries another key or name than the member that sent it"
            return self._refuse(joiner, "malformed", text)
        fault = untrue(report)
        if fault is not None:
            text = f"the report cannot be true: {fault}; measure again"
            return self._refuse(joiner, "malformed", text)
        self.reports[joiner.key] = report
        self._enter(joiner, JoinerState.REPORTED, math.inf)
        assert joiner.channel is not None
        if self.missing == 0:
            self.state = HostState.COMPLETE
        received = say.Received(reports=len(self.reports), members=self._members)
        return [
            Post(joiner.attempt, say.seal(joiner.channel.outgoing, received)),
            Tell(ReportReceived(report.name, len(self.reports), self._members)),
        ]

    def _enter(self, joiner: _Joiner, state: JoinerState, deadline: float) -> None:
        joiner.state = state
        joiner.deadline = deadline

    def _full_for(self, key: bytes) -> bool:
        """Every place is taken by somebody else."""
        return len(self._placed - {key}) >= self._members

    def _full_text(self) -> str:
        return f"this session is for {self._members} members and they have all joined"

    def _refuse(self, joiner: _Joiner, why: say.Refusal, text: str) -> list[Action]:
        refused = say.Refused(why=why, text=text)
        if joiner.channel is not None and joiner.state in PLACED:
            body = say.seal(joiner.channel.outgoing, refused)
        else:
            body = say.body(refused)
        del self._joiners[joiner.attempt]
        return [
            Post(joiner.attempt, body),
            Drop(joiner.attempt),
            Tell(JoinerRefused(joiner.key.hex(), text)),
        ]

    def _forget(self, joiner: _Joiner) -> list[Action]:
        del self._joiners[joiner.attempt]
        return [Drop(joiner.attempt)]
