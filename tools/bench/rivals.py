"""Other software running the shape that a stage runs, beside it in the same minutes.

Each answers how many tokens a second it makes with random weights: decoding `rows` sequences that
hold `position` tokens already, and reading a prompt.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from stages.config import Qwen3Config
from tools.bench import gguf

TOKENS = 24
"""Decoded in one measurement."""

SETTLE = 2.0
"""Seconds in which the kernel takes back what a process held; nothing else is measured in them."""


class Rival(Protocol):
    name: str

    def decode(self, rows: int, position: int) -> float: ...

    def prefill(self, tokens: int) -> float: ...

    def close(self) -> None: ...


class LlamaCpp:
    """llama-bench and llama-batched-bench of a build folder; threads as many as cores."""

    name = "llama.cpp"

    def __init__(self, programs: Path, config: Qwen3Config, cores: int):
        self._programs = programs
        self._folder = tempfile.TemporaryDirectory()
        model = gguf.write(Path(self._folder.name) / "model.gguf", config)
        self._common = ["-m", str(model), "-t", str(cores)]

    def decode(self, rows: int, position: int) -> float:
        if rows == 1:
            return self._bench("-p", "0", "-n", str(TOKENS), "-d", str(position))
        room = str(rows * (position + TOKENS) + 64)
        sizes = ["-npp", str(position), "-ntg", str(TOKENS), "-npl", str(rows), "-c", room]
        said = self._run("llama-batched-bench", *sizes, "--output-format", "jsonl")
        found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        return float(found[-1]["speed_tg"])

    def prefill(self, tokens: int) -> float:
        return self._bench("-p", str(tokens), "-n", "0")

    def spread(self, tokens: int, position: int, servers: Sequence[str], layers: int) -> float:
        """Decode one sequence, with that many of the layers on RPC servers (host:port)."""
        where = "--rpc", ",".join(servers), "-ngl", str(layers)
        return self._bench("-p", "0", "-n", str(tokens), "-d", str(position), *where)

    def close(self) -> None:
        self._folder.cleanup()

    def _bench(self, *sizes: str) -> float:
        said = self._run("llama-bench", *sizes, "-r", "1", "-o", "json")
        return float(json.loads(said)[-1]["avg_ts"])

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._programs / program), *self._common, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{program} ends with {done.returncode}: {done.stderr[-500:]}")
        time.sleep(SETTLE)
        return done.stdout


class Way(NamedTuple):
    """How llama.cpp spreads a model over local servers."""

    servers: int
    layers: int
    """On the servers; llama-bench computes the others itself."""
    threads: int
    """Of each server."""

    def __str__(self) -> str:
        some = "1 server" if self.servers == 1 else f"{self.servers} servers"
        return f"{self.layers} layers on {some} of {self.threads} threads"


class LlamaRing:
    """llama-bench and ggml-rpc-servers on loopback, which start and stop with it.

    Its own process keeps an equal share of the layers or none of the model, and a server has one
    thread (what it takes by itself on two cores) or one a core. Which is fastest differs by the
    number of servers, so these are all `ways`.
    """

    def __init__(self, programs: Path, config: Qwen3Config):
        cores = len(os.sched_getaffinity(0))
        threads, all_layers = sorted({1, cores}), config.blocks + 1  # the unembedding counts as one
        self.ways = [
            Way(servers, layers, each)
            for servers in (1, 2)
            for layers in (config.blocks * servers // (servers + 1), all_layers)
            for each in threads
        ]
        self._stack = ExitStack()
        try:
            self._addresses = {
                each: [_rpc_server(self._stack, programs, each) for _ in range(2)]
                for each in threads
            }
            self._bench = LlamaCpp(programs, config, cores)
            self._stack.callback(self._bench.close)
        except BaseException:
            self.close()
            raise

    def decode(self, way: Way, tokens: int, position: int) -> float:
        servers = self._addresses[way.threads][: way.servers]
        return self._bench.spread(tokens, position, servers, way.layers)

    def close(self) -> None:
        self._stack.close()


def _rpc_server(stack: ExitStack, programs: Path, threads: int) -> str:
    """Start a ggml-rpc-server, to be stopped by the stack; its address once it listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        host, port = free.getsockname()
    words = [programs / "ggml-rpc-server", "-H", host, "-p", str(port), "-t", str(threads)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    for _ in range(100):
        try:
            socket.create_connection((host, port)).close()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            return f"{host}:{port}"
    raise RuntimeError("ggml-rpc-server does not listen within 10 s")


class Transformers:
    """A process of another Python, which has torch and transformers; it answers line by line."""

    name = "transformers"

    def __init__(self, python: Path, config: Qwen3Config):
        shape = {
            "vocab_size": config.vocab,
            "hidden_size": config.hidden,
            "intermediate_size": config.ffn,
            "num_hidden_layers": config.blocks,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "rms_norm_eps": config.eps,
            "tie_word_embeddings": config.tied,
            "max_position_embeddings": config.max_positions,
        }
        self._process = subprocess.Popen(
            [str(python), "-c", _TRANSFORMERS, json.dumps(shape), config.dtype, str(TOKENS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def decode(self, rows: int, position: int) -> float:
        return self._ask("decode", rows, position)

    def prefill(self, tokens: int) -> float:
        return self._ask("prefill", 1, tokens)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _ask(self, *what: object) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*what, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"transformers ended with {self._process.wait()}, see above")
        return float(answer)


_TRANSFORMERS = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM, DynamicCache, Qwen3Config

shape, dtype, steps = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
model = AutoModelForCausalLM.from_config(Qwen3Config(**shape), dtype=getattr(torch, dtype)).eval()

@torch.inference_mode()
def measure(what, rows, length):
    cache = DynamicCache(config=model.config)
    prompt = torch.randint(0, model.config.vocab_size, (rows, length))
    began = time.perf_counter()
    logits = model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    if what == "prefill":
        return rows * length / (time.perf_counter() - began)
    for step in range(-2, steps):
        if step == 0:
            began = time.perf_counter()
        token = logits[:, -1:].argmax(-1)
        logits = model(token, past_key_values=cache, use_cache=True).logits
    return rows * steps / (time.perf_counter() - began)

for line in sys.stdin:
    what, rows, length = line.split()
    print(measure(what, int(rows), int(length)), flush=True)
"""
