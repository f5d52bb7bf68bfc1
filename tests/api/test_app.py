"""The API over a real head and ring, by plain HTTP requests."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from kafila.api import errors
from kafila.api.body import parse
from kafila.api.errors import ApiError
from kafila.api.model import Model
from kafila.api.schema import CompletionRequest, Request
from kafila.defaults import BODY_EXTRA_BYTES, BODY_TOKEN_BYTES, MESSAGES
from kafila.errors import CheckpointProblem, NetworkProblem
from tests.api.conftest import Serve, produced
from tests.serve.rings import until


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, which must end as OpenAI's do."""
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(b.removeprefix("data: ")) for b in blocks[:-2] if b.startswith("data: ")]


JSON = {"content-type": "application/json"}


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
    await served.chat("a lake", max_tokens=1)
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


async def test_usage_tells_what_was_not_computed_again(serve: Serve) -> None:
    served = await serve(members=2)
    answers = [(await served.chat("the lake " * 5, max_tokens=3)).json() for _ in range(2)]
    contents = {answer["choices"][0]["message"]["content"] for answer in answers}
    assert len(contents) == 1
    prompt = answers[0]["usage"]["prompt_tokens"]
    held = (prompt - 1) // 16 * 16  # the toys' chunk has 16 tokens
    cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
    assert cached == [0, held]
    times = [answer["timings"] for answer in answers]
    assert [(t["cache_n"], t["prompt_n"]) for t in times] == [(0, prompt), (held, prompt - held)]


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


@pytest.mark.parametrize(
    "numbers",
    [
        {"top_k": 2**40},
        {"top_k": -1},
        {"top_k": 10**300},
        {"max_tokens": 10**30},
        {"seed": -(2**70)},
        {"seed": 2**32},
        {"temperature": 5e-324},
        {"min_p": 1, "top_p": 5e-324},
    ],
)
async def test_any_number_is_followed_or_refused(serve: Serve, numbers: dict[str, Any]) -> None:
    """None of them may wedge the ring: the next request is served as ever."""
    served = await serve()
    body = {"prompt": [1], "max_tokens": 3, "temperature": 1, "seed": 1}
    before = (await served.http.post("/v1/completions", json=body)).json()["choices"]
    response = await served.http.post("/v1/completions", json={**body, **numbers})
    assert response.status_code == 200
    assert (await served.http.post("/v1/completions", json=body)).json()["choices"] == before


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "top_k", "max_tokens"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "true1", '"x"', "-2"])
async def test_numbers_that_are_none(serve: Serve, name: str, number: str) -> None:
    served = await serve()
    content = f'{{"prompt": [1], "{name}": {number}}}'
    response = await served.http.post("/v1/completions", content=content, headers=JSON)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_numbers_fit_a_stages_arrays(model: Model) -> None:
    for fields in ({"top_k": 2**40, "seed": -1}, {"top_k": -1, "seed": 2**70, "temperature": 1e-9}):
        request = CompletionRequest.model_validate({"prompt": [1], **fields})
        params = model.params(request, vocab=320, seed=0)
        assert 0 <= params.top_k <= 320
        assert 0 <= params.seed < 2**32
        assert params.temperature == 0.0, "the checkpoint's do_sample is false, or as good as 0"


