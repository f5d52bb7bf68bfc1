"""Two members of a session help each other to classify their NATs, over their sealed mail.

    who asks                            who helps
       │ stand ──────────────────────────▶ │ opens a socket, asks the rendezvous how it is seen
       │ ◀───────────────────── standing   │
       │ openers, which do not arrive      │
       │ knock (token, doors) ───────────▶ │ knocks for some seconds, notes who knocks back
       │ ◀────────────── knocked (sources) │

Must not know how mail travels, nor what is concluded.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from kafila import defaults as d
from kafila.address import Address, format_address, parse_address
from kafila.errors import NetworkProblem
from kafila.net.udp import Udp
from kafila.probe.doors import Doors
from kafila.session import messages as say

M = TypeVar("M", say.Standing, say.Knocked)
_LEFT: Final = "the other member has left"


class Helping:
    """One other member: asks it (a `netcheck.Knocker`), and helps it up to VISITS times."""

    def __init__(self, post: Callable[[say.Helping], None], doors: Doors | None) -> None:
        """`post` seals and mails; without `doors` this side does not help."""
        self._post = post
        self._doors = doors
        self._answers: dict[type[say.Helping], asyncio.Future[say.Helping]] = {}
        self._helped = 0
        self._left = False
        self._stands: tuple[Udp, Address] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def stand(self) -> Address | None:
        """Ask where it stands. Raises NetworkProblem for silence."""
        at = (await self._ask(say.Stand(), say.Standing)).at
        return None if at is None else parse_address(at)

    async def knock(self, doors: Sequence[Address], token: bytes) -> Sequence[Address]:
        """Ask it to knock. Raises NetworkProblem for silence."""
        places = tuple(format_address(door) for door in doors)
        knocked = await self._ask(say.Knock(token=token.hex(), doors=places), say.Knocked)
        return [parse_address(each) for each in knocked.seen]

    def hear(self, message: say.Helping) -> None:
        """Take what it says: a request is answered in time, an answer brought to who waits."""
        match message:
            case say.Stand():
                self._start(self._stand())
            case say.Knock():
                self._start(self._knock(message))
            case _:
                waiting = self._answers.get(type(message))
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)

    async def settled(self) -> None:
        """Wait until it is helped in what it began to ask for, or does not go on with it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(d.STRANGER_SECONDS):
                await self._idle.wait()

    async def close(self) -> None:
        """Help no longer; whoever waits for an answer hears that none comes."""
        self._left = True
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(NetworkProblem(_LEFT))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._leave()

    async def _ask(self, message: say.Helping, kind: type[M]) -> M:
        if self._left:
            raise NetworkProblem(_LEFT)
        answered: asyncio.Future[say.Helping] = asyncio.get_running_loop().create_future()
        self._answers[kind] = answered
        self._post(message)
        try:
            async with asyncio.timeout(d.STRANGER_SECONDS):
                answer = await answered
        except TimeoutError:
            raise NetworkProblem("the other member does not answer") from None
        finally:
            del self._answers[kind]
        assert isinstance(answer, kind)
        return answer

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= d.VISITS:  # nobody asks so fast
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks and self._stands is None:
            self._idle.set()

    async def _stand(self) -> None:
        self._leave()
        self._helped += 1
        stands = None
        if self._doors is not None and self._helped <= d.VISITS:
            with contextlib.suppress(NetworkProblem):  # no socket to be had
                stands = await self._doors.stand()
        self._leave()  # it may have asked twice
        self._stands = stands
        at = None if stands is None else format_address(stands[1])
        self._post(say.Standing(at=at))

    async def _knock(self, asked: say.Knock) -> None:
        stands, self._stands = self._stands, None
        seen: list[Address] = []
        if stands is not None and self._doors is not None:
            udp, where = stands
            places = [parse_address(door) for door in asked.doors]
            try:
                if places:
                    token = bytes.fromhex(asked.token)
                    seen = await self._doors.knock(udp, where, places, token)
            finally:
                self._doors.leave(udp)
        self._post(say.Knocked(seen=tuple(format_address(each) for each in seen)))

    def _leave(self) -> None:
        if self._stands is not None and self._doors is not None:
            self._doors.leave(self._stands[0])
        self._stands = None
