"""Figures of a rendezvous for Prometheus: `GET /metrics`, answered on the loop that they are of.

Needs the package prometheus-client (the extra `rendezvous`). Counts only: no key, no
address, no session's name.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafila.address import Address, format_address
from kafila.defaults import METRICS_REQUEST_BYTES, METRICS_SECONDS
from kafila.errors import NetworkProblem, UsageProblem

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kafila.rendezvous.server import Rendezvous

_END: Final = b"\r\n\r\n"


class Metrics:
    """An HTTP server for the figures; open it with `serve`, end it with `close`."""

    def __init__(self, rendezvous: "Rendezvous") -> None:
        """Raises UsageProblem if prometheus-client is not installed."""
        try:
            from prometheus_client import CollectorRegistry
        except ImportError:
            raise UsageProblem(
                "--metrics needs the package prometheus-client: "
                "run `pip install '.[rendezvous]'` in Kafila's folder"
            ) from None
        self._rendezvous = rendezvous
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: asyncio.Server | None = None

    @classmethod
    async def serve(cls, rendezvous: "Rendezvous", host: str, port: int) -> "Metrics":
        """Answer at host and port (TCP). Raises NetworkProblem if they cannot be had."""
        metrics = cls(rendezvous)
        try:
            metrics._server = await asyncio.start_server(
                metrics._answer, host, port, limit=METRICS_REQUEST_BYTES
            )
        except OSError as error:
            raise NetworkProblem(
                f"cannot serve metrics at {format_address((host, port))}: {error.strerror}."
            ) from error
        return metrics

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Stop listening."""
        assert self._server is not None
        self._server.close()

    def collect(self) -> "Iterable[Metric]":
        """Return the figures of this moment (what prometheus-client asks of a collector)."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        def several(
            family: type[CounterMetricFamily] | type[GaugeMetricFamily],
            name: str,
            words: str,
            label: str,
            values: dict[str, int],
        ) -> "Metric":
            metric = family(f"kafila_{name}", words, labels=[label])
            for value, count in values.items():
                metric.add_metric([value], count)
            return metric

        here, relay = self._rendezvous, self._rendezvous.relay
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        yield several(gauge, "clients", "Clients connected", "role", here.registry.roles)
        yield gauge("kafila_sessions", "Sessions with a code", here.registry.sessions)
        yield gauge("kafila_rings", "Plans with a member here", here.registry.rings)
        yield gauge("kafila_tunnels", "Members that came over TCP", here.node.tunnels)
        yield gauge("kafila_half_open", "Handshakes in progress", here.node.half_open)
        yield gauge("kafila_relay_flows", "Edges with an end bound", relay.flows)
        yield counter("kafila_handshakes", "Clients that proved a key", here.handshakes)
        yield counter("kafila_relay_datagrams", "Frames forwarded", relay.datagrams)
        yield counter("kafila_relay_bytes", "Bytes of frames forwarded", relay.bytes)
        yield several(counter, "relay_dropped", "Frames not forwarded", "reason", relay.dropped)
        yield several(counter, "relay_bindings", "Answers to bindings", "state", relay.handshakes)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        try:
            async with asyncio.timeout(METRICS_SECONDS):
                request = await reader.readuntil(_END)
                asked = request.startswith((b"GET /metrics ", b"GET /metrics?"))
                body = generate_latest(self._registry) if asked else b"GET /metrics\n"
                head = (
                    f"HTTP/1.1 {'200 OK' if asked else '404 Not Found'}\r\n"
                    f"Content-Type: {CONTENT_TYPE_PLAIN_0_0_4}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # it went away, or speaks something else
        finally:
            writer.close()
