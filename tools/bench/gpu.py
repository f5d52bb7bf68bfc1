"""One run on a machine with an NVIDIA GPU, within minutes and without the network's packages.

Every part is a process of its own with a deadline: what fails, hangs or no longer fits the time is
named, and nothing else is lost. What a part has found is shown when it is over, and the last line
is all of it as JSON: stages of two Qwen3 shapes with random weights, the device's copy bandwidth,
the plan's error, and transformers on torch with a static cache and CUDA graphs.

    python -m tools.bench.gpu
    python -m tools.bench.gpu --tiny        # small shapes, also on a CPU: does all of it run?
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

BUDGET = 450.0
"""Seconds of the whole run."""

PARTS = {"ours": 150.0, "torch": 75.0}
"""Seconds of a part at most; the smaller shape leaves some over for the larger one."""

SHAPES = {"full": ("0.6B", "8B"), "tiny": ("tiny",)}

ROWS = (1, 4, 16)

CONTEXTS = {"full": (512, 4096), "tiny": (32, 128)}

PROMPT = {"full": 512, "tiny": 64}

COPY_BYTES = {"full": 2 << 30, "tiny": 64 << 20}

STEPS = 32
"""Tokens decoded in one measurement, after a few that are not counted."""

WARM_STEPS = 4

Found = dict[str, Any]


class Clock:
    """A part's time, most of which goes into compiling: nothing is begun that may not end."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._longest = 0.0

    def tried(self, name: str, run: Callable[[], Found]) -> None:
        """Print what `run` finds, or why it found nothing."""
        left = self._end - time.monotonic()
        began = time.monotonic()
        if left < 1.2 * self._longest:
            found: Found = {"skipped": f"{left:.0f} s left, the last took {self._longest:.0f} s"}
        else:
            try:
                found = run()
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
        took = time.monotonic() - began
        self._longest = max(self._longest, took)
        print(json.dumps({"what": name, **found, "seconds": round(took, 1)}), flush=True)


def milliseconds(step: Callable[[], object], done: Callable[[], object] = lambda: None) -> float:
    """Of one step, the mean over STEPS of them."""
    for _ in range(WARM_STEPS):
        step()
    done()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    done()
    return 1e3 * (time.perf_counter() - began) / STEPS


# --- our stages ------------------------------------------------------------------------------


