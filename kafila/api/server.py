"""The API on a local port, served on the running event loop."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from kafila.defaults import FAREWELL_SECONDS
from kafila.errors import NetworkProblem

HOST = "127.0.0.1"


def bind(port: int) -> socket.socket:
    """Take a port on the loopback address without answering yet. NetworkProblem if it is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise _unusable(port, error) from None
    return listener


async def answer(app: ASGIApp, listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Answer until cancelled; then running answers have FAREWELL_SECONDS to end."""
    port = listener.getsockname()[1]
    try:
        listener.listen()
    except OSError as error:
        raise _unusable(port, error) from None
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=round(FAREWELL_SECONDS),
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    on_ready(f"http://{HOST}:{port}")
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await asyncio.wait({serving})


class _Server(uvicorn.Server):
    """Signals belong to the member's process, not to its API."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _unusable(port: int, error: OSError) -> NetworkProblem:
    if error.errno == errno.EADDRINUSE:
        return NetworkProblem(f"port {port} on {HOST} is in use; name another with --port")
    return NetworkProblem(f"port {port} on {HOST} cannot be used: {error.strerror}")
