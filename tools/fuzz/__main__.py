"""Feed everything that reads the network with mutated messages and noise.

    python -m tools.fuzz [--datagrams 100000] [--only WORDS]

Ends with a traceback, and the messages that it takes, where something is raised that must not be,
and with an error where memory grows. The last line is JSON.
"""

import argparse
import json
import sys
import time
from typing import Final

from tools.fuzz.campaign import fuzz, grown, share
from tools.fuzz.targets import TARGETS

GROWTH: Final = 256 << 10
"""Bytes that 2,000 messages may leave behind the second time: less than themselves."""


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tools.fuzz")
    arguments.add_argument("--datagrams", type=int, default=100_000, help="in all, at least")
    arguments.add_argument("--only", default="", help="targets whose name contains this")
    chosen = arguments.parse_args()
    targets = [each for each in TARGETS if chosen.only in each.name]
    quick = sum(not each.slow for each in targets) or 1
    total, most, began = 0, 0, time.monotonic()
    for target in targets:
        before = time.monotonic()
        fed = fuzz(target, share(target, quick, chosen.datagrams))
        count, left = sum(map(len, fed)), grown(target, fed)
        print(f"{target.name:>32} {count:7} in {time.monotonic() - before:5.1f} s, {left:6} bytes")
        if left > GROWTH:
            sys.exit(f"{target.name} keeps {left} bytes of {count} messages")
        total, most = total + count, max(most, left)
    figures = {
        "targets": len(targets),
        "datagrams": total,
        "most_bytes_left": most,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps({"fuzz": figures}))


if __name__ == "__main__":
    main()
