"""A rendezvous that lies: the real one, with somebody between it and its clients."""

import time
from collections.abc import Callable, Iterable

from kafila.address import Address
from kafila.net.carrier import Carrier
from kafila.net.datagram import Family
from kafila.rendezvous.actions import Send
from kafila.rendezvous.messages import Notice
from kafila.rendezvous.relay import End
from kafila.rendezvous.server import Rendezvous
from tests.rendezvous.lan import LOOPBACK, Lan
from tests.session.ring import Town

Says = Callable[[int, Notice], Iterable[tuple[int, Notice]]]
"""What to send instead of a notice: to which clients, by the order in which they came, from 1."""

Forwards = Callable[[bytes, End], Iterable[bytes]]
"""What to send instead of a relay frame, to the end that it is for."""


class Hostile(Rendezvous):
    """Says, and forwards, what it is told to."""

    says: Says = staticmethod(lambda number, notice: [(number, notice)])
    seen: list[bytes]

    def listen_in(self) -> None:
        """Keep what clients and rendezvous say to each other, and what is forwarded."""
        self.seen = []

    def meddle(self, forwards: Forwards) -> None:
        """Forward frames so from now on."""

        def frame(datagram: bytes, carrier: Carrier, source: Address) -> None:
            self.seen.append(datagram)
            end = self.relay.forward(datagram, source, time.monotonic())
            if end is not None:
                for each in forwards(datagram, end):
                    end.carrier.send(each, end.source)

        self.node.on_family(Family.RELAY, frame)

    def _message(self, number: int, data: bytes) -> None:
        self.seen.append(data)
        super()._message(number, data)

    def _send(self, action: Send) -> None:
        self.seen.append(action.message.encode())
        for number, notice in self.says(action.connection, action.message):
            super()._send(Send(number, notice))


class HostileLan(Lan):
    """A LAN whose rendezvous is hostile."""

    hostile: Hostile

    async def _start(self, port: int) -> None:
        self._rendezvous = self.hostile = await _open(self, port)


class HostileTown(Town):
    """Members of a plan at a hostile rendezvous."""

    hostile: Hostile

    async def _start(self, port: int) -> None:
        self._rendezvous = self.hostile = await _open(self, port)


async def _open(lan: Lan, port: int) -> Hostile:
    opened = await Hostile.open(
        lan.identity("rendezvous"), LOOPBACK, port, lan.log.append, second_port=0
    )
    assert isinstance(opened, Hostile)
    opened.listen_in()
    return opened