def test_a_checkpoints_own_numbers_are_checked(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "generation_config.json"
    for text, words in [
        ('{"temperature": NaN}', "temperature"),
        ('{"temperature": -1}', "temperature"),
        ('{"top_k": 1e400}', "top_k"),
        ('{"top_p": "all"}', "top_p"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
    ]:
        file.write_text(text)
        with pytest.raises(CheckpointProblem, match=words) as caught:
            Model.open("toy", tmp_path)
        assert str(file) in str(caught.value)
    file.write_text('{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": 7}')
    defaults = Model.open("toy", tmp_path).defaults
    assert (defaults.temperature, defaults.top_k, defaults.top_p) == (0.6, 20, 0.95)


@pytest.mark.parametrize("host", ["127.0.0.1:8210", "localhost", "LOCALHOST:1", "[::1]:8210"])
async def test_own_hosts(serve: Serve, host: str) -> None:
    served = await serve()
    assert (await served.http.get("/health", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost:1:2", ""])
async def test_a_web_page_cannot_reach_the_api_by_its_own_name(serve: Serve, host: str) -> None:
    served = await serve()
    for method, path in [("GET", "/health"), ("POST", "/v1/completions"), ("GET", "/none")]:
        response = await served.http.request(method, path, headers={"host": host})
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (403, "unknown_host")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""]
)
async def test_a_web_page_cannot_post_without_asking_first(serve: Serve, kind: str) -> None:
    served = await serve()
    for path in ("/v1/completions", "/v1/chat/completions"):
        headers = {"content-type": kind}
        response = await served.http.post(path, content=b'{"prompt": [1]}', headers=headers)
        assert response.status_code == 415
        assert "application/json" in response.json()["error"]["message"]
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    content = b'{"prompt": [1], "max_tokens": 1}'
    answered = await served.http.post("/v1/completions", content=content, headers=headers)
    assert answered.status_code == 200


async def test_an_own_fault_says_nothing_of_the_inside(
    serve: Serve, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(model=Model("toy", template=model.template, tokens=object()))  # type: ignore[arg-type]
    response = await served.chat("hi")
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (500, "server_error")
    assert error["message"] == "an error inside the server"
    (line,) = [record.getMessage() for record in caplog.records if record.name == "kafila.api.app"]
    assert line.startswith("POST '/v1/chat/completions': AttributeError(")


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
            "only text parts are supported",
        ),
        (
            {"messages": says([{"type": "text", "text": "x"}, {"type": "text"}])},
            400,
            "messages.0.content",
            "must have its text",
        ),
        ({"messages": [says("x"), 1]}, 400, "messages.0", "must be a JSON object"),
        ({"messages": says("x") * 8193}, 400, "messages", "at most 8192"),
        ({"max_tokens": "5"}, 400, "max_tokens", "valid integer"),
        ({"max_tokens": True}, 400, "max_tokens", "valid integer"),
        ({"max_completion_tokens": 5.0}, 400, "max_completion_tokens", "valid integer"),
        ({"top_k": True}, 400, "top_k", "valid integer"),
        ({"seed": "1"}, 400, "seed", "valid integer"),
        ({"temperature": "1"}, 400, "temperature", "valid number"),
        ({"temperature": True}, 400, "temperature", "valid number"),
        ({"stream": "yes"}, 400, "stream", "valid boolean"),
        ({"stop": [""]}, 400, "stop.0", "at least 1"),
        ({"logit_bias": {"1": "x"}}, 400, "logit_bias", "not followed"),
        ({"temperature": 3}, 400, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, 400, "top_p", "greater than 0"),
        ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        ({"n": 2}, 400, "n", "one answer"),
        ({"logprobs": True}, 400, "logprobs", "not offered"),
        ({"logprobs": 0}, 400, "logprobs", "not offered"),
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
    ("prompt", "words"),
    [
        ([], "the prompt is empty"),
        ([[]], "the prompt is empty"),
        ([""], "the prompt is empty"),
        ([5, 320], "from 0 to 319"),
        ([-1], "from 0 to 319"),
        ([2**70], "from 0 to 319"),
        ([True], "whole numbers"),
        ([1, 1.0], "whole numbers"),
        ([1, None], "whole numbers"),
        ([[[1]]], "whole numbers"),
        (["a", "b"], "one prompt a request"),
        (["a", 1], "one prompt a request"),
        ([[1], [2]], "one prompt a request"),
        (list(range(256)), "256 tokens"),
        ([-1] * 256, "256 tokens"),
        (7, "a text or a list of token ids"),
        ({"a": 1}, "a text or a list of token ids"),
        (None, "Field required"),
    ],
)
async def test_bad_prompts(serve: Serve, prompt: Any, words: str) -> None:
    served = await serve()
    response = await served.http.post("/v1/completions", json={"prompt": prompt})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "prompt")
    assert words in error["message"]


ABSENT = (
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "ignore_eos",
    "return_token_ids",
    "n",
    "best_of",
    "logprobs",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "chat_template_kwargs",
    "tools",
    "functions",
    "response_format",
    "suffix",
    "echo",
    "user",
)


async def test_null_says_nothing(serve: Serve) -> None:
    served = await serve()
    nulls = dict.fromkeys(ABSENT)
    options = {"stream_options": {"include_usage": None}}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": says("hi") + says(None, "assistant")}),
        ("/v1/completions", {"prompt": [1]}),
    ]
    for path, body in bodies:
        responses = [
            await served.http.post(path, json={**body, **more}) for more in ({}, nulls, options)
        ]
        assert [response.status_code for response in responses] == [200, 200, 200]
        plain, *others = [response.json()["choices"] for response in responses]
        assert others == [plain, plain]


