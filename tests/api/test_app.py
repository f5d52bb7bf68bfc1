"""The API over a real head and ring, by plain HTTP requests."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from kafila.api.model import Model
from kafila.errors import NetworkProblem
from tests.api.conftest import Serve
from tests.serve.rings import until


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, which must end as OpenAI's do."""
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(b.removeprefix("data: ")) for b in blocks[:-2] if b.startswith("data: ")]


def says(content: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": content}]


async def test_chat(serve: Serve) -> None:
    served = await serve()
    answer = (await served.chat("the fox", max_tokens=9)).json()
    (choice,) = answer["choices"]
    assert answer["object"] == "chat.completion"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 9
    assert usage["total_tokens"] == usage["prompt_tokens"] + 9
    assert answer["timings"]["predicted_n"] == 9
    assert answer["timings"]["predicted_per_second"] > 0


async def test_a_stream_says_the_same_as_a_whole_answer(serve: Serve) -> None:
    served = await serve(members=3)
    whole = (await served.chat("a lake", max_tokens=40)).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = events(await served.chat("a lake", max_tokens=40, **options))
    assert stream[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(
        choice["delta"].get("content", "") for event in stream for choice in event["choices"]
    )
    assert text == whole["choices"][0]["message"]["content"]
    assert stream[-2]["choices"][0]["finish_reason"] == "length"
    assert all(event["usage"] is None for event in stream[:-1])
    assert stream[-1]["choices"] == []
    assert stream[-1]["usage"] == whole["usage"]
    assert stream[-1]["timings"]["predicted_per_second"] > 0
    assert len({event["id"] for event in stream}) == 1


async def test_text_and_token_prompts_are_the_same(serve: Serve, model: Model) -> None:
    served = await serve()
    assert model.tokens
    ids = model.tokens.encode("the fox", special=True)
    answers = []
    for prompt in ("the fox", ids, ["the fox"], [ids]):
        body = {"prompt": prompt, "max_tokens": 7, "return_token_ids": True}
        answers.append((await served.http.post("/v1/completions", json=body)).json())
    assert answers[0]["object"] == "text_completion"
    assert len(answers[0]["choices"][0]["token_ids"]) == 7
    assert len({json.dumps(answer["choices"]) for answer in answers}) == 1


async def test_streamed_token_ids_are_all_there(serve: Serve) -> None:
    served = await serve()
    body = {"prompt": [1, 2], "max_tokens": 30, "return_token_ids": True, "ignore_eos": True}
    whole = (await served.http.post("/v1/completions", json=body)).json()
    stream = events(await served.http.post("/v1/completions", json={**body, "stream": True}))
    ids = [token for event in stream for token in event["choices"][0].get("token_ids", [])]
    assert ids == whole["choices"][0]["token_ids"]
    assert len(ids) == 30
    assert "".join(event["choices"][0]["text"] for event in stream) == whole["choices"][0]["text"]


async def test_a_stop_string_ends_the_answer_and_frees_the_slot(serve: Serve) -> None:
    served = await serve()
    text = (await served.chat("the fox", max_tokens=60)).json()["choices"][0]["message"]["content"]
    stop = text[10:13]
    answer = (await served.chat("the fox", max_tokens=60, stop=stop)).json()
    assert answer["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 60
    await until(lambda: served.head.schedule.used == 0)


async def test_the_models_own_end(serve: Serve, model: Model) -> None:
    served = await serve()
    body = {"prompt": [1, 2, 3], "max_tokens": 20, "return_token_ids": True, "ignore_eos": True}
    ids = (await served.http.post("/v1/completions", json=body)).json()["choices"][0]["token_ids"]
    ending = Model("toy", model.tokens, model.template, frozenset([ids[5]]), model.defaults)
    served = await serve(model=ending)
    body["ignore_eos"] = False
    answer = (await served.http.post("/v1/completions", json=body)).json()
    assert answer["choices"][0]["token_ids"] == ids[: ids.index(ids[5]) + 1]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert model.tokens
    assert answer["choices"][0]["text"] == model.tokens.decode(ids[: ids.index(ids[5])])


async def test_seeds(serve: Serve) -> None:
    served = await serve()
    texts = [
        (await served.chat("hi", max_tokens=9, temperature=1, seed=seed)).json()["choices"]
        for seed in (1, 1, 2, -1)
    ]
    assert texts[0] == texts[1] != texts[2]


async def test_models_and_health(serve: Serve) -> None:
    served = await serve()
    listed = (await served.http.get("/v1/models")).json()
    assert [card["id"] for card in listed["data"]] == ["toy"]
    assert (await served.http.get("/v1/models/toy")).json() == listed["data"][0]
    assert (await served.http.get("/health")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({}, 400, "messages", "Field required"),
        ({"messages": []}, 400, "messages", "at least 1"),
        (
            {"messages": [{"role": "user", "content": "x " * 300}]},
            400,
            "messages",
            "context of 256",
        ),
        (
            {"messages": [{"role": "king", "content": "x"}]},
            400,
            "messages.0.role",
            "Input should be",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages.0.content",
            "",
        ),
        ({"temperature": 3}, 400, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, 400, "top_p", "greater than 0"),
        ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        ({"n": 2}, 400, "n", "one answer"),
        ({"logprobs": True}, 400, "logprobs", "not offered"),
        ({"presence_penalty": 1}, 400, "presence_penalty", "not followed"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "not offered"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format", "only text"),
        ({"stop": ["a"] * 5}, 400, "stop", "at most 4"),
        ({"model": "gpt-9"}, 404, "model", "no model named gpt-9"),
    ],
)
async def test_bad_requests(
    serve: Serve, body: dict[str, Any], status: int, param: str, words: str
) -> None:
    served = await serve()
    if body and "messages" not in body:
        body = {"messages": says("hi"), **body}
    response = await served.http.post("/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, "invalid_request_error")
    assert words in error["message"]
    assert error["param"].startswith(param)


@pytest.mark.parametrize(
    "prompt", [[], [5, 320], [-1], ["a", "b"], list(range(256)), [[1], [2]], 7, None]
)
async def test_bad_prompts(serve: Serve, prompt: Any) -> None:
    served = await serve()
    response = await served.http.post("/v1/completions", json={"prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"prompt": ' + b"[" * 9000])
async def test_malformed_json(serve: Serve, content: bytes) -> None:
    served = await serve()
    response = await served.http.post("/v1/completions", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_a_body_beyond_the_bound(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafila.api.app.BODY_BYTES", 100)
    served = await serve()
    assert (await served.chat("x" * 100)).status_code == 413


async def test_unknown_paths_and_fields(serve: Serve) -> None:
    served = await serve()
    response = await served.http.get("/v1/embeddings")
    assert response.status_code == 404
    assert "Not Found" in response.json()["error"]["message"]
    response = await served.http.get("/v1/completions")
    assert response.status_code == 405
    assert (await served.chat("hi", max_tokens=1, user="me", store=True)).status_code == 200


async def test_without_a_tokenizer_token_ids_still_work(serve: Serve) -> None:
    served = await serve(model=Model("toy"))
    assert "no tokenizer" in (await served.chat("hi")).json()["error"]["message"]
    response = await served.http.post("/v1/completions", json={"prompt": "hi"})
    assert "no tokenizer" in response.json()["error"]["message"]
    body = {"prompt": [1, 2], "max_tokens": 5, "return_token_ids": True}
    (choice,) = (await served.http.post("/v1/completions", json=body)).json()["choices"]
    assert len(choice["token_ids"]) == 5
    assert choice["text"] == ""


async def test_too_many_requests(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafila.serve.head.WAITING_REQUESTS", 2)
    served = await serve(groups=1, rows=1)
    responses = await asyncio.gather(*(served.chat("hi", max_tokens=9) for _ in range(5)))
    codes = sorted(response.status_code for response in responses)
    assert codes == [200, 200, 200, 429, 429]
    refused = next(response for response in responses if response.status_code == 429)
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json()["error"]["code"] == "queue_full"


async def test_a_failed_ring(serve: Serve) -> None:
    served = await serve(context=4000)
    slow = {"max_tokens": 3900}
    running = [
        asyncio.ensure_future(served.chat("hi", **slow)),
        asyncio.ensure_future(served.chat("hi", stream=True, **slow)),
    ]
    await until(lambda: served.head.decoded.total > 10)
    served.head._ring.fail(NetworkProblem("lost bert: timed out"))
    whole, stream = await asyncio.gather(*running)
    assert whole.status_code == 503
    assert whole.json()["error"]["message"] == "lost bert: timed out"
    assert events(stream)[-1]["error"]["code"] == "ring_failed"
    assert (await served.chat("hi")).status_code == 503
