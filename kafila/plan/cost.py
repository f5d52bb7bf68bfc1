"""Stage times from measured figures alone: eq. 2 of the paper and what stands beside it.

Everything is in microseconds. Nothing here is fitted to an observed stage time. Only members
whose bandwidth and overhead were measured have a price.
"""

from kafila.defaults import PREFILL_CHUNK
from kafila.plan.values import Affine, Device, Load, Model


def priced(device: Device) -> bool:
    """Whether eq. 2 can be computed for it."""
    return device.bandwidth is not None and device.overhead_us is not None


def stage(model: Model, device: Device, *, head: bool, limit: int | None = None) -> Affine:
    """Eq. 2, for one row and an empty KV cache.

    fixed(i) is the dispatch overhead and, on the head, reading the unembedding; per(i) is reading
    one block's weights, and what a block takes beside that.
    """
    bandwidth, overhead = _measured(device)
    reading = model.head_read_bytes * 1e6 / bandwidth if head else 0.0
    return Affine(
        overhead + reading, _block_us(model, device), model.blocks if limit is None else limit
    )


def batch(
    model: Model, load: Load, device: Device, rows: int, *, head: bool, limit: int | None = None
) -> Affine:
    """s_i(x): `rows` requests in one step, each with a full KV cache.

    Eq. 2's reading grows as the measured batches did; every row reads its own cache.
    """
    bandwidth, overhead = _measured(device)
    more = growth(device, rows)
    reading = model.head_read_bytes * 1e6 / bandwidth * more if head else 0.0
    caches = rows * model.kv_bytes * load.context * 1e6 / bandwidth
    per = _block_us(model, device) * more + caches
    return Affine(overhead + reading, per, model.blocks if limit is None else limit)


def context_us(model: Model, device: Device, blocks: int, context: int) -> float:
    """What reading `context` tokens of one request's KV cache adds to eq. 2."""
    bandwidth, _ = _measured(device)
    return blocks * model.kv_bytes * context * 1e6 / bandwidth


def growth(device: Device, rows: int) -> float:
    """How much longer a block takes with `rows` rows than with one, at least 1.

    Taken at the next measured bucket up, because steps are compiled for those; above the largest
    bucket a step is as many largest ones as it takes. Unmeasured, every row costs its own time.
    """
    if not device.rows_ns:
        return float(rows)
    one = device.rows_ns[0][1]
    slowest = one  # more rows never take less; a curve that dips is noise
    for bucket, time_ns in device.rows_ns:
        slowest = max(slowest, time_ns)
        if bucket >= rows:
            return slowest / one
    largest = device.rows_ns[-1][0]
    return -(-rows // largest) * slowest / one


def chunk_us(model: Model, device: Device, blocks: int, tokens: float) -> float | None:
    """One prefill chunk through `blocks` blocks: reading them, or computing, whichever is longer.

    Two operations a weight and token; attention within the prompt is left out. None where
    arithmetic was not measured.
    """
    if device.flops is None:
        return None
    bandwidth, overhead = _measured(device)
    weights = blocks * model.block_bytes
    computing = 2 * weights / model.weight_bytes * tokens / device.flops
    beside = blocks * device.block_ns / 1e3
    return overhead + beside + max(weights / bandwidth, computing) * 1e6


def chunks_of(prompt: int) -> int:
    """In how many chunks a prompt is prefilled."""
    return -(-prompt // PREFILL_CHUNK)


def _block_us(model: Model, device: Device) -> float:
    """One block for one row. What it takes beside reading is the same for blocks of any size."""
    bandwidth, _ = _measured(device)
    return device.block_ns / 1e3 + model.block_bytes * 1e6 / bandwidth


def _measured(device: Device) -> tuple[int, int]:
    assert device.bandwidth is not None
    assert device.overhead_us is not None
    return device.bandwidth, device.overhead_us
