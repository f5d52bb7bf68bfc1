"""The HTTP API of a head: OpenAI's completions, models, and health. Knows no ring or stage."""

import asyncio
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kafila.api import errors
from kafila.api.answer import Answer
from kafila.api.body import body
from kafila.api.chat import TemplateRefused
from kafila.api.errors import ApiError
from kafila.api.hosts import OwnHosts
from kafila.api.model import Model
from kafila.api.schema import ChatRequest, CompletionRequest, Request
from kafila.api.stream import ClientGone, EventStream, unless_gone
from kafila.errors import KafilaError
from kafila.serve.head import Head
from kafila.serve.scheduler import QueueFull


class Api:
    """Endpoints over one head. `health` gives the ring's state for GET /health."""

    def __init__(self, head: Head, model: Model, health: Callable[[], dict[str, Any]]) -> None:
        self._head = head
        self._model = model
        self._health = health
        self._began = int(time.time())

    def application(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/v1/models/{name:path}", self.model),
                Route("/health", self.health),
            ],
            middleware=[Middleware(OwnHosts)],
            exception_handlers={
                ApiError: _api_error,
                HTTPException: _http_error,
                Exception: _own_fault,
            },
        )

    async def health(self, _: HttpRequest) -> Response:
        """State of the ring, slots in use, rates."""
        return JSONResponse(self._health())

    async def models(self, _: HttpRequest) -> Response:
        """The one model there is."""
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, http: HttpRequest) -> Response:
        """The one model, by name."""
        self._known(http.path_params["name"])
        return JSONResponse(self._card())

    async def chat(self, http: HttpRequest) -> Response | EventStream:
        """POST /v1/chat/completions."""
        request = await body(http, ChatRequest, self._head.context)
        template, tokens = self._model.template, self._model.tokens
        if template is None or tokens is None:
            lacking = "tokenizer" if tokens is None else "chat template"
            raise ApiError(
                400, f"{self._model.name} has no {lacking}; use /v1/completions", param="messages"
            )

        def encode() -> list[int]:
            messages = [message.plain() for message in request.messages]
            text = template.render(messages, request.chat_template_kwargs)
            return tokens.encode(text, special=False)

        try:
            prompt = await asyncio.to_thread(encode)
        except TemplateRefused as error:
            raise ApiError(400, str(error), param="messages") from None
        limit = request.max_completion_tokens or request.max_tokens or self._head.context
        return await self._answer(http, request, prompt, limit, _ChatShape(self._model.name))

    async def complete(self, http: HttpRequest) -> Response | EventStream:
        """POST /v1/completions."""
        request = await body(http, CompletionRequest, self._head.context)
        prompt, tokens = request.prompt, self._model.tokens
        if isinstance(prompt, str):
            if tokens is None:
                raise ApiError(
                    400, f"{self._model.name} has no tokenizer; send token ids", param="prompt"
                )
            prompt = await asyncio.to_thread(tokens.encode, prompt, special=True)
        limit = request.max_tokens or 16  # OpenAI's default for this endpoint
        return await self._answer(http, request, prompt, limit, _TextShape(self._model.name))

    async def _answer(
        self, http: HttpRequest, request: Request, prompt: list[int], limit: int, shape: "_Shape"
    ) -> Response | EventStream:
        self._known(request.model or self._model.name)
        answer = self._submit(request, prompt, limit)
        if request.stream:
            usage = bool(request.stream_options and request.stream_options.include_usage)
            events = _events(answer, shape, ids=request.return_token_ids, usage=usage)
            return EventStream(events, answer.generation.cancel)

        async def whole() -> Response:
            pieces = [piece async for piece in answer.pieces()]
            choice = shape.whole("".join(piece.text for piece in pieces), answer.finish)
            if request.return_token_ids:
                choice["token_ids"] = [token for piece in pieces for token in piece.ids]
            said = shape.body([choice], chunk=False)
            return JSONResponse({**said, "usage": answer.usage(), "timings": answer.timings()})

        try:
            return await unless_gone(http.receive, whole())
        except KafilaError as error:
            raise errors.broken(str(error)) from None
        except ClientGone:
            return Response(status_code=499)  # nobody reads it
        finally:
            answer.generation.cancel()

    def _submit(self, request: Request, prompt: list[int], limit: int) -> Answer:
        if not prompt:
            raise ApiError(400, "the prompt is empty", param="prompt")
        if len(prompt) >= self._head.context:
            param = "messages" if isinstance(request, ChatRequest) else "prompt"
            raise errors.too_long(len(prompt), self._head.context, param)
        if not all(0 <= token < self._head.vocab for token in prompt):
            raise ApiError(
                400, f"token ids must be from 0 to {self._head.vocab - 1}", param="prompt"
            )
        eos = frozenset() if request.ignore_eos else self._model.eos
        params = self._model.params(request, self._head.vocab, seed=secrets.randbits(32))
        try:
            generation = self._head.submit(prompt, params, limit, eos)
        except QueueFull:
            schedule = self._head.schedule
            raise errors.busy(schedule.slots, schedule.waiting) from None
        except KafilaError as error:
            raise errors.broken(str(error)) from None
        return Answer(generation, self._model.tokens, stops=request.stop, eos=eos)

    def _known(self, name: str) -> None:
        if name != self._model.name:
            raise ApiError(
                404,
                f"no model named {name[:80]} here; this ring serves {self._model.name}",
                param="model",
                code="model_not_found",
            )

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._model.name,
            "object": "model",
            "created": self._began,
            "owned_by": "kafila",
            "context_length": self._head.context,
        }


