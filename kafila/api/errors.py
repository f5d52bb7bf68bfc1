"""Errors as OpenAI clients expect them: a status and {"error": {message, type, param, code}}."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from kafila.defaults import RETRY_AFTER_SECONDS

_TYPES = ("str", "int", "float", "bool")


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": type, "param": param, "code": code}
        }

    def response(self) -> JSONResponse:
        """The error as an HTTP response."""
        return JSONResponse(self.body, self.status, headers=self.headers)


def invalid(error: ValidationError) -> ApiError:
    """The first complaint about a request body, naming its parameter."""
    fault = error.errors(include_url=False, include_input=False)[0]
    # parts that name a member of a union say nothing to a client
    parts = [str(part) for part in fault["loc"] if str(part) not in _TYPES and "[" not in str(part)]
    where, message = ".".join(parts), fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "model_type":
        message = "must be a JSON object"
    return ApiError(400, f"{where}: {message}" if where else message, param=where or None)


def unsupported(param: str, what: str) -> ApiError:
    """A parameter that OpenAI knows and this server does not follow; ignoring it would mislead."""
    return ApiError(400, f"{param}: {what}", param=param, code="unsupported_parameter")


def too_long(prompt: int, context: int, param: str) -> ApiError:
    """The prompt leaves no room for an answer."""
    return ApiError(
        400,
        f"the prompt has {prompt} tokens, and with at least one token of answer it must fit the "
        f"plan's context of {context}; shorten it or plan with a larger --context",
        param=param,
        code="context_length_exceeded",
    )


def busy(slots: int, waiting: int) -> ApiError:
    """The admission queue is full."""
    return ApiError(
        429,
        f"all {slots} slots are taken and {waiting} requests wait; try again soon",
        type="rate_limit_error",
        code="queue_full",
        headers={"retry-after": str(RETRY_AFTER_SECONDS)},
    )


def broken(message: str) -> ApiError:
    """The ring cannot answer."""
    return ApiError(503, message, type="server_error", code="ring_failed")
