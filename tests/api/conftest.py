"""A small real tokenizer and template, and an API over a ring of toy stages."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from kafila.api.app import Api
from kafila.api.model import Model
from kafila.serve.head import Head
from tests.serve.rings import fleet
from tests.serve.toy import VOCAB, ToyStage, divide

TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think></think>' }}
{%- endif %}
{%- endif %}"""

END = "<|im_end|>"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint's folder without weights: byte-level BPE, ChatML, no sampling by default."""
    path = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 3,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the fox and the lake, the lake and the fox"] * 9, trainer)
    special = [AddedToken(text, special=True) for text in ("<|im_start|>", END)]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"eos_token": END, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps({"do_sample": False}))
    return path


@pytest.fixture(scope="session")
def model(folder: Path) -> Model:
    """The checkpoint as the API sees it."""
    return Model.open("toy", folder)


@dataclass
class Served:
    """A ring with its API."""

    head: Head
    api: Api
    http: httpx.AsyncClient

    async def chat(self, text: str, **more: Any) -> httpx.Response:
        """One chat request."""
        body = {"model": "toy", "messages": [{"role": "user", "content": text}], **more}
        return await self.http.post("/v1/chat/completions", json=body)


Serve = Callable[..., Awaitable[Served]]


def produced(served: Served) -> int:
    """Tokens of all running requests so far."""
    return sum(generation.produced for generation in served.head._generations.values())


@pytest_asyncio.fixture
async def serve(model: Model) -> AsyncIterator[Serve]:
    """Starts an API over a ring of `members` toy stages."""
    async with AsyncExitStack() as stack:

        async def start(members: int = 2, model: Model = model, **sizes: int) -> Served:
            sizes = {"context": 256, "chunk": 16} | sizes
            toys = [ToyStage(blocks, **sizes) for blocks in divide(5, members)]
            ring = await stack.enter_async_context(fleet(toys))
            api = Api(ring.head, model, lambda: {"status": "ok"})
            transport = httpx.ASGITransport(api.application(), raise_app_exceptions=False)
            http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
            await stack.enter_async_context(http)
            return Served(ring.head, api, http)

        yield start
