"""This machine's read bandwidth: what no decode step can beat.

python -m tools.bench.bandwidth
"""

import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import click
import numpy as np

READ_BYTES = 1 << 29
ROUNDS = 15


class Reader:
    """Reads half a gigabyte with a thread a core, as fast as numpy does."""

    def __init__(self) -> None:
        self.cores = len(os.sched_getaffinity(0))
        self._parts = np.array_split(np.ones(READ_BYTES // 8, np.int64), self.cores)
        self._pool = ThreadPoolExecutor(self.cores)

    def bandwidth(self) -> float:
        """Bytes per second, the best of three."""
        return READ_BYTES / min(self._seconds() for _ in range(3))

    def _seconds(self) -> float:
        began = time.perf_counter()
        list(self._pool.map(np.max, self._parts))
        return time.perf_counter() - began


@click.command()
def main() -> None:
    """Print the read bandwidth of all cores together, the last line as JSON."""
    reader = Reader()
    rate = statistics.median(reader.bandwidth() for _ in range(ROUNDS))
    print(f"{rate / 1e9:.1f} GB/s on {reader.cores} cores")
    print(json.dumps({"bench": "bandwidth", "gb_per_s": round(rate / 1e9, 2)}))


if __name__ == "__main__":
    main()