async def test_a_byte_order_mark_is_no_fault(serve: Serve) -> None:
    served = await serve()
    content = b'\xef\xbb\xbf{"prompt": [1], "max_tokens": 1}'
    response = await served.http.post("/v1/completions", content=content, headers=JSON)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff",
        b'{"prompt": ' + b"[" * 9000,
        b'{"prompt": "\\ud800"}',
        b'{"prompt": [1], "seed": ' + b"9" * 5000 + b"}",
    ],
)
async def test_malformed_json(serve: Serve, content: bytes) -> None:
    served = await serve()
    response = await served.http.post("/v1/completions", content=content, headers=JSON)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_a_body_beyond_the_bound(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await serve()
    most = BODY_EXTRA_BYTES + 256 * BODY_TOKEN_BYTES
    for size, status in ((most - 100, 400), (most, 413)):
        content = b'{"prompt": [' + b" " * size + b"]}"
        response = await served.http.post("/v1/completions", content=content, headers=JSON)
        assert response.status_code == status
    assert "context of 256 tokens" in response.json()["error"]["message"]
    monkeypatch.setattr("kafila.api.body.BODY_BYTES", 100)
    assert (await served.chat("x" * 100)).status_code == 413


TURN = '{"messages": [{"role": "user"}], '


@pytest.mark.parametrize("times", [MESSAGES - 2, 50_000])
@pytest.mark.parametrize(
    ("path", "before", "again", "after"),
    [
        ("chat/completions", '{"messages": [', "1,", "1]}"),
        ("chat/completions", '{"messages": [', "{},", "{}]}"),
        ("chat/completions", '{"messages": [', '{"role": "user"},', '{"role": "user"}]}'),
        ("chat/completions", '{"messages": [{"role": "user", "content": [', "1,", "1]}]}"),
        ("chat/completions", TURN + '"stop": [', "1,", "1]}"),
        ("chat/completions", TURN + '"tools": [', "1,", "1]}"),
        ("chat/completions", TURN + '"logit_bias": {', '"#": "x",', '"": "x"}}'),
        ("completions", '{"prompt": ["a", ', "1,", "1]}"),
        ("completions", '{"prompt": [1, ', '"a",', "1]}"),
        ("completions", '{"prompt": [', '"a",', '"a"]}'),
        ("completions", '{"prompt": [[1], ', '"a",', "1]}"),
        ("completions", '{"prompt": [[', '"a",', "1]]}"),
        ("completions", '{"prompt": [', "1,", "1]}"),
    ],
)
async def test_a_body_that_is_all_faults_costs_no_more_than_one_fault(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    before: str,
    again: str,
    after: str,
    times: int,
) -> None:
    """Its faults are not collected, and the loop, which carries the ring, turns meanwhile."""
    collected, turns = [0], [0]
    loop, invalid = threading.get_ident(), errors.invalid

    def counted(error: ValidationError) -> ApiError:
        collected.append(error.error_count())
        return invalid(error)

    def parsed(data: bytes, kind: type[Request]) -> Request:
        assert threading.get_ident() != loop
        began = turns[0]
        while turns[0] < began + 5:
            time.sleep(0.001)
        return parse(data, kind)

    async def turn() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(errors, "invalid", counted)
    monkeypatch.setattr("kafila.api.body.parse", parsed)
    served = await serve()
    turning = asyncio.ensure_future(turn())
    content = before + "".join(again.replace("#", str(n)) for n in range(times)) + after
    async with asyncio.timeout(30):
        response = await served.http.post(f"/v1/{path}", content=content, headers=JSON)
    turning.cancel()
    assert response.status_code == 400
    assert len(response.content) < 1000
    assert max(collected) <= 2


async def test_unknown_paths_and_fields(serve: Serve) -> None:
    served = await serve()
    for method, path, status, words in [
        ("GET", "/v1/embeddings", 404, "Not Found"),
        ("GET", "/v1/completions", 405, "Method Not Allowed"),
        ("POST", "/health", 405, "Method Not Allowed"),
    ]:
        response = await served.http.request(method, path)
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (status, "invalid_request_error")
        assert error["message"] == f"{method} {path}: {words}"
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
    await until(lambda: produced(served) > 10)
    served.head._ring.fail(NetworkProblem("lost bert: timed out"))
    whole, stream = await asyncio.gather(*running)
    assert whole.status_code == 503
    assert whole.json()["error"]["message"] == "m0: lost bert: timed out"
    assert events(stream)[-1]["error"]["code"] == "ring_failed"
    assert (await served.chat("hi")).status_code == 503
