"""A request's body: read within its bounds, then parsed and checked off the event loop.

The loop also carries the ring: whatever a client sends, it must go on turning, so nothing here is
of a cost that grows with how much of a body is wrong.
"""

import asyncio
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from kafila.api import errors
from kafila.api.errors import ApiError
from kafila.api.schema import Request
from kafila.defaults import BODY_BYTES, BODY_EXTRA_BYTES, BODY_SECONDS, BODY_TOKEN_BYTES

R = TypeVar("R", bound=Request)

_BOM = b"\xef\xbb\xbf"  # some editors and shells put it before what they send


async def body(http: HttpRequest, kind: type[R], context: int) -> R:
    """The body as a checked `kind`, for a ring of `context` tokens; ApiError otherwise."""
    # A web page may send other types to any address without asking first (no CORS preflight).
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "the body must be JSON, sent as Content-Type: application/json")
    data = await _read(http, context)
    return await asyncio.to_thread(parse, data, kind)


async def _read(http: HttpRequest, context: int) -> bytes:
    most = min(BODY_BYTES, BODY_EXTRA_BYTES + context * BODY_TOKEN_BYTES)
    data, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in http.stream():
                size += len(part)
                if size <= most:
                    data += part
                elif size > BODY_BYTES:  # up to there it is heard out: then the answer is read
                    break
    except TimeoutError:
        raise ApiError(
            408,
            f"the body was not whole within {BODY_SECONDS:g} seconds",
            headers={"connection": "close"},  # the rest of it may never come
        ) from None
    except ClientDisconnect:
        raise ApiError(400, "the client left before its body was whole") from None
    if size > most:
        raise ApiError(
            413,
            f"the body is larger than {most} bytes, more than a prompt of the plan's context of "
            f"{context} tokens takes",
        )
    return bytes(data)


def parse(data: bytes, kind: type[R]) -> R:
    """A body as a checked `kind`; ApiError with the first fault found."""
    try:
        fields = from_json(data.removeprefix(_BOM), allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise ApiError(400, "the body must be a JSON object")
    try:
        request = kind.model_validate(fields)
    except ValidationError as error:
        raise errors.invalid(error) from None
    request.check()
    return request
