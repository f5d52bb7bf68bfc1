"""All that reads what comes from the network."""

from typing import Final

from tools.fuzz import datagrams, edges, frames, messages, quic, servers
from tools.fuzz.target import Target

TARGETS: Final[tuple[Target, ...]] = (
    *datagrams.TARGETS,
    *edges.TARGETS,
    *messages.TARGETS,
    *frames.TARGETS,
    *servers.TARGETS,
    *quic.TARGETS,
)
