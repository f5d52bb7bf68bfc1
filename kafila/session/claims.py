"""What a host believes of a member's report: numbers that a machine can have. Knows no session.

A file may say more: its owner wrote it. `flops` has no limit but the format's, which real devices
come near.
"""

from collections.abc import Iterator

from kafila import defaults as d
from kafila.probe.report import Report

_MOST = {
    "machine_bytes": d.CLAIM_BYTES,
    "room_bytes": d.CLAIM_BYTES,
    "runtime_bytes": d.CLAIM_BYTES,
    "bandwidth": d.CLAIM_RATE,
    "bandwidth_spread": d.CLAIM_RATE,
    "upload": d.CLAIM_RATE,
    "overhead_us": d.CLAIM_US,
    "overhead_spread_us": d.CLAIM_US,
    "rtt_us": d.CLAIM_US,
    "rtt_spread_us": d.CLAIM_US,
}


def untrue(report: Report) -> str | None:
    """What in the report no machine can have, in words; None: nothing."""
    for what, number, most in _claims(report):
        if number > most:
            return f"{what} is {number}, where at most {most} is believed"
    return None


def _claims(report: Report) -> Iterator[tuple[str, int, int]]:
    """Each number: what it is, how large, how large it may be."""
    for field, most in _MOST.items():
        number = getattr(report, field)
        if number is not None:
            yield field, number, most
    for field, number in report.workspace:
        yield f"workspace.{field}", number, d.CLAIM_BYTES
    for rows, time_ns in (report.rows_ns or {}).items():
        yield "a number of rows", rows, d.MAX_CONCURRENCY
        yield f"rows_ns of {rows}", time_ns, 1000 * d.CLAIM_US
    yield "block_ns", report.block_ns or 0, 1000 * d.CLAIM_US
    for name, time_us in report.pairs_us.items():
        yield f"pairs_us of {name}", time_us, d.CLAIM_US
