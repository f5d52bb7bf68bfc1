"""A rendezvous that lies, replays, swaps and drops: nobody takes a wrong peer for the right one.

Members, hosts and rendezvous are the real ones; somebody sits between. Whatever he does, a session
ends in the right reports or in an error, an edge in the right peer or in none, and nothing that was
sealed is ever seen.
"""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.probe.report import Report
from kafila.rendezvous.messages import Arrived, Joined, Mail, Notice
from kafila.session import messages as say
from kafila.session.events import MemberJoined, ReportReceived, ReportSent
from kafila.session.pake import Channel, Pake, Terms
from tests.session.hostile import HostileLan, Says
from tests.session.samples import MANIFEST, report
from tests.session.test_session import Party

HOST = 1
"""The host is the first to connect; joiners follow."""


class Scene(Party):
    """A host, who waits for one member or more, and what came of it."""

    def __init__(self, lan: HostileLan) -> None:
        super().__init__(lan)
        self.hostile = lan.hostile
        self.mallory = lan.identity("mallory")

    async def play(self, says: Says, names: Iterable[str] = ("anna",), members: int = 2) -> int:
        """Have them join under such conditions; return how many believe that they have."""
        self.hostile.says = says
        host = await self.host(members)
        joining = [asyncio.create_task(self.join(name)) for name in names]
        results = await asyncio.gather(*joining, return_exceptions=True)
        for result in results:
            assert result is None or isinstance(result, IdentityProblem | NetworkProblem)
        if not host.done():
            await asyncio.sleep(0)
            host.cancel()
        reports: list[Report] = []
        with contextlib.suppress(asyncio.CancelledError, KafilaError):
            reports = await host
        self._check(reports, sum(result is None for result in results))
        return results.count(None)

    def _check(self, reports: list[Report], believing: int) -> None:
        for made in reports:
            who = self.lan.identity(made.name)
            assert made == report(made.name, who.key, who.exchange_key)
        sent = sum(isinstance(event, ReportSent) for event in self.events)
        received = sum(isinstance(event, ReportReceived) for event in self.events)
        assert sent == believing <= received
        everything = b"".join(self.hostile.seen)
        for secret in (b"processor of", b"bandwidth", MANIFEST.name.encode(), self.code.password):
            assert secret not in everything


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(d, "STEP_SECONDS", 1.0)
    monkeypatch.setattr(d, "PAKE_GRID", 0.01)
    lan = HostileLan(tmp_path)
    async with lan:
        yield Scene(lan)


def honest(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
    return [(number, notice)]


async def test_left_alone_the_session_works(scene: Scene) -> None:
    assert await scene.play(honest) == 1


@pytest.mark.parametrize("swapped", [{Joined}, {Arrived}, {Joined, Arrived}], ids=str)
async def test_swapped_keys_are_noticed(scene: Scene, swapped: set[type[Notice]]) -> None:
    theirs = scene.mallory.key.hex()

    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if type(notice) in swapped:
            field = "host" if isinstance(notice, Joined) else "key"
            notice = notice.model_copy(update={field: theirs})
        return [(number, notice)]

    assert await scene.play(says) == 0


class Guesser:
    """Answers one side's key exchange itself, with words that it guessed."""

    def __init__(self, scene: Scene, *, as_host: bool) -> None:
        self._scene = scene
        self._as_host = as_host
        self._channel: Channel | None = None
        self._keys: dict[type[Notice], str] = {}

    def says(self, number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Joined):
            self._keys[Joined] = notice.host
        if isinstance(notice, Arrived):
            self._keys[Arrived] = notice.key
        victim_speaks = isinstance(notice, Mail) and (number == HOST) == self._as_host
        if not victim_speaks:  # what the other side says does not get through
            return [] if isinstance(notice, Mail) else [(number, notice)]
        assert isinstance(notice, Mail)
        back = number + 1 if self._as_host else HOST
        return [(back, Mail(attempt=notice.attempt, body=each)) for each in self._answer(notice)]

    def _answer(self, mail: Mail) -> Iterable[str]:
        match say.decode_clear(mail.body):
            case say.Exchange(message=theirs):
                member, host = (bytes.fromhex(self._keys[kind]) for kind in (Arrived, Joined))
                terms = Terms(self._scene.code.number, member, host)
                side = "host" if self._as_host else "member"
                pake = Pake(side, self._scene.wrong_code.password, terms)  # type: ignore[arg-type]
                self._channel = pake.finish(bytes.fromhex(theirs))
                return [say.exchange(pake.message), say.confirm(self._channel.proof)]
            case _ if self._channel is not None:
                return [say.seal(self._channel.outgoing, say.Stand())]
        return []


async def test_who_guesses_the_words_is_no_host(scene: Scene) -> None:
    assert await scene.play(Guesser(scene, as_host=True).says) == 0
    assert not any(isinstance(event, ReportSent) for event in scene.events)


async def test_a_member_is_not_answered_with_its_own_words(scene: Scene) -> None:
    """Reflection: what the member says comes back to it as the host's."""

    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Mail):
            return [(HOST + 1, notice)] if number == HOST else []
        return [(number, notice)]

    assert await scene.play(says) == 0


