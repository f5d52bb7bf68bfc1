"""This machine's read bandwidth from a process: what no decode step can beat.

python -m tools.bench.bandwidth
"""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

TOTAL_BYTES = 1 << 30
PASSES = 3


def read_bandwidth() -> float:
    """Bytes per second that all cores together read of memory well beyond the caches."""
    cores = len(os.sched_getaffinity(0))
    parts = [np.ones(TOTAL_BYTES // cores // 4, np.float32) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        best = 0.0
        for _ in range(PASSES):
            began = time.perf_counter()
            list(pool.map(lambda part: part.max(), parts))
            best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - began))
    return best


def main() -> None:
    rate = read_bandwidth()
    print(f"{rate / 1e9:.1f} GB/s on {len(os.sched_getaffinity(0))} cores")
    print(json.dumps({"bench": "bandwidth", "gb_per_s": round(rate / 1e9, 2)}))


if __name__ == "__main__":
    main()
