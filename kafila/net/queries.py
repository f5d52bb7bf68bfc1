"""Questions of one datagram, and their answers: STUN and a listening node's certificate.

Knows no connections. Whether strangers get answers, the node says; how often, is said here.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from kafila.address import Address
from kafila.defaults import (
    BINDING_AGAIN,
    QUERY_AGAIN,
    STRANGERS,
    STRANGERS_BURST,
    STRANGERS_PER_SECOND,
)
from kafila.net.carrier import Carrier, on_the_wire
from kafila.net.certificate import key_of
from kafila.net.datagram import (
    CertificateAnswer,
    CertificateQuery,
    binding_answer,
    binding_mapped,
    binding_request,
    decode_certificate,
)
from kafila.net.limits import Rates, network


class Found(NamedTuple):
    """Where somebody answered first, and with which certificate (DER, not yet believed)."""

    carrier: Carrier
    address: Address
    certificate: bytes


class _Seen(NamedTuple):
    """A STUN answer: when it came, and whom the server saw."""

    at: float
    mapped: Address


class Queries:
    """What this node has asked, and what it answers."""

    def __init__(self, certificate: bytes) -> None:
        self.certificate = certificate
        """This node's own (DER)."""
        self.answering = False
        """Whether strangers get answers."""
        self._certificates: dict[bytes, asyncio.Future[Found]] = {}
        self._bindings: dict[bytes, asyncio.Future[_Seen]] = {}
        self._rates = Rates(STRANGERS_PER_SECOND, STRANGERS_BURST, STRANGERS)

    async def first(self, places: Sequence[tuple[Carrier, Address]]) -> Found:
        """Ask who may be at these places for a certificate, until one answers.

        `places` may grow meanwhile: what is new is asked when the others are asked again.
        """
        transaction = os.urandom(8)
        query = CertificateQuery(transaction).encode()
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._certificates[transaction] = answer
        pause = QUERY_AGAIN
        try:
            while not answer.done():
                for carrier, address in places:
                    carrier.send(query, address)
                await asyncio.wait([answer], timeout=pause)
                pause *= 2
            return answer.result()
        finally:
            del self._certificates[transaction]

    async def round_trips(
        self, carrier: Carrier, target: Address, samples: int, timeout: float
    ) -> list[int]:
        """Measure round trips, in microseconds, one after another: see `Node.round_trips`."""
        measured: list[int] = []
        for number in range(samples):
            sent = time.perf_counter()
            seen = await self._binding(carrier, target, timeout, again=())
            if seen is not None:
                measured.append(round((seen.at - sent) * 1e6))
            elif number >= 2 and not measured:
                break
        return measured

    async def reflexive(self, carrier: Carrier, target: Address, timeout: float) -> Address | None:
        """Ask how a listening node sees this carrier; None: no answer in `timeout` s."""
        seen = await self._binding(carrier, target, timeout, again=BINDING_AGAIN)
        return None if seen is None else seen.mapped

    def stun(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        """Take a STUN datagram."""
        if self.answering:
            answer = binding_answer(datagram, on_the_wire(source))
            if answer is not None:
                if self._grants(source):
                    carrier.send(answer, source)
                return
        found = binding_mapped(datagram)
        waiting = self._bindings.get(found[0]) if found else None
        if found is not None and waiting is not None and not waiting.done():
            waiting.set_result(_Seen(time.perf_counter(), found[1]))

    def certificates(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        """Take a certificate query or answer."""
        message = decode_certificate(datagram)
        if isinstance(message, CertificateAnswer):
            waiting = self._certificates.get(message.transaction)
            if waiting is not None and not waiting.done():
                key_of(message.certificate)  # ValueError: garbage, a better answer may follow
                waiting.set_result(Found(carrier, source, message.certificate))
        elif self.answering and self._grants(source):
            answer = CertificateAnswer(message.transaction, self.certificate)
            carrier.send(answer.encode(), source)

    def _grants(self, source: Address) -> bool:
        """Whether a stranger gets one more answer now."""
        where = network(source[0])
        return where is None or self._rates.take(where, asyncio.get_running_loop().time())

    async def _binding(
        self, carrier: Carrier, target: Address, timeout: float, again: Sequence[float]
    ) -> _Seen | None:
        """Send a Binding request, the same one once more at each time in `again`."""
        transaction = os.urandom(12)
        request = binding_request(transaction)
        answer: asyncio.Future[_Seen] = asyncio.get_running_loop().create_future()
        self._bindings[transaction] = answer
        try:
            passed = 0.0
            for until in (*(each for each in again if each < timeout), timeout):
                carrier.send(request, target)
                await asyncio.wait([answer], timeout=until - passed)
                if answer.done():
                    return answer.result()
                passed = until
            return None
        finally:
            del self._bindings[transaction]
