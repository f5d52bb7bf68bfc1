"""Do stages overlap? Four real processes whose stages take 20 ms a row, one row a step.

One request passes every stage alone; four requests in four groups can keep all stages busy, so the
ideal is 4.0 times the tokens per second. Everything but the stage is the real thing.

    python -m tools.bench.overlap
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

from tools.loopback import Ring
from tools.make_goldens import CASES

TOKENS = 32
RUNS = 3
COUNTS = (2, 1, 2, 1)


def rate(ring: Ring, requests: int) -> float:
    """Tokens per second with that many requests at once."""
    began = time.monotonic()
    answers = ring.at_once([[3, 1, 4, 1]] * requests, TOKENS)
    assert all(len(answer) == TOKENS for answer in answers)
    return requests * TOKENS / (time.monotonic() - began)


def main() -> None:
    serve = ("-m", "tests.e2e.paced_serve")
    with tempfile.TemporaryDirectory() as folder:
        model = CASES["tied"].write(Path(folder) / "model")
        ring = Ring(Path(folder) / "ring", model, COUNTS, concurrency=4, groups=4, serve=serve)
        with ring:
            rate(ring, 1)
            one = [rate(ring, 1) for _ in range(RUNS)]
            four = [rate(ring, 4) for _ in range(RUNS)]
    result = {
        "bench": "overlap",
        "stages": len(COUNTS),
        "tokens_per_s_1": round(statistics.median(one), 2),
        "tokens_per_s_4": round(statistics.median(four), 2),
        "ratio": round(statistics.median(four) / statistics.median(one), 3),
    }
    print(
        f"1 request {result['tokens_per_s_1']} tok/s, 4 requests {result['tokens_per_s_4']} tok/s"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
