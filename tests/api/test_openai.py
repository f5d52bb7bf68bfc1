"""The real client against a real server on the loopback device."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from kafila.api import server
from kafila.errors import NetworkProblem
from kafila.serve.generation import Params
from tests.api.conftest import Serve, Served, produced
from tests.serve.rings import until


@asynccontextmanager
async def listening(served: Served) -> AsyncIterator[int]:
    """The API on a real port."""
    ready = asyncio.Event()
    listener = server.bind(0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so a slow reader is felt
    app = served.api.application()
    task = asyncio.ensure_future(server.answer(app, listener, lambda base: ready.set()))
    await ready.wait()
    try:
        yield listener.getsockname()[1]
    finally:
        task.cancel()
        await asyncio.wait({task})


def client(port: int) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)


async def test_the_client_gets_what_it_knows(serve: Serve) -> None:
    served = await serve(members=3)
    async with listening(served) as port, client(port) as ai:
        assert [model.id async for model in await ai.models.list()] == ["toy"]
        assert (await ai.models.retrieve("toy")).owned_by == "kafila"
        answer = await ai.chat.completions.create(
            model="toy", messages=[{"role": "user", "content": "the lake"}], max_tokens=30
        )
        text = answer.choices[0].message.content
        assert text
        assert answer.usage
        assert answer.usage.completion_tokens == 30
        stream = await ai.chat.completions.create(
            model="toy",
            messages=[{"role": "user", "content": "the lake"}],
            max_tokens=30,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        assert "".join(pieces) == text
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
        usage = chunks[-1].usage
        assert usage
        assert usage.total_tokens == answer.usage.total_tokens
        assert usage.prompt_tokens_details
        assert usage.prompt_tokens_details.cached_tokens
        completion = await ai.completions.create(model="toy", prompt="the fox", max_tokens=5)
        assert completion.choices[0].finish_reason == "length"
        parts = await ai.completions.create(
            model="toy", prompt=[7, 8, 9], max_tokens=5, stream=True
        )
        assert [part.choices[0].finish_reason async for part in parts][-1] == "length"


async def test_the_client_raises_what_it_knows(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila.serve.head.WAITING_REQUESTS", 1)
    served = await serve(groups=1, rows=1, context=3000)
    async with listening(served) as port, client(port) as ai:
        with pytest.raises(openai.BadRequestError, match="must fit the plan's context of 3000"):
            await ai.completions.create(model="toy", prompt="a" * 9000)
        with pytest.raises(openai.NotFoundError, match="no model named"):
            await ai.completions.create(model="other", prompt="a")
        with pytest.raises(openai.BadRequestError, match="one answer"):
            await ai.completions.create(model="toy", prompt="a", n=2)
        streams = [
            await ai.completions.create(model="toy", prompt="a", max_tokens=2900, stream=True)
            for _ in range(2)
        ]
        with pytest.raises(openai.RateLimitError, match="all 1 slots"):
            await ai.completions.create(model="toy", prompt="a")
        served.head._ring.fail(NetworkProblem("lost bert: timed out"))
        for stream in streams:
            with pytest.raises(openai.APIError, match="lost bert"):
                _ = [part async for part in stream]


async def test_eight_at_once_are_eight_one_by_one(serve: Serve) -> None:
    served = await serve(members=3, groups=2, rows=2)
    async with listening(served) as port, client(port) as ai:

        async def ask(number: int) -> str:
            answer = await ai.completions.create(
                model="toy", prompt=f"question {number}", max_tokens=20
            )
            return answer.choices[0].text

        one_by_one = [await ask(number) for number in range(8)]
        assert await asyncio.gather(*map(ask, range(8))) == one_by_one


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_slot(serve: Serve, stream: bool) -> None:
    served = await serve(groups=1, rows=1, context=5000)
    async with listening(served) as port, client(port) as ai:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = {"prompt": [1], "max_tokens": 4900, "stream": stream, "ignore_eos": True}
        writer.write(post(body))
        await until(lambda: produced(served) > 5)
        (generation,) = served.head._generations.values()
        writer.close()
        await until(lambda: served.head.schedule.used == 0)
        assert generation.finish == "cancelled"
        answer = await ai.completions.create(model="toy", prompt=[2], max_tokens=3)
        assert answer.usage
        assert answer.usage.completion_tokens == 3


async def test_a_client_that_stops_reading_stops_only_itself(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila.serve.generation.UNREAD_SECONDS", 0.3)
    served = await serve(groups=1, rows=2, context=5000)
    async with listening(served) as port, client(port) as ai:
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", port))
        silent.send(post({"prompt": [1], "max_tokens": 4900, "stream": True, "ignore_eos": True}))
        await until(lambda: produced(served) > 5)
        (generation,) = served.head._generations.values()
        answer = await ai.completions.create(
            model="toy", prompt=[2], max_tokens=200, extra_body={"ignore_eos": True}
        )
        assert answer.usage
        assert answer.usage.completion_tokens == 200
        await until(lambda: served.head.schedule.used == 0)
        assert generation.finish == "cancelled"
        silent.close()


async def test_silence_is_filled_with_comments(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila.api.stream.KEEPALIVE_SECONDS", 0.01)
    served = await serve(groups=1, rows=1, context=5000)
    async with listening(served) as port:
        holder = served.head.submit([1], Params(), 4900, frozenset())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post({"prompt": [1], "max_tokens": 1, "stream": True}))
        head = await reader.readuntil(b"\n\n")
        assert b"200 OK" in head
        assert b": still working" in head + await reader.readuntil(b"\n\n")
        holder.cancel()
        await reader.readuntil(b"data: [DONE]\n\n")
        writer.close()


@pytest.mark.parametrize("sent", [b"", b'{"prompt": '])
async def test_a_body_that_never_ends(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("kafila.api.body.BODY_SECONDS", 0.05)
    served = await serve()
    async with listening(served) as port, asyncio.timeout(3):  # before a kept connection closes
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head, _, body = post({"prompt": [1]}).partition(b"\r\n\r\n")
        assert len(sent) < len(body)
        writer.write(head + b"\r\n\r\n" + sent)
        answer = await reader.read()  # to its end: the connection is given up
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"was not whole within 0.05 seconds" in answer


async def test_a_body_that_is_too_large_is_heard_out(serve: Serve) -> None:
    """Else its sender, still writing to a closed connection, would not get to read why."""
    served = await serve()
    async with listening(served) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = post({"prompt": "x" * (8 << 20)})
        writer.write(request.replace(b"host:", b"connection: close\r\nhost:", 1))
        await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 413")
        writer.close()


async def test_a_client_that_leaves_before_its_body_ends_is_no_fault(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    async with listening(served) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post({"prompt": [1]})[:-3])
        await writer.drain()
        writer.close()
        async with client(port) as ai:
            assert await ai.completions.create(model="toy", prompt=[2], max_tokens=1)
    assert not [record for record in caplog.records if record.name == "kafila.api.app"]


def test_a_port_in_use() -> None:
    first = server.bind(0)
    first.listen()
    port = first.getsockname()[1]
    with pytest.raises(NetworkProblem, match=f"port {port} on 127.0.0.1 is in use"):
        server.bind(port)
    first.close()


def post(fields: dict[str, Any]) -> bytes:
    """A raw request for /v1/completions."""
    body = json.dumps(fields).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
