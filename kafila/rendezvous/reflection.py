"""The rendezvous' side of NAT classification: answers from the port that was asked for. Sans-IO.

Datagrams, their source and `now` go in, answers come out. It keeps no state of who asks but a
rate: a cookie, which only the control connection gives, shows that the asker receives at the
address it asks from. Knows nothing of what is concluded from the answers.
"""

import hmac
import os

from kafila import defaults as d
from kafila.address import Address
from kafila.net.limits import Rates, network
from kafila.net.reflecting import COOKIE_SIZE, Answer, Ask, decode
from kafila.rendezvous.messages import Reflector


class Reflection:
    """Gives cookies and answers asks: at most two answers an ask, no larger together than it."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._rates = Rates(d.ASKS_PER_SECOND, d.ASKS_BURST, d.CLIENTS)
        self.port: int | None = None
        """The second UDP port, as clients reach it; None: there is none."""
        self.stun: tuple[str, ...] = ()
        """STUN servers on other addresses, HOST:PORT each."""

    def offer(self, host: str, now: float) -> Reflector:
        """What a client that is connected from `host` needs. Its cookie is good for COOKIE_SECONDS
        at least."""
        cookie = self._cookie(host, int(now // d.COOKIE_SECONDS))
        return Reflector(cookie=cookie.hex(), port=self.port, stun=self.stun)

    def asked(self, datagram: bytes, source: Address, now: float) -> list[tuple[int, bytes]]:
        """A reflection datagram came: what to send back to `source`, and from which port (0, 1).

        Raises ValueError where it is no ask. Without a right cookie, or too often: nothing.
        """
        ask = decode(datagram)
        if not isinstance(ask, Ask):
            raise ValueError("only asks come to a rendezvous")
        host = source[0]
        epoch = int(now // d.COOKIE_SECONDS)
        good = (self._cookie(host, each) for each in (epoch, epoch - 1))
        if not any(hmac.compare_digest(ask.cookie, each) for each in good):
            return []
        of = network(host)
        if of is not None and not self._rates.take(of, now):
            return []
        return [(port, Answer(ask.transaction, port, source).encode()) for port in ask.ports]

    def _cookie(self, host: str, epoch: int) -> bytes:
        words = f"kafila reflection|{host}|{epoch}".encode()
        return hmac.digest(self._secret, words, "sha256")[:COOKIE_SIZE]
