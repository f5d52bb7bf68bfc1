"""The rendezvous' UDP side and a STUN server, in a virtual network: the deployed sans-IO cores."""

from typing import Final

from kafila.address import Address
from kafila.net.datagram import Family, binding_answer, family
from kafila.net.relaying import Grant
from kafila.rendezvous.reflection import Reflection
from kafila.rendezvous.relay import Relay
from tests.virtual.network import Host, Network, Receive, Socket

RENDEZVOUS: Final = ("198.51.100.1", 4710)
STUN: Final = ("198.51.100.99", 3478)
SECRET: Final = b"s" * 32


class Rendezvous:
    """A relay, answers for classification at two ports, STUN."""

    def __init__(self, network: Network) -> None:
        host = Host(network.internet, RENDEZVOUS[0])
        self._network = network
        self._sockets: list[Socket] = []
        for offset in (0, 1):
            self._sockets.append(host.open(self._reader(offset), RENDEZVOUS[1] + offset))
        self.running = True
        self.restart()
        self._tick()

    def restart(self) -> None:
        """Another process takes its place; only the identity is the same."""
        network = self._network
        self.relay = Relay(SECRET, wall=lambda: network.now, random=network.random.randbytes)
        self.reflection = Reflection()

    def grant(self, session: bytes, own: bytes, other: bytes) -> Grant:
        return self.relay.grant(session, own, other)

    def _tick(self) -> None:
        self.relay.tick(self._network.now)
        self._network.after(1.0, self._tick)

    def _reader(self, port: int) -> Receive:
        return lambda datagram, source: self._receive(port, datagram, source)

    def _receive(self, port: int, datagram: bytes, source: Address) -> None:
        if not self.running:
            return
        now, socket = self._network.now, self._sockets[port]
        match family(datagram):
            case Family.RELAY:
                end = self.relay.forward(datagram, source, now)
                if end is not None:
                    end.carrier.send(datagram, end.source)
            case Family.BINDING:
                answer = self.relay.binding(datagram, socket, source, now)  # type: ignore[arg-type]
                if answer is not None:
                    socket.send(answer, source)
            case Family.REFLECTION:
                for which, answered in self.reflection.asked(datagram, source, now):
                    self._sockets[which].send(answered, source)
            case Family.STUN:
                seen = binding_answer(datagram, source)
                if seen is not None:
                    socket.send(seen, source)


def stun_server(network: Network) -> None:
    """One elsewhere."""

    def receive(datagram: bytes, source: Address) -> None:
        answer = binding_answer(datagram, source)
        if answer is not None:
            socket.send(answer, source)

    socket = Host(network.internet, STUN[0]).open(receive, STUN[1])
