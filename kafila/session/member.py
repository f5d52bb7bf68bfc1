"""A member that joins a session: proves the code to the host, measures, hands in its report.

`Member` is sans-IO (its two slow steps compute a key exchange: call `greet` and `hear` off the
loop); `join_session` drives it over a rendezvous client. Must not know how to measure.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Never, TypeVar

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem, UsageProblem
from kafila.manifest import Manifest
from kafila.messages import Malformed, OtherVersion
from kafila.net.identity import Identity
from kafila.probe.doors import Doors
from kafila.probe.netcheck import Knocker
from kafila.probe.report import Report
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Ended, Mail
from kafila.session import messages as say
from kafila.session.code import Code
from kafila.session.events import HostConfirmed, OnEvent, ReportSent
from kafila.session.helping import Helping
from kafila.session.pake import Channel, Pake, PakeFailure, Terms

T = TypeVar("T")


class MemberState(enum.Enum):
    NEW = "the host's key is awaited"
    GREETED = "our key exchange is sent, the host's is awaited"
    CONFIRMING = "our confirmation is sent, the host's is awaited"
    CONFIRMED = "our name is sent, the welcome is awaited"
    MEASURING = "the report is being made"
    REPORTED = "our report is sent, its receipt is awaited"
    DONE = "the host has our report"


class Member:
    """One attempt to join; never used twice."""

    def __init__(self, code: Code, key: bytes, name: str) -> None:
        self.state = MemberState.NEW
        self.welcome: say.Welcome | None = None
        self.received: say.Received | None = None
        self.helping: list[say.Helping] = []
        """What the host said beside all that; whoever drives this takes it from here."""
        self._code = code
        self.key = key
        self._name = name
        self._pake: Pake | None = None
        self._channel: Channel | None = None

    def greet(self, host: bytes) -> str:
        """The host's key is known: our key exchange, to mail. Slow."""
        terms = Terms(self._code.number, self.key, host)
        self._pake = Pake("member", self._code.password, terms)
        self.state = MemberState.GREETED
        return say.exchange(self._pake.message)

    def hear(self, body: str) -> list[str]:
        """Mail from the host came: what to mail back. Slow once.

        Raises IdentityProblem when the host refuses us or does not know the words itself, and
        NetworkProblem when this is not the conversation it should be.
        """
        try:
            return self._hear(say.decode_clear(body))
        except OtherVersion as error:
            raise IdentityProblem(
                f"the host speaks protocol {error.theirs}, this member {PROTOCOL}; "
                "update the older one"
            ) from None
        except (Malformed, PakeFailure) as error:
            raise NetworkProblem(
                f"the host's messages do not arrive as it sent them ({error}); join again"
            ) from None

    def help(self, message: say.Helping) -> str:
        """What this member says beside all that, to mail."""
        assert self._channel is not None
        return say.seal(self._channel.outgoing, message)

    def report(self, report: Report) -> str:
        """The report, to mail."""
        assert self.state is MemberState.MEASURING
        assert self._channel is not None
        self.state = MemberState.REPORTED
        return say.seal(self._channel.outgoing, say.Measured(report=report))

    def _hear(self, message: say.Clear) -> list[str]:
        match self.state, message:
            case ((MemberState.NEW | MemberState.GREETED | MemberState.CONFIRMING), say.Refused()):
                raise _refused(message)
            case MemberState.GREETED, say.Exchange():
                assert self._pake is not None
                self._channel = self._pake.finish(bytes.fromhex(message.message))
                self.state = MemberState.CONFIRMING
                return [say.confirm(self._channel.proof)]
            case MemberState.CONFIRMING, say.Confirm():
                return [self._confirm(bytes.fromhex(message.proof))]
            case _, say.Sealed() if self._channel is not None:
                self._open(say.unseal(self._channel.incoming, message))
                return []
        raise Malformed(f"{message.kind} out of turn")

    def _confirm(self, proof: bytes) -> str:
        assert self._channel is not None
        try:
            self._channel.confirm(proof)
        except PakeFailure:
            raise IdentityProblem(
                "whoever answers for the host does not know the code's words; "
                "do not use this rendezvous"
            ) from None
        self.state = MemberState.CONFIRMED
        return say.seal(self._channel.outgoing, say.Hello(name=self._name))

    def _open(self, plain: say.Plain) -> None:
        match self.state, plain:
            case _, say.Refused():
                raise _refused(plain)
            case MemberState.CONFIRMED, say.Welcome():
                self.welcome = plain
                self.state = MemberState.MEASURING
            case MemberState.REPORTED, say.Received():
                self.received = plain
                self.state = MemberState.DONE
            case (
                (MemberState.MEASURING | MemberState.REPORTED),
                (say.Stand() | say.Standing() | say.Knock() | say.Knocked()),
            ):
                self.helping.append(plain)
            case _:
                raise Malformed(f"{plain.kind} out of turn")


