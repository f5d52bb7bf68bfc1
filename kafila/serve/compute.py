"""The one thread that computes, so that the event loop never waits for a device.

Knows nothing of stages or frames: it runs calls, decode before prefill but taking turns.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kafila.serve.turns import Turns

R = TypeVar("R")

_HAND_OVER: Final = 20e-6
"""Seconds at least for which the loop lets go of the interpreter after it has woken the thread; a
timer adds some 60 us."""


class Outcome(Generic[R]):
    """What a call returned or raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self._value = value
        self._error = error

    def result(self) -> R:
        """Return it or raise it."""
        if self._error is not None:
            raise self._error
        value: R = self._value
        return value


class _Call(NamedTuple):
    run: Callable[[], Any]
    then: Callable[[Outcome[Any]], None]


class Compute:
    """A daemon thread and its bounded queue; its methods belong to the loop it was made on.

    The thread takes its next call itself, so a busy loop does not keep the device waiting.
    """

    def __init__(self, bound: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns: Turns[_Call] = Turns(bound)
        self._wake = threading.Condition()
        self._idle = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def submit(
        self,
        run: Callable[[], R],
        then: Callable[[Outcome[R]], None],
        *,
        decode: bool = False,
    ) -> None:
        """Queue a call; `then` is called on the loop. OverflowError past the bound."""
        with self._wake:
            self._turns.push(_Call(run, then), decode=decode)
            idle = self._idle
            self._wake.notify()
        if idle:
            # The thread is about to wake on another core. Were the interpreter held then, until
            # the loop has nothing to do, it would go to sleep again and be woken once more.
            time.sleep(_HAND_OVER)

    async def run(self, run: Callable[[], R]) -> R:
        """Queue a call and wait for what it returns or raises."""
        future: asyncio.Future[Outcome[R]] = self._loop.create_future()

        def then(outcome: Outcome[R]) -> None:
            if not future.done():
                future.set_result(outcome)

        self.submit(run, then)
        return (await future).result()

    async def stop(self, seconds: float) -> bool:
        """Take no further call; True when the running one ended within `seconds`."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join, seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._turns and not self._stopping:
                    self._idle = True
                    self._wake.wait()
                self._idle = False
                if self._stopping:
                    return
                call = self._turns.pop()
            try:
                outcome = Outcome[Any](call.run(), None)
            except BaseException as raised:  # whatever a stage raises is the caller's to handle
                outcome = Outcome[Any](None, raised)
            try:
                self._loop.call_soon_threadsafe(call.then, outcome)
            except RuntimeError:  # the loop is closed: nobody is left to hear it
                return


def timed(run: Callable[[], R]) -> Callable[[], tuple[R, float]]:
    """A call whose outcome comes with the microseconds it took on the compute thread."""

    def timing() -> tuple[R, float]:
        began = time.perf_counter()
        result = run()
        return result, 1e6 * (time.perf_counter() - began)

    return timing
