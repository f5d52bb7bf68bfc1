"""Does a prompt flow round the ring as a pipeline? Four real processes, a paced stage in each.

2,048 tokens in chunks of 256, hidden states as wide as Qwen3-8B's in bfloat16 (2 MiB a chunk on
every edge but the last), 100 ms a chunk at every stage. While stage k has chunk c, stage k - 1 can
have c + 1: the floor is (chunks + stages - 1) x 100 ms. Everything but the stage is the real thing.

    python -m tools.bench.prefill
"""

import json
import statistics
import tempfile
from pathlib import Path

import click

from tools.loopback import Ring
from tools.make_goldens import CASES

STAGES, CHUNKS, CHUNK, SECONDS, RUNS = 4, 8, 256, 0.1, 7


def first_token(ring: Ring, run: int) -> float:
    """Seconds from taking the prompt to its first token."""
    prompt = [(run * 31 + i) % 251 for i in range(CHUNKS * CHUNK)]
    body = {"prompt": prompt, "max_tokens": 2, "ignore_eos": True, "return_token_ids": True}
    answer = ring.post("/v1/completions", {**body, "temperature": 0})
    assert answer["choices"][0]["token_ids"] == [prompt[-1]] * 2, answer
    return float(answer["timings"]["prompt_ms"]) / 1e3


@click.command()
def main() -> None:
    """Time a prompt round four paced stages, the last line as JSON."""
    floor = (CHUNKS + STAGES - 1) * SECONDS
    paces = json.dumps({"first": 0, "further": 0, "chunk": SECONDS, "wide": True})
    serve = ("-m", "tests.e2e.paced_serve", paces)
    with tempfile.TemporaryDirectory() as folder:
        model = CASES["tied"].write(Path(folder) / "model")
        size = {"context": CHUNKS * CHUNK + 64, "concurrency": 4, "groups": 4}
        with Ring(Path(folder) / "ring", model, (2, 1, 2, 1), serve=serve, **size) as ring:
            first_token(ring, 0)
            times = [first_token(ring, 1 + run) for run in range(RUNS)]
    seconds = statistics.median(times)
    result = {
        "bench": "prefill",
        "stages": STAGES,
        "chunks": CHUNKS,
        "floor_s": round(floor, 3),
        "seconds": round(seconds, 3),
        "slowest_s": round(max(times), 3),
        "ratio": round(seconds / floor, 3),
    }
    print(f"{CHUNKS * CHUNK} tokens in {seconds:.3f} s, at best {floor:.3f} s")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