def _refused(message: say.Refused) -> KafilaError:
    text = f"the host refused: {message.text}"
    if message.why in ("malformed", "late"):
        return NetworkProblem(text)
    if message.why == "name":
        return UsageProblem(text)
    return IdentityProblem(text)


async def join_session(
    client: RendezvousClient,
    identity: Identity,
    code: Code,
    name: str,
    make_report: Callable[[Manifest | None, Knocker], Awaitable[Report]],
    on_event: OnEvent,
    doors: Doors | None = None,
) -> None:
    """Join the session of `code`, measure what its host asks for, hand in the report.

    `make_report` gets the host's manifest (None: the standard shapes) once the host has proven
    that it knows the code, and the host itself, to help where a stranger is needed. Its report
    must carry `identity`'s key and `name`. At `doors` this member helps the host. Raises
    IdentityProblem for a wrong, expired or used-up code and for a surplus member, UsageProblem
    for a name already taken, NetworkProblem when host or rendezvous go away.
    """
    joined = await client.join(code.number)
    member = Member(code, identity.key, name)
    host = bytes.fromhex(joined.host)
    client.post(joined.attempt, await asyncio.to_thread(member.greet, host))
    helping = Helping(lambda message: client.post(joined.attempt, member.help(message)), doors)

    async def hear(timeout: float | None) -> None:
        body = await _mail(client, timeout)
        slow = member.welcome is None  # there is a key exchange to compute
        for answer in await asyncio.to_thread(member.hear, body) if slow else member.hear(body):
            client.post(joined.attempt, answer)
        while member.helping:
            helping.hear(member.helping.pop(0))

    async def until(state: MemberState) -> None:
        while member.state is not state:
            await hear(d.STEP_SECONDS)

    async def listen() -> Never:
        while True:
            await hear(None)

    async def make() -> Report:
        made = await make_report(manifest, helping)
        await helping.settled()  # the host may be at it
        return made

    await until(MemberState.MEASURING)
    assert member.welcome is not None
    manifest = member.welcome.manifest
    model = None if manifest is None else manifest.name
    on_event(HostConfirmed(member.welcome.host, joined.host, model, member.welcome.members))
    try:
        report = await _while(listen(), make())
        client.post(joined.attempt, member.report(report))
        await until(MemberState.DONE)
    finally:
        await helping.close()
    assert member.received is not None
    on_event(ReportSent(member.received.reports, member.received.members))


async def _mail(client: RendezvousClient, timeout: float | None) -> str:
    notice = await client.receive(timeout)
    match notice:
        case Mail():
            return notice.body
        case Ended():
            raise NetworkProblem(f"the session is over: {notice.text}")
    raise NetworkProblem(f"the rendezvous sent an unexpected {notice.kind}")


async def _while(hearing: Awaitable[Never], work: Awaitable[T]) -> T:
    """The outcome of `work`, unless hearing ends first: with why the host or the rendezvous did."""
    ears, hands = asyncio.ensure_future(hearing), asyncio.ensure_future(work)
    try:
        await asyncio.wait({ears, hands}, return_when=asyncio.FIRST_COMPLETED)
        return await (hands if hands.done() else ears)
    finally:
        ears.cancel()
        hands.cancel()
        await asyncio.gather(ears, hands, return_exceptions=True)