@pytest.mark.parametrize("to_host", [True, False])
async def test_an_old_exchange_is_worth_nothing(scene: Scene, to_host: bool) -> None:
    """What was said to and by anna is played to the host and to bert, who comes later."""
    recorded: list[Mail] = []

    def records(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Mail) and (number == HOST) == to_host:
            recorded.append(notice)
        return [(number, notice)]

    replayed = iter(recorded)

    def replays(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if number <= HOST + 1 and not (to_host and number == HOST):
            return [(number, notice)]
        if isinstance(notice, Mail) and (number == HOST) == to_host:
            old = next(replayed, None)
            return [] if old is None else [(number, notice.model_copy(update={"body": old.body}))]
        return [(number, notice)]

    scene.hostile.says = records
    host = await scene.host(3)
    await scene.join("anna")
    scene.hostile.says = replays
    with pytest.raises((IdentityProblem, NetworkProblem)):
        await scene.join("bert")
    assert not host.done()
    assert sum(isinstance(event, ReportReceived) for event in scene.events) == 1
    assert {event.name for event in scene.events if isinstance(event, MemberJoined)} == {"anna"}
    host.cancel()


async def test_members_whose_mail_is_crossed_are_not_taken_for_each_other(scene: Scene) -> None:
    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Mail) and number != HOST:
            number = {2: 3, 3: 2}.get(number, number)
        return [(number, notice)]

    assert await scene.play(says, ("anna", "bert"), members=3) == 0


def _tampered(mail: Mail) -> Mail:
    """The same with one bit of what is sealed, or of the proof, turned."""
    message = say.decode_clear(mail.body)
    match message:
        case say.Sealed():
            box = bytearray(base64.b64decode(message.box))
            box[len(box) // 2] ^= 1
            body = say.body(say.Sealed(box=base64.b64encode(bytes(box)).decode()))
        case say.Confirm():
            body = say.confirm(bytes.fromhex(message.proof)[::-1])
        case say.Exchange():
            body = say.exchange(bytes.fromhex(message.message)[:1] + b"\x03" + bytes(31))
        case _:
            body = mail.body
    return mail.model_copy(update={"body": body})


Change = Callable[[Mail], Iterable[Mail]]
CHANGES: dict[str, Change] = {
    "dropped": lambda mail: [],
    "doubled": lambda mail: [mail, mail],
    "tampered with": lambda mail: [_tampered(mail)],
}


@pytest.mark.parametrize("which", range(8))
@pytest.mark.parametrize("change", CHANGES)
async def test_any_one_message_may_be(
    scene: Scene, change: str, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the eight between a host and a joiner."""
    monkeypatch.setattr(d, "STEP_SECONDS", 0.4)
    count = itertools.count()

    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Mail) and next(count) == which:
            return [(number, each) for each in CHANGES[change](notice)]
        return [(number, notice)]

    believing = await scene.play(says)
    assert next(count) > which or which >= 7
    assert believing == 0 or change == "doubled" or which >= 7
