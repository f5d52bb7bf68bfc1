"""Stage times from measured figures alone: eq. 2 of the paper and what stands beside it.

Everything is in microseconds. Nothing here is fitted to an observed stage time.
"""

from kafila.plan.values import Device, Load, Model, Path


def fixed_us(model: Model, device: Device, *, head: bool) -> float:
    """fixed(i): dispatch overhead, and on the head reading the unembedding."""
    reading = model.head_read_bytes * 1e6 / device.bandwidth if head else 0.0
    return device.overhead_us + reading


def block_us(model: Model, device: Device) -> float:
    """per(i): reading one block's weights."""
    return model.block_bytes * 1e6 / device.bandwidth


def stage_us(model: Model, device: Device, blocks: int, *, head: bool) -> float:
    """Eq. 2: one row through `blocks` blocks with an empty KV cache."""
    return fixed_us(model, device, head=head) + blocks * block_us(model, device)


def context_us(model: Model, device: Device, blocks: int, context: int) -> float:
    """What reading `context` tokens of one request's KV cache adds to eq. 2."""
    return blocks * model.kv_bytes * context * 1e6 / device.bandwidth


def batch_us(
    model: Model, load: Load, device: Device, blocks: int, rows: int, *, head: bool
) -> float:
    """s_i(x): `rows` requests in one step, each with a full KV cache.

    Eq. 2's reading grows as the measured batches did; every row reads its own cache.
    """
    reading = stage_us(model, device, blocks, head=head) - device.overhead_us
    caches = rows * context_us(model, device, blocks, load.context)
    return device.overhead_us + reading * growth(device, rows) + caches


def growth(device: Device, rows: int) -> float:
    """How much longer a block takes with `rows` rows than with one, at least 1.

    Taken at the next measured bucket up, because steps are compiled for those; above the largest
    bucket a step is as many largest ones as it takes.
    """
    one = device.rows_ns[0][1]
    slowest = one  # more rows never take less; a curve that dips is noise
    for bucket, time_ns in device.rows_ns:
        slowest = max(slowest, time_ns)
        if bucket >= rows:
            return slowest / one
    largest = device.rows_ns[-1][0]
    return -(-rows // largest) * slowest / one


def edge_us(device: Device, after: Device, path: Path) -> int | None:
    """Price of the edge between two members: a round trip, None where one was not timed.

    Relayed it is the literal way through the rendezvous, r_A + r_B; direct it is bounded below by
    |r_A - r_B| (triangle inequality), and nothing within one machine.
    """
    if path == "direct" and device.machine == after.machine:
        return 0
    if device.rtt_us is None or after.rtt_us is None:
        return None
    if path == "relayed":
        return device.rtt_us + after.rtt_us
    return abs(device.rtt_us - after.rtt_us)
