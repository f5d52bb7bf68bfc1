"""One request as its client sees it: tokens to read, an end, a way to give up."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from kafila.defaults import UNREAD_SECONDS, UNREAD_TOKENS
from kafila.errors import KafilaError
from kafila.serve.actions import Reason


@dataclass(frozen=True)
class Params:
    """How tokens are drawn: temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass
class Times:
    """When a request was taken and got its first and last token, in seconds of one clock."""

    submitted: float
    first: float = 0.0
    last: float = 0.0


class Door(Protocol):
    """What a generation asks of the head."""

    def cancel(self, request: int) -> None: ...

    def pause(self, request: int) -> None: ...

    def resume(self, request: int) -> None: ...


class ClientStalled(KafilaError):
    """The client left tokens unread for too long."""


class Generation:
    """The tokens of one request, read with `async for`; then `finish` says why they ended.

    A reader that stops reading makes its own request sit out after UNREAD_TOKENS and ends it after
    UNREAD_SECONDS; nobody else notices. Reading raises the ring's error when the ring fails.
    """

    def __init__(self, door: Door, request: int, prompt: int) -> None:
        self.request = request
        self.prompt = prompt
        self.cached: int | None = None
        """Tokens of the prompt that a slot held already; None until it is known."""
        self.produced = 0
        self.finish: Reason | None = None
        self.times = Times(time.monotonic())
        self._door = door
        self._unread: deque[int] = deque()
        self._news = asyncio.Event()
        self._error: KafilaError | None = None
        self._stall: asyncio.TimerHandle | None = None

    async def __aiter__(self) -> AsyncIterator[int]:
        while True:
            while self._unread:
                yield self._read()
            if self._error:
                raise self._error
            if self.finish:
                return
            self._news.clear()
            await self._news.wait()

    def cancel(self) -> None:
        """Give up: the slot is freed all round the ring. Harmless after the end."""
        if self.finish is None and self._error is None:
            self._door.cancel(self.request)

    # --- from the head -----------------------------------------------------------------------

    def begin(self, start: int) -> None:
        """The prompt from position `start` on is being computed; told of every chunk."""
        if self.cached is None:
            self.cached = start

    def put(self, token: int) -> None:
        """The next token."""
        self.times.last = time.monotonic()
        self.times.first = self.times.first or self.times.last
        self.produced += 1
        self._unread.append(token)
        self._news.set()
        if len(self._unread) == UNREAD_TOKENS and self._stall is None:
            self._door.pause(self.request)
            loop = asyncio.get_running_loop()
            self._stall = loop.call_later(UNREAD_SECONDS, self._drop)

    def end(self, reason: Reason) -> None:
        """There are no more tokens."""
        self.finish = reason
        self._settle()

    def fail(self, error: KafilaError) -> None:
        """There are no more tokens because of `error`, which the reader gets after the others."""
        self._error = error
        self._settle()

    def _read(self) -> int:
        token = self._unread.popleft()
        if self._stall and len(self._unread) <= UNREAD_TOKENS // 2:
            self._stall.cancel()
            self._stall = None
            self._door.resume(self.request)
        return token

    def _drop(self) -> None:
        self._unread.clear()
        self._error = ClientStalled(f"tokens were left unread for {UNREAD_SECONDS:.0f} s")
        self._door.cancel(self.request)

    def _settle(self) -> None:
        if self._stall:
            self._stall.cancel()
            self._stall = None
        self._news.set()
