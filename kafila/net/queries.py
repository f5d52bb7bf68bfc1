"""Questions of one datagram, and their answers: STUN and a listening node's certificate.

Knows no connections. Whether a node answers strangers is the node's to say.
"""

import asyncio
import os
import time

from kafila.address import Address
from kafila.defaults import QUERY_AGAIN
from kafila.net.certificate import key_of
from kafila.net.datagram import (
    CertificateAnswer,
    CertificateQuery,
    binding_answer,
    binding_request,
    binding_transaction,
    decode_certificate,
)
from kafila.net.udp import Udp


class Queries:
    """What this node has asked, and what it answers."""

    def __init__(self, udp: Udp, certificate: bytes) -> None:
        self.certificate = certificate
        """This node's own (DER)."""
        self._udp = udp
        self._certificates: dict[bytes, asyncio.Future[bytes]] = {}
        self._bindings: dict[bytes, asyncio.Future[float]] = {}

    async def certificate_of(self, target: Address) -> bytes:
        """Ask a listening node for its certificate, again and again until it answers."""
        transaction = os.urandom(8)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._certificates[transaction] = answer
        pause = QUERY_AGAIN
        try:
            while not answer.done():
                self._udp.send(CertificateQuery(transaction).encode(), target)
                await asyncio.wait([answer], timeout=pause)
                pause *= 2
            return answer.result()
        finally:
            del self._certificates[transaction]

    async def round_trip(self, target: Address, timeout: float) -> int | None:
        """Measure one round trip to a listening node, in microseconds; None: lost."""
        transaction = os.urandom(12)
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._bindings[transaction] = answer
        try:
            sent = time.perf_counter()
            self._udp.send(binding_request(transaction), target)
            await asyncio.wait([answer], timeout=timeout)
        finally:
            del self._bindings[transaction]
        return round((answer.result() - sent) * 1e6) if answer.done() else None

    def stun(self, datagram: bytes, source: Address, *, answering: bool) -> None:
        """Take a STUN datagram."""
        if answering:
            answer = binding_answer(datagram, source)
            if answer is not None:
                self._udp.send(answer, source)
                return
        transaction = binding_transaction(datagram)
        waiting = self._bindings.get(transaction) if transaction else None
        if waiting is not None and not waiting.done():
            waiting.set_result(time.perf_counter())

    def certificates(self, datagram: bytes, source: Address, *, answering: bool) -> None:
        """Take a certificate query or answer."""
        message = decode_certificate(datagram)
        if isinstance(message, CertificateAnswer):
            waiting = self._certificates.get(message.transaction)
            if waiting is not None and not waiting.done():
                key_of(message.certificate)  # ValueError: garbage, a better answer may follow
                waiting.set_result(message.certificate)
        elif answering:
            answer = CertificateAnswer(message.transaction, self.certificate)
            self._udp.send(answer.encode(), source)
