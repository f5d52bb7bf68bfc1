"""Divisions by a share: what other systems do, to compare with, and what is left where nothing is
measured. None of them looks at what a stage costs."""

from collections.abc import Sequence


def uniform(blocks: int, devices: int) -> tuple[int, ...]:
    """GPipe's equal stages; the first ones get the remainder."""
    each, left = divmod(blocks, devices)
    return tuple(each + (position < left) for position in range(devices))


def proportional(blocks: int, shares: Sequence[int]) -> tuple[int, ...]:
    """exo 1.0's rule: blocks in proportion to `shares` (whole, >= 0), by largest remainder.

    Who would get none takes one from whoever has most. There are at least as many blocks as
    shares. No count exceeds its share rounded up, but for those single blocks.
    """
    total = sum(shares) or 1
    counts = [blocks * share // total for share in shares]
    largest = sorted(range(len(shares)), key=lambda i: -(blocks * shares[i] % total))
    for i in range(blocks - sum(counts)):
        counts[largest[i % len(shares)]] += 1
    for i, count in enumerate(counts):
        if count == 0:
            counts[counts.index(max(counts))] -= 1
            counts[i] = 1
    return tuple(counts)
