"""The shell of reflection: asks come in at either port and are answered from the named one."""

import time
from collections.abc import Mapping

from kafila.address import Address
from kafila.net.carrier import Carrier
from kafila.net.datagram import Family
from kafila.net.node import Node
from kafila.net.udp import Udp
from kafila.rendezvous.reflection import Reflection


class Mirror:
    """Answers for `reflection` whatever asks come to `node`."""

    def __init__(self, node: Node, second: Mapping[Udp, Udp], reflection: Reflection) -> None:
        """`second` has for each main socket of `node` one at another port of the same address."""
        self._reflection = reflection
        pairs = list(second.items())
        self._ports: dict[Carrier, tuple[Udp, Udp]] = {udp: pair for pair in pairs for udp in pair}
        reflection.port = pairs[0][1].address[1] if pairs else None
        node.on_family(Family.REFLECTION, self._asked)

    def _asked(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        ports = self._ports.get(carrier)  # None: a tunnel, which passes no NAT on its own
        if ports is not None:
            for port, answer in self._reflection.asked(datagram, source, time.monotonic()):
                ports[port].send(answer, source)
