"""The figures of a rendezvous, over HTTP."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafila import defaults as d
from kafila.errors import UsageProblem
from kafila.rendezvous.metrics import Metrics
from tests.rendezvous.lan import LOOPBACK, Lan


@pytest.fixture
async def lan(tmp_path: Path) -> AsyncIterator[Lan]:
    async with Lan(tmp_path) as opened:
        yield opened


@pytest.fixture
async def metrics(lan: Lan) -> AsyncIterator[Metrics]:
    opened = await Metrics.serve(lan.rendezvous, LOOPBACK, 0)
    yield opened
    opened.close()


async def said(metrics: Metrics, request: bytes) -> str:
    """What comes back until the server closes."""
    reader, writer = await asyncio.open_connection(*metrics.address)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer.decode()


def figures(text: str) -> dict[str, float]:
    _, _, body = text.partition("\r\n\r\n")
    lines = [line for line in body.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


async def test_figures_follow_what_happens(lan: Lan, metrics: Metrics) -> None:
    host, anna = await lan.client("host"), await lan.client("anna")
    await anna.join((await host.open_session(3)).number)
    lan.rendezvous.relay.forward(b"\x0b" + bytes(100), ("192.0.2.1", 1), 0.0)
    text = await said(metrics, GET)
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    now = figures(text)
    assert now['kafila_clients{role="host"}'] == now['kafila_clients{role="joiner"}'] == 1
    assert now["kafila_sessions"] == 1
    assert now["kafila_handshakes_total"] == 2
    assert now['kafila_relay_dropped_total{reason="unbound"}'] == 1
    assert now["kafila_relay_datagrams_total"] == now["kafila_relay_flows"] == 0
    assert now["kafila_tunnels"] == now["kafila_half_open"] == now["kafila_rings"] == 0
    assert lan.identity("host").key.hex()[:8] not in text


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "404"),
        (b"x" * 2 * d.METRICS_REQUEST_BYTES, ""),
        (b"\x16\x03\x01" * 4000, ""),
    ],
)
async def test_anything_else_gets_nothing(metrics: Metrics, request_: bytes, status: str) -> None:
    try:
        text = await said(metrics, request_)
    except ConnectionError:  # cut off before it was through
        text = ""
    assert text[9:12] == status
    assert "200 OK" in await said(metrics, GET)


async def test_who_says_nothing_is_cut_off(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila.rendezvous.metrics.METRICS_SECONDS", 0.05)
    assert await said(metrics, b"GET /met") == ""


async def test_without_its_package_it_says_what_to_install(
    lan: Lan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageProblem, match=r"pip install '\.\[rendezvous\]'"):
        await Metrics.serve(lan.rendezvous, LOOPBACK, 0)
