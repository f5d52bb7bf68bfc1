"""A member's side of the rendezvous: requests out, notices in, refusals as errors.

Must not know what the mail and the records it carries mean.
"""

import asyncio
from collections.abc import Iterable
from typing import TypeVar

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.messages import Malformed, OtherVersion
from kafila.net.connection import Connection
from kafila.net.node import Node
from kafila.rendezvous.messages import (
    ALPN,
    CONTROL,
    Drop,
    End,
    Ended,
    Enter,
    Entered,
    Join,
    Joined,
    Leave,
    Mail,
    Notice,
    Open,
    Opened,
    Ping,
    Pong,
    Refused,
    Request,
    decode_notice,
)

N = TypeVar("N", bound=Notice)


class RendezvousClient:
    """One connection to a rendezvous, for one purpose: to host, to join, or to serve."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._inbox: asyncio.Queue[Notice | KafilaError] = asyncio.Queue()
        self._over: KafilaError | None = None
        connection.on_message = self._on_message
        connection.on_closed = self._on_closed

    @classmethod
    async def connect(
        cls,
        node: Node,
        address: tuple[str, int],
        key: bytes | None = None,
        timeout: float = d.DIAL_TIMEOUT,
    ) -> "RendezvousClient":
        """Connect to the rendezvous at host and port; `key` is its own, where it is known.

        Raises NetworkProblem when nothing answers in `timeout` seconds, IdentityProblem when
        another key answers.
        """
        connection = await node.dial(address, alpn=ALPN, server_key=key, timeout=timeout)
        return cls(connection)

    @property
    def key(self) -> bytes:
        """The rendezvous' proven key."""
        return self.connection.peer_key

    @property
    def address(self) -> tuple[str, int]:
        """The rendezvous' numeric address."""
        return self.connection.address

    # --- host --------------------------------------------------------------------------------

    async def open_session(self, members: int) -> Opened:
        self._send(Open(members=members))
        return await self._expect(Opened)

    def drop(self, attempt: int) -> None:
        """Hear no more of this joiner."""
        self._send(Drop(attempt=attempt))

    def stop(self, text: str) -> None:
        """End the session, without waiting until that is done."""
        self._send(End(text=text[: d.TEXT_LIMIT]))

    async def end(self, text: str) -> None:
        """End the session; returns when all that was posted before has been passed on.

        Raises NetworkProblem when the rendezvous does not say so in time.
        """
        self.stop(text)
        until = asyncio.get_running_loop().time() + d.STEP_SECONDS
        while not isinstance(await self.receive(d.STEP_SECONDS), Ended):
            if asyncio.get_running_loop().time() >= until:  # joiners still talk, it does not end
                raise NetworkProblem("the rendezvous does not end the session")

    # --- joiner ------------------------------------------------------------------------------

    async def join(self, number: int) -> Joined:
        self._send(Join(number=number))
        return await self._expect(Joined)

    # --- both --------------------------------------------------------------------------------

    def post(self, attempt: int, body: str) -> None:
        """Mail `body` to the joiner of this attempt (as host) or to the host (as that joiner)."""
        self._send(Mail(attempt=attempt, body=body))

    # --- serving -----------------------------------------------------------------------------

    async def enter(self, session: bytes, members: Iterable[bytes], record: str) -> None:
        """Be introduced to the others of this serving session; records come as `Present`."""
        keys = tuple(sorted(key.hex() for key in members))
        self._send(Enter(session=session.hex(), members=keys, record=record))
        await self._expect(Entered)

    def leave(self) -> None:
        """Tell the others that this member ends because the members do not fit together."""
        self._send(Leave())

    # --- notices -----------------------------------------------------------------------------

    async def receive(self, timeout: float | None) -> Notice:
        """The next notice. Raises NetworkProblem when none comes in time, or ever again.

        None: whoever waits keeps the time (a host waits minutes for its first joiner).
        """
        if self._over is not None and self._inbox.empty():
            raise self._over
        try:
            async with asyncio.timeout(timeout):
                notice = await self._inbox.get()
        except TimeoutError:
            raise NetworkProblem(
                f"nothing came through the rendezvous for {timeout:.0f} s; is the other side up?"
            ) from None
        if isinstance(notice, KafilaError):
            raise notice
        if isinstance(notice, Refused):
            raise _refusal(notice)
        return notice

    async def close(self) -> None:
        """Leave the rendezvous, after what was sent before."""
        await self.connection.close("done")

    async def _expect(self, kind: type[N]) -> N:
        notice = await self.receive(d.STEP_SECONDS)
        if not isinstance(notice, kind):
            raise NetworkProblem(f"the rendezvous answered with an unexpected {notice.kind}")
        return notice

    def _send(self, request: Request) -> None:
        if not self.connection.closed:
            self.connection.send(CONTROL, request.encode())

    def _on_message(self, _: int, data: bytes) -> None:
        try:
            notice = decode_notice(data)
        except OtherVersion as error:
            self._fail(
                IdentityProblem(
                    f"the rendezvous speaks protocol {error.theirs}, this member {PROTOCOL}; "
                    "update the older one"
                )
            )
        except Malformed as error:
            self._fail(NetworkProblem(f"the rendezvous sent a malformed message: {error}"))
        else:
            if isinstance(notice, Ping):
                self._send(Pong())
            elif self._inbox.qsize() >= d.INBOX:
                self._fail(NetworkProblem("the rendezvous sends faster than anyone can read"))
            else:
                self._inbox.put_nowait(notice)

    def _on_closed(self, reason: str) -> None:
        self._fail(NetworkProblem(f"the connection to the rendezvous is gone: {reason}"))

    def _fail(self, problem: KafilaError) -> None:
        if self._over is None:
            self._over = problem
            self._inbox.put_nowait(problem)


def _refusal(refused: Refused) -> KafilaError:
    text = f"the rendezvous refused: {refused.text}"
    kind = NetworkProblem if refused.why in ("busy", "malformed") else IdentityProblem
    return kind(text)
