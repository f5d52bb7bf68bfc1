"""The one thread that computes, so that the event loop never waits for a device.

Knows nothing of stages or frames: it runs calls, decode before prefill but taking turns.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kafila.serve.turns import Turns

R = TypeVar("R")


@dataclass(frozen=True)
class _Call:
    run: Callable[[], Any]
    future: asyncio.Future[Any]


class Compute:
    """A daemon thread and its bounded queue. `submit` belongs to the loop it was made on.

    The thread takes its next call itself, so a busy loop does not keep the device waiting.
    """

    def __init__(self, bound: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns: Turns[_Call] = Turns(bound)
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def submit(self, run: Callable[[], R], *, decode: bool = False) -> "asyncio.Future[R]":
        """Queue a call; its outcome arrives on the loop. OverflowError past the bound."""
        future: asyncio.Future[R] = self._loop.create_future()
        with self._wake:
            self._turns.push(_Call(run, future), decode=decode)
            self._wake.notify()
        return future

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
                    self._wake.wait()
                if self._stopping:
                    return
                call = self._turns.pop()
            result: Any = None
            error: BaseException | None = None
            try:
                result = call.run()
            except StopIteration as raised:  # a future takes any exception but this
                error = RuntimeError(repr(raised))
            except BaseException as raised:  # whatever a stage raises is the caller's to handle
                error = raised
            try:
                self._loop.call_soon_threadsafe(_settle, call.future, result, error)
            except RuntimeError:  # the loop is closed: nobody is left to hear it
                return


def timed(run: Callable[[], R]) -> Callable[[], tuple[R, float]]:
    """A call whose outcome comes with the microseconds it took on the compute thread."""

    def timing() -> tuple[R, float]:
        began = time.perf_counter()
        result = run()
        return result, 1e6 * (time.perf_counter() - began)

    return timing


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
