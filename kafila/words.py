"""Sizes, times, rates and names as a person reads them."""

from collections.abc import Sequence


def gib(size: int) -> str:
    """Bytes; small sizes in MiB, and what would be none of those as it is."""
    if size >= 2**30 / 10:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.2f} MiB" if size >= 2**20 / 100 or not size else f"{size} bytes"


def ms(time_us: float) -> str:
    """Microseconds, in milliseconds."""
    return f"{time_us / 1000:.2f} ms"


def seconds(time_us: float) -> str:
    """Microseconds, as a time that a person waits for."""
    return f"{time_us / 1e6:.1f} s" if time_us >= 1e6 else f"{time_us / 1000:.0f} ms"


def duration(seconds: float) -> str:
    """Seconds, as a person counts what takes long: `42 s`, `3 min`, `2 h 05 min`, `3 d 4 h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def rate(token_us: float, users: int = 1) -> str:
    """Tokens per second of `users` who each wait `token_us` for a token."""
    return f"{users * 1e6 / max(token_us, 1):.1f} tok/s"


def counted(number: int, thing: str) -> str:
    """`1 member`, `3 members`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: Sequence[str]) -> str:
    """`anna`, `anna and bert`, `anna, bert and cleo`."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def few(names: Sequence[str]) -> str:
    """`listed`, but of many only the first: `anna, bert, cleo, dora, emil, fred and 3 more`."""
    return listed(names if len(names) <= 7 else [*names[:6], f"{len(names) - 6} more"])


def short(key: bytes | str) -> str:
    """The first digits of a key or digest (bytes or hex), enough to tell a handful apart."""
    return (key.hex() if isinstance(key, bytes) else key)[:8]