def ours(size: str, scale: str, clock: Clock) -> None:
    """Whole models of one stage: probe, decoding, prefill."""
    import jax
    import numpy as np

    from stages import random, stage
    from stages.measure import Measured, Probe, Shapes
    from stages.sampling import Sampling
    from tools.bench.cost import predicted_us
    from tools.make_checkpoint import SIZES

    config = SIZES[size]
    device = jax.devices()[0]
    copied: list[float] = []
    probes: list[Measured] = []
    weights: list[list[jax.Array]] = []
    top: list[jax.Array] = []

    def machine() -> Found:
        add = jax.jit(lambda x: x + 1)
        read = jax.jit(lambda x: x.max())
        x = jax.numpy.zeros(COPY_BYTES[scale] // 4, "float32")
        last = x

        def run(function: Callable[[jax.Array], jax.Array]) -> None:
            nonlocal last
            last = function(x)

        def done() -> None:
            last.block_until_ready()

        copy_ms = milliseconds(lambda: run(add), done)
        read_ms = milliseconds(lambda: run(read), done)
        copied.append(2 * x.nbytes / copy_ms * 1e3)
        return {
            "device": device.device_kind,
            "platform": device.platform,
            "jax": jax.__version__,
            "copy_gb_per_s": round(copied[0] / 1e9, 1),
            "read_gb_per_s": round(x.nbytes / read_ms / 1e6, 1),
        }

    def probe() -> Found:
        probes.append(Probe(Shapes.of(config)).measured())
        return {
            "gb_per_s": round(probes[0].bandwidth / 1e9, 1),
            "overhead_us": probes[0].overhead_us,
            "block_us": round(probes[0].block_ns / 1e3, 1),
            "measured": dataclasses.asdict(probes[0]),
        }

    def load() -> Found:
        first = random.block(config)  # one from here, the others on the device
        weights.append(first)
        weights.extend([jax.numpy.copy(leaf) for leaf in first] for _ in range(1, config.blocks))
        top.extend(random.head(config, config.blocks))
        return {"weight_bytes": sum(leaf.nbytes for block in weights for leaf in block)}

    def opened(context: int, rows: int, chunks: bool, depth: int = 0) -> stage.Stage:
        # One number of rows or one length of chunks, and one depth: the others take minutes.
        def decode_buckets(rows: int) -> list[int]:
            return [] if chunks else [rows]

        def prefill_buckets(context: int) -> list[int]:
            return [min(stage.PREFILL_CHUNK, context)] if chunks else []

        def depth_buckets(context: int) -> list[int]:
            return [depth or context]

        stage.decode_buckets, stage.prefill_buckets = decode_buckets, prefill_buckets
        stage.depth_buckets = depth_buckets
        return stage.Stage(config, weights, top, context=context, groups=1, rows=rows)

    def decode(context: int, rows: int, declared: int = 0) -> Found:
        """At this position; of a larger declared context a quarter is read, and not all."""
        began = time.monotonic()
        held = declared or context + STEPS + WARM_STEPS
        one = opened(held, rows, chunks=False, depth=declared // 4)
        compiling = time.monotonic() - began
        x = np.ones((rows, config.hidden), one.wire_dtype)
        positions, greedy = np.full(rows, context, np.int32), Sampling.greedy(rows)
        took = milliseconds(lambda: one.step(0, positions, x, greedy))
        read = sum(leaf.nbytes for block in weights for leaf in block)
        read += config.vocab * config.hidden * config.itemsize
        read += rows * context * config.kv_bytes * config.blocks
        found: Found = {
            "ms": round(took, 3),
            "tokens_per_s": round(1e3 * rows / took, 1),
            "gb_per_s": round(read / took / 1e6, 1),
            "compile_s": round(compiling, 1),
        }
        if copied:
            found["share_of_copy"] = round(read / took * 1e3 / copied[0], 3)
        if probes:
            said = predicted_us(config, probes[0], config.blocks, True, context, rows) / 1e3
            found |= {"planned_ms": round(said, 3), "plan_error": round(said / took - 1, 3)}
        return found

    def prefill() -> Found:
        tokens = PROMPT[scale]
        one = opened(tokens, 1, chunks=True)
        x = np.ones((tokens, config.hidden), one.wire_dtype)

        def chunks() -> None:
            for start in range(0, tokens, one.chunk):
                one.prefill(0, 0, start, x[start : start + one.chunk])

        took = milliseconds(chunks)
        return {"ms": round(took, 2), "tokens_per_s": round(1e3 * tokens / took)}

    clock.tried("machine", machine)
    clock.tried("probe", probe)
    clock.tried("weights", load)
    short, long = CONTEXTS[scale]
    for context, rows in [(short, 1), (short, 4), (long, 1)]:
        clock.tried(f"decode {rows} x {context}", lambda: decode(context, rows))  # noqa: B023
    clock.tried(f"prefill {PROMPT[scale]}", prefill)
    clock.tried(f"decode 4 x {short} of {long}", lambda: decode(short, 4, long))
    for context, rows in [(short, 16), (long, 4), (long, 16)]:
        clock.tried(f"decode {rows} x {context}", lambda: decode(context, rows))  # noqa: B023


# --- transformers ----------------------------------------------------------------------------


def torch(size: str, scale: str, clock: Clock) -> None:
    """The same shape in transformers: a static cache, and a CUDA graph of the whole step."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        AutoModelForCausalLM,
        DynamicCache,
        Qwen3Config,
        StaticCache,
    )

    from tools.make_checkpoint import SIZES

    config = SIZES[size]
    where = "cuda" if torch.cuda.is_available() else "cpu"
    models: list[Any] = []

    def done() -> None:
        if where == "cuda":
            torch.cuda.synchronize()

    def load() -> Found:
        import transformers

        shape = Qwen3Config(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            intermediate_size=config.ffn,
            num_hidden_layers=config.blocks,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.eps,
            tie_word_embeddings=config.tied,
            max_position_embeddings=config.max_positions,
        )
        with torch.device(where):
            model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
        models.append(model.eval())
        return {"torch": torch.__version__, "transformers": transformers.__version__}

    def decode(context: int, rows: int, compile_it: bool = False) -> Found:
        (model,) = models
        length = context + 4 * (STEPS + WARM_STEPS)
        cache = StaticCache(config=model.config, max_cache_len=length)
        place = torch.tensor([context], device=where)
        tokens = torch.ones((rows, 1), dtype=torch.long, device=where)
        seen = torch.arange(length, device=where)[None, None, None] <= context
        seen = seen.expand(rows, 1, 1, length).contiguous()
        forward = torch.compile(model, fullgraph=True) if compile_it else model

        def step() -> None:
            logits = forward(
                tokens,
                attention_mask=seen,
                position_ids=place[None],
                past_key_values=cache,
                cache_position=place,
                use_cache=True,
            ).logits
            tokens.copy_(logits[:, -1:].argmax(-1))

        def rewound() -> None:
            for layer in cache.layers:
                if hasattr(layer, "cumulative_length"):
                    layer.cumulative_length.fill_(context)

        step()  # makes the caches
        rewound()
        run, graphed = step, False
        if where == "cuda":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                step()
                step()
            torch.cuda.current_stream().wait_stream(side)
            rewound()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            rewound()
            run, graphed = graph.replay, True
        took = milliseconds(run, done)
        return {
            "ms": round(took, 3),
            "tokens_per_s": round(1e3 * rows / took, 1),
            "cuda_graph": graphed,
        }

    def prefill() -> Found:
        (model,) = models
        prompt = torch.ones((1, PROMPT[scale]), dtype=torch.long, device=where)

        def run() -> None:
            cache = DynamicCache(config=model.config)
            model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)

        took = milliseconds(run, done)
        return {"ms": round(took, 2), "tokens_per_s": round(1e3 * PROMPT[scale] / took)}

    with torch.inference_mode():
        clock.tried("load", load)
        for context in CONTEXTS[scale]:
            for rows in ROWS:
                clock.tried(f"decode {rows} x {context}", lambda: decode(context, rows))  # noqa: B023
        clock.tried(f"prefill {PROMPT[scale]}", prefill)
        if where == "cuda":
            short = CONTEXTS[scale][0]
            clock.tried(f"compiled decode 1 x {short}", lambda: decode(short, 1, compile_it=True))


# --- the run ---------------------------------------------------------------------------------


def part(name: str, size: str, scale: str, seconds: float, python: str) -> Iterator[Found]:
    """What a part's process prints within its time, and how it ended if not well."""
    # One device beside one; and both kinds of part would else take most of its memory.
    own = {
        "CUDA_VISIBLE_DEVICES": "0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    command = [python, "-m", "tools.bench.gpu", "--part", name, "--size", size]
    command += ["--budget", str(seconds), *(["--tiny"] if scale == "tiny" else [])]
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**own, **os.environ},
        )
    except OSError as error:
        yield {"what": "start", "error": str(error)}
        return
    try:
        out, said = process.communicate(timeout=seconds + 20)
        ended = "" if process.returncode == 0 else f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, said = process.communicate()
        ended = f"killed after {seconds + 20:.0f} s"
    for line in out.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
    if ended:
        yield {"what": "end", "error": ended, "stderr": said[-1500:]}


def line(name: str, size: str, found: Found) -> str:
    """One result, for people."""
    rest = {k: v for k, v in found.items() if k not in ("what", "seconds", "measured", "stderr")}
    return f"{size:>5} {name:<6} {found['what']:<24} " + ", ".join(
        f"{key} {value}" for key, value in rest.items()
    )


def ratios(results: list[Found]) -> Found:
    """Our tokens per second over those of transformers, by shape and load."""
    rates = {
        (one["size"], one["part"], one["what"]): one["tokens_per_s"]
        for one in results
        if "tokens_per_s" in one
    }
    return {
        f"{size} {what}": round(rate / rates[size, "torch", what], 3)
        for (size, part, what), rate in rates.items()
        if part == "ours" and (size, "torch", what) in rates
    }


@click.command(context_settings={"show_default": True})
@click.option("--tiny", is_flag=True, help="Small shapes.")
@click.option("--budget", default=BUDGET, help="Seconds of all of it.")
@click.option("--torch-python", default=sys.executable, help="The Python that has torch.")
@click.option("--part", "only", type=click.Choice(list(PARTS)), hidden=True)
@click.option("--size", hidden=True)
def main(tiny: bool, budget: float, torch_python: str, only: str | None, size: str | None) -> None:
    """Measure stages on a GPU, and transformers beside them."""
    scale = "tiny" if tiny else "full"
    if only and size:
        {"ours": ours, "torch": torch}[only](size, scale, Clock(budget))
        return
    end = time.monotonic() + budget
    results: list[Found] = []
    for name, most in PARTS.items():
        for size in SHAPES[scale]:
            seconds = min(most, end - time.monotonic() - 20)
            python = torch_python if name == "torch" else sys.executable
            if seconds < 10:
                results.append({"part": name, "size": size, "what": "all", "skipped": "no time"})
            else:
                for found in part(name, size, scale, seconds, python):
                    results.append({"part": name, "size": size, **found})
                    print(line(name, size, found), flush=True)
    compared = ratios(results)
    for what, ratio in compared.items():
        print(f"{what}: {ratio} x transformers")
    print(json.dumps({"bench": "gpu", "scale": scale, "ratios": compared, "results": results}))


if __name__ == "__main__":
    main()