class _Shape(ABC):
    """The JSON of one kind of completion."""

    prefix: str
    object: str
    chunk_object: str

    def __init__(self, model: str) -> None:
        self._same = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def body(self, choices: list[dict[str, Any]], *, chunk: bool) -> dict[str, Any]:
        kind = self.chunk_object if chunk else self.object
        return {**self._same, "object": kind, "choices": choices}

    def first(self) -> dict[str, Any] | None:
        """A choice that opens a stream, if this kind has one."""
        return None

    @abstractmethod
    def whole(self, text: str, finish: str) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""

    @abstractmethod
    def part(self, text: str, finish: str | None) -> dict[str, Any]:
        """A choice of a stream; `finish` in the last one only."""


class _ChatShape(_Shape):
    prefix, object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first(self) -> dict[str, Any]:
        return _choice(None, delta={"role": "assistant", "content": ""})

    def whole(self, text: str, finish: str) -> dict[str, Any]:
        return _choice(finish, message={"role": "assistant", "content": text})

    def part(self, text: str, finish: str | None) -> dict[str, Any]:
        return _choice(finish, delta={"content": text} if text or finish is None else {})


class _TextShape(_Shape):
    prefix, object, chunk_object = "cmpl", "text_completion", "text_completion"

    def whole(self, text: str, finish: str) -> dict[str, Any]:
        return _choice(finish, text=text)

    def part(self, text: str, finish: str | None) -> dict[str, Any]:
        return _choice(finish, text=text)


def _choice(finish: str | None, **content: Any) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish}


async def _events(
    answer: Answer, shape: _Shape, *, ids: bool, usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of a stream; an error is its last event."""
    none = {"usage": None} if usage else {}
    try:
        if first := shape.first():
            yield {**shape.body([first], chunk=True), **none}
        async for piece in answer.pieces():
            choice = shape.part(piece.text, None)
            if ids:
                choice["token_ids"] = piece.ids
            yield {**shape.body([choice], chunk=True), **none}
        end = shape.body([shape.part("", answer.finish)], chunk=True)
        if not usage:
            yield {**end, "timings": answer.timings()}
            return
        yield {**end, **none}
        totals = {"usage": answer.usage(), "timings": answer.timings()}
        yield {**shape.body([], chunk=True), **totals}
    except KafilaError as error:
        yield errors.broken(str(error)).body


async def _api_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{http.method} {http.url.path}: {error.detail}"
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _own_fault(http: HttpRequest, error: Exception) -> Response:
    """A fault of this program: the owner learns what it is, the client that there is one."""
    logging.getLogger(__name__).error("%s %r: %r", http.method, http.url.path, error)
    return ApiError(500, "an error inside the server", type="server_error").response()
