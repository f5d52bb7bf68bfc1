"""What an edge of the ring costs: the round trip on its path, and the time its bytes take."""

from collections.abc import Sequence

from kafila.plan.reach import local, predict
from kafila.plan.values import Device, Edge, Model, Path


def edge_us(device: Device, after: Device, path: Path) -> int | None:
    """Price of the edge between two members: a round trip, None where it was not timed.

    Relayed it is the literal way through the rendezvous, r_A + r_B. Direct it is what the two
    measured between them, otherwise bounded below by |r_A - r_B| (triangle inequality), and
    nothing within one machine.
    """
    if path == "direct":
        if device.host == after.host:
            return 0
        measured = pair_us(device, after)
        if measured is not None:
            return measured
    if device.rtt_us is None or after.rtt_us is None:
        return None
    if path == "relayed":
        return device.rtt_us + after.rtt_us
    return abs(device.rtt_us - after.rtt_us)


def pair_us(a: Device, b: Device) -> int | None:
    """The round trip that two members measured between them, the mean where both did."""
    times = [
        time
        for each, other in ((a, b), (b, a))
        for name, time in each.pairs_us
        if name == other.name
    ]
    return sum(times) // len(times) if times else None


def predicted_us(a: Device, b: Device) -> int | None:
    """Price of the edge on its predicted path."""
    return edge_us(a, b, predict(a, b).path)


def edges_of(ring: Sequence[Device], paths: Sequence[Path]) -> tuple[Edge | None, ...]:
    """The edge from each member to the next; a ring of one has none."""
    if len(ring) == 1:
        return (None,)
    return tuple(
        Edge(after.name, path, edge_us(device, after, path))
        for device, after, path in zip(ring, _following(ring), paths, strict=True)
    )


def hops_us(
    model: Model, ring: Sequence[Device], paths: Sequence[Path], tokens: float
) -> tuple[float, ...]:
    """Time from each member to the next for the activations of `tokens` tokens: half of the round
    trip, and sending them where the sender's uplink was measured and is used.

    An edge that was not timed counts nothing, so predictions are then lower bounds.
    """
    if len(ring) == 1:
        return (0.0,)
    return tuple(
        (edge_us(device, after, path) or 0) / 2 + sending_us(model, device, after, tokens)
        for device, after, path in zip(ring, _following(ring), paths, strict=True)
    )


def sending_us(model: Model, device: Device, after: Device, tokens: float) -> float:
    """How long the sender's uplink is busy with the activations of `tokens` tokens."""
    if device.upload is None or local(device, after):
        return 0.0
    return tokens * model.wire_bytes * 1e6 / device.upload


def uplink_us(model: Model, ring: Sequence[Device], tokens: float) -> float:
    """How long the busiest uplink of the ring takes for the activations of `tokens` tokens."""
    return max(
        sending_us(model, device, after, tokens)
        for device, after in zip(ring, _following(ring), strict=True)
    )


def _following(ring: Sequence[Device]) -> Sequence[Device]:
    return (*ring[1:], ring[0])
