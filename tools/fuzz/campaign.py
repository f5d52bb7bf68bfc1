"""Feeding a target, and weighing what stays behind of what it was fed."""

import gc
import tracemalloc
from typing import Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tools.fuzz.mutations import mutated
from tools.fuzz.target import Target

_SEQUENCE: Final = 24
"""Messages at most that one reader is fed."""

_KEPT: Final = 2000
"""Messages remembered to weigh what they leave behind."""

_SLOW: Final = 20
"""A slow target is fed so many times less."""


def share(target: Target, targets: int, datagrams: int) -> int:
    """How many of all datagrams a target gets."""
    each = -(-datagrams // targets)
    return -(-each // _SLOW) if target.slow else each


def fuzz(target: Target, datagrams: int) -> list[list[bytes]]:
    """Feed at least so many messages, to one reader after the other; return what each was fed.

    Raises what the target raised and must not.
    """
    fed: list[list[bytes]] = []
    count = 0

    @settings(
        max_examples=max(1, datagrams // 4),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(mutated(target.samples), min_size=1, max_size=_SEQUENCE))
    def feed(sequence: list[bytes]) -> None:
        nonlocal count
        target.read(sequence)
        count += len(sequence)
        fed.append(sequence)

    while count < datagrams:
        feed()
    return fed


def grown(target: Target, fed: list[list[bytes]]) -> int:
    """Bytes that stay with one reader when it is fed for the second time what many were."""
    messages = [message for sequence in fed for message in sequence][:_KEPT]
    reader = target.feed(target.fresh(), messages)
    gc.collect()
    tracemalloc.start()
    try:
        reader = target.feed(reader, messages)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
