"""A member that joins a session: proves the code to the host, measures, hands in its report.

`Member` is sans-IO (its two slow steps compute a key exchange: call `greet` and `hear` off the
loop); `join_session` drives it over a rendezvous client. Must not know how to measure.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem, UsageProblem
from kafila.manifest import Manifest
from kafila.messages import Malformed, OtherVersion
from kafila.net.identity import Identity
from kafila.probe.report import Report
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Ended, Mail
from kafila.session import messages as say
from kafila.session.code import Code
from kafila.session.events import HostConfirmed, OnEvent, ReportSent
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
    make_report: Callable[[Manifest | None], Awaitable[Report]],
    on_event: OnEvent,
) -> None:
    """Join the session of `code`, measure what its host asks for, hand in the report.

    `make_report` gets the host's manifest (None: the standard shapes) once the host has proven
    that it knows the code. Its report must carry `identity`'s key and `name`. Raises
    IdentityProblem for a wrong, expired or used-up code and for a surplus member, UsageProblem
    for a name already taken, NetworkProblem when host or rendezvous go away.
    """
    joined = await client.join(code.number)
    member = Member(code, identity.key, name)
    host = bytes.fromhex(joined.host)
    client.post(joined.attempt, await asyncio.to_thread(member.greet, host))

    async def until(state: MemberState) -> None:
        while member.state is not state:
            body = await _mail(client, d.STEP_SECONDS)
            for answer in await asyncio.to_thread(member.hear, body):
                client.post(joined.attempt, answer)

    await until(MemberState.MEASURING)
    assert member.welcome is not None
    manifest = member.welcome.manifest
    model = None if manifest is None else manifest.name
    on_event(HostConfirmed(member.welcome.host, joined.host, model, member.welcome.members))
    report = await _while_connected(make_report(manifest), client, member)
    client.post(joined.attempt, member.report(report))
    await until(MemberState.DONE)
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


async def _while_connected(making: Awaitable[T], client: RendezvousClient, member: Member) -> T:
    """The outcome of `making`, unless the host ends or refuses first."""
    work = asyncio.ensure_future(making)
    mail = asyncio.ensure_future(_mail(client, None))
    try:
        await asyncio.wait({work, mail}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            member.hear(await mail)  # only a refusal is in turn here
            raise NetworkProblem("the host sent something while this member measured; join again")
        return await work
    finally:
        work.cancel()
        mail.cancel()
        await asyncio.gather(work, mail, return_exceptions=True)
