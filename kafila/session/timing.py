"""Round trips to the rendezvous over a window: the one number the ring's order is made from."""

import statistics

from kafila.defaults import RTT_SAMPLES
from kafila.errors import NetworkProblem
from kafila.net.node import Node


async def measure_rtt(node: Node, address: tuple[str, int]) -> tuple[int, int]:
    """Median round trip and its spread (first to third quartile), in microseconds.

    Raises NetworkProblem when fewer than half of the window's probes came back.
    """
    trips = await node.round_trips(address, RTT_SAMPLES)
    if len(trips) < RTT_SAMPLES // 2:
        raise NetworkProblem(
            f"only {len(trips)} of {RTT_SAMPLES} probes came back from the rendezvous at "
            f"{address[0]}:{address[1]}; check the link and probe again"
        )
    first, median, third = statistics.quantiles(trips, n=4)
    return round(median), round(third - first)
