"""Whose turn it is, decode or prefill: a bounded queue of two lanes. Knows nothing of the work."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Decode goes first; while both lanes wait they alternate, so neither starves."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._decode: deque[T] = deque()
        self._prefill: deque[T] = deque()
        self._after_decode = False

    def __len__(self) -> int:
        return len(self._decode) + len(self._prefill)

    def push(self, item: T, *, decode: bool) -> None:
        """Queue an item; OverflowError past the bound."""
        if len(self) >= self._bound:
            raise OverflowError(f"more than {self._bound} pieces of work wait")
        (self._decode if decode else self._prefill).append(item)

    def pop(self) -> T:
        """The next item; IndexError when nothing waits."""
        decode = decode_next(bool(self._decode), bool(self._prefill), self._after_decode)
        item = (self._decode if decode else self._prefill).popleft()
        self._after_decode = decode
        return item


def decode_next(decode_waits: bool, prefill_waits: bool, after_decode: bool) -> bool:
    """True when a decode step is next, given what was done last."""
    return decode_waits and not (prefill_waits and after_decode)
