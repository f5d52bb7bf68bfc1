"""How many a second, over a sliding window. Knows no clock: `now` is given."""

from collections import deque

from kafila.defaults import RATE_SECONDS


class Rate:
    """Events counted in whole-second bins, so its size does not depend on the rate."""

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._bins: deque[tuple[int, int]] = deque()
        self._began: float | None = None

    def add(self, count: int, now: float) -> None:
        """`count` events happened."""
        self._began = now if self._began is None else self._began
        second = int(now)
        if self._bins and self._bins[-1][0] == second:
            count += self._bins.pop()[1]
        self._bins.append((second, count))

    def per_second(self, now: float) -> float:
        """The mean rate over the window, or since the first event where that is shorter."""
        while self._bins and self._bins[0][0] <= now - self._seconds - 1:
            self._bins.popleft()
        if self._began is None or not self._bins:
            return 0.0
        span = min(self._seconds, max(now - self._began, 1.0))
        return sum(count for _, count in self._bins) / span
