"""The relay's shell: frames and binding messages of every socket and tunnel of a node.

A frame is looked up and sent on in the turn in which it was read, before QUIC has any work. What
the socket it leaves by cannot take is lost: nothing waits here.
"""

import time

from kafila.address import Address
from kafila.net.carrier import Carrier
from kafila.net.datagram import Family
from kafila.net.node import Node
from kafila.net.udp import Udp
from kafila.rendezvous.relay import Relay


class Datapath:
    """Forwards for `relay` whatever comes to `node`."""

    def __init__(self, node: Node, relay: Relay) -> None:
        self._relay = relay
        node.on_family(Family.RELAY, self._frame)
        node.on_family(Family.BINDING, self._binding)

    def _frame(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        end = self._relay.forward(datagram, source, time.monotonic())
        if end is None:
            return
        if not isinstance(end.carrier, Udp):
            end.carrier.send(datagram, end.source)
            return
        try:
            end.carrier.socket.sendto(datagram, end.source)
        except OSError:  # full buffer, no route, ICMP error
            self._relay.congested(datagram)

    def _binding(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        answer = self._relay.binding(datagram, carrier, source, time.monotonic())
        if answer is not None:
            carrier.send(answer, source)
