"""What a hostile or broken peer might send: valid messages with a few things wrong, and noise."""

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st


def mutated(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes near one of `samples`, a piece of two of them, or none of them."""
    sample = st.sampled_from(samples)
    spliced = st.builds(_splice, sample, sample, _PLACE, _PLACE)
    edited = st.builds(_edit, sample | spliced, _EDITS, _CUT, st.binary(max_size=24))
    return st.one_of(edited, edited, edited, spliced, _NOISE)


def scrambled(samples: Sequence[bytes], random: Random) -> bytes:
    """The same without hypothesis, for long sieges."""
    sample = random.choice(samples)
    if random.random() < 0.2:
        place = random.randrange(1 << 16), random.randrange(1 << 16)
        sample = _splice(sample, random.choice(samples), *place)
    if random.random() < 0.1:
        return random.randbytes(random.randrange(300))
    edits = [(random.randrange(1 << 16), random.randrange(256)) for _ in range(random.randrange(4))]
    cut = random.randrange(1 << 16) if random.random() < 0.2 else None
    return _edit(sample, edits, cut, random.randbytes(random.randrange(24)))


_PLACE = st.integers(0, 1 << 16)
_BYTE = st.sampled_from([0, 1, 2, 3, 4, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)
_EDITS = st.lists(st.tuples(_PLACE, _BYTE), max_size=4)
_CUT = st.none() | _PLACE
_NOISE = st.binary(max_size=300)


def _edit(sample: bytes, edits: Sequence[tuple[int, int]], cut: int | None, tail: bytes) -> bytes:
    data = bytearray(sample)
    for place, value in edits:
        if data:
            data[place % len(data)] = value
    kept = len(data) if cut is None else cut % (len(data) + 1)
    return bytes(data[:kept]) + (tail if cut is not None else b"")


def _splice(one: bytes, other: bytes, to: int, since: int) -> bytes:
    return one[: to % (len(one) + 1)] + other[since % (len(other) + 1) :]
