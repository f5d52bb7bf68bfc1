"""Server-sent events to one client, who may be slow, silent or suddenly gone."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from kafila.defaults import KEEPALIVE_SECONDS, UNREAD_SECONDS

T = TypeVar("T")


class ClientGone(Exception):
    """The client has closed its connection."""


class EventStream:
    """An ASGI response that sends each event as `data: JSON`, then `data: [DONE]`.

    A comment is sent in long silences. However it ends, `events` is closed and `finally_` called.
    """

    def __init__(
        self, events: AsyncGenerator[dict[str, Any], None], finally_: Callable[[], None]
    ) -> None:
        self._events = events
        self._finally = finally_

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            async for text in self._texts(gone):
                # a client that never reads again would hold this connection for ever
                async with asyncio.timeout(2 * UNREAD_SECONDS):
                    await send(
                        {"type": "http.response.body", "body": text.encode(), "more_body": True}
                    )
            await send({"type": "http.response.body", "body": b""})
        except (ClientGone, TimeoutError):
            pass
        finally:
            gone.cancel()
            self._finally()

    async def _texts(self, gone: "asyncio.Future[None]") -> AsyncGenerator[str, None]:
        coming: asyncio.Future[dict[str, Any] | None] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(self._events, None))
                both: set[asyncio.Future[Any]] = {coming, gone}
                await asyncio.wait(
                    both, timeout=KEEPALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    raise ClientGone
                if not coming.done():
                    yield ": still working\n\n"
                    continue
                event, coming = coming.result(), None
                if event is None:
                    break
                yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            if coming:
                coming.cancel()
                await asyncio.wait({coming})
            await self._events.aclose()


async def until_gone(receive: Receive) -> None:
    """Wait for the client's end of the connection to close; its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of `work`; ClientGone, and `work` cancelled, when the client leaves first."""
    gone, task = asyncio.ensure_future(until_gone(receive)), asyncio.ensure_future(work)
    try:
        await asyncio.wait({gone, task}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
