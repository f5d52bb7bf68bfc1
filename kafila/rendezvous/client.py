"""A member's side of the rendezvous: requests out, notices in, refusals as errors.

Must not know what the mail and the records it carries mean.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.messages import Malformed, Message, OtherVersion
from kafila.net.connection import Connection
from kafila.net.node import Node
from kafila.net.relaying import Grant, relay_flow, relay_side
from kafila.rendezvous.messages import (
    ALPN,
    CONTROL,
    AskRelays,
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
    Pass,
    Passed,
    Ping,
    Pong,
    Reflect,
    Reflector,
    Refused,
    Relays,
    Request,
    decode_notice,
    pass_proof,
)

TOKEN_VARIABLE: Final = "KAFILA_TOKEN"
"""The environment variable with the token of a private rendezvous: there, and not among a command's
words, other users of the machine do not see it."""

N = TypeVar("N", bound=Notice)


class RendezvousClient:
    """One connection to a rendezvous, for one purpose: to host, to join, or to serve."""

    def __init__(self, connection: Connection, own: bytes) -> None:
        """`own` is the key that this member has proven on it."""
        self.connection = connection
        self._own = own
        self._inbox: asyncio.Queue[tuple[Notice | KafilaError, int]] = asyncio.Queue()
        self._unread = 0  # bytes
        self._asked: dict[type[Message], asyncio.Future[Notice]] = {}
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
        another key answers, or when the token in KAFILA_TOKEN is not one of a private rendezvous.
        """
        connection = await node.dial(address, alpn=ALPN, server_key=key, timeout=timeout)
        client = cls(connection, node.identity.key)
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            try:
                await client._show(token)
            except BaseException:
                await client.close()
                raise
        return client

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
        return await self._ask(Open(members=members), Opened)

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
        return await self._ask(Join(number=number), Joined)

    # --- both --------------------------------------------------------------------------------

    def post(self, attempt: int, body: str) -> None:
        """Mail `body` to the joiner of this attempt (as host) or to the host (as that joiner)."""
        self._send(Mail(attempt=attempt, body=body))

    # --- serving -----------------------------------------------------------------------------

    async def enter(self, session: bytes, members: Iterable[bytes], record: str) -> None:
        """Be introduced to the others of this serving session; records come as `Present`."""
        keys = tuple(sorted(key.hex() for key in members))
        await self._ask(Enter(session=session.hex(), members=keys, record=record), Entered)

    async def relays(
        self, session: bytes, members: Iterable[bytes], neighbours: Sequence[bytes]
    ) -> list[Grant]:
        """Be granted the relay for the edges to these members (keys, at most two), in their order.

        Grants last RELAY_GRANT_SECONDS; ask again at half of that. Both before and after `enter`.
        """
        request = AskRelays(
            session=session.hex(),
            members=tuple(sorted(key.hex() for key in members)),
            neighbours=tuple(key.hex() for key in neighbours),
        )
        answer = await self._ask(request, Relays)
        granted = [(each.key, each.flow, each.side) for each in answer.grants]
        asked = [
            (other.hex(), relay_flow(session, self._own, other).hex(), relay_side(self._own, other))
            for other in neighbours
        ]
        if granted != asked:
            raise NetworkProblem("the rendezvous granted other edges than were asked for")
        return [
            Grant(
                bytes.fromhex(each.key),
                session,
                bytes.fromhex(each.flow),
                each.side,
                each.expires,
                bytes.fromhex(each.token),
            )
            for each in answer.grants
        ]

    async def reflector(self) -> Reflector:
        """What NAT classification needs of the rendezvous."""
        return await self._ask(Reflect(), Reflector)

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
                notice, size = await self._inbox.get()
        except TimeoutError:
            raise NetworkProblem(
                f"nothing came through the rendezvous for {timeout:.0f} s; is the other side up?"
            ) from None
        self._unread -= size
        if isinstance(notice, KafilaError):
            raise notice
        return notice

    async def close(self) -> None:
        """Leave the rendezvous, after what was sent before."""
        await self.connection.close("done")

    async def _show(self, token: str) -> None:
        await self._ask(Pass(proof=pass_proof(token, self.key, self._own)), Passed)

    async def _ask(self, request: Request, kind: type[N]) -> N:
        """Send a request and wait for its answer; other notices go where they always go.

        One request of a kind at a time. Raises NetworkProblem for silence, what the refusal says
        for a refusal.
        """
        if self._over is not None:
            raise self._over
        answered: asyncio.Future[Notice] = asyncio.get_running_loop().create_future()
        self._asked[kind] = answered
        self._send(request)
        try:
            async with asyncio.timeout(d.STEP_SECONDS):
                notice = await answered
        except TimeoutError:
            raise NetworkProblem(
                f"the rendezvous does not answer `{request.kind}` after {d.STEP_SECONDS:.0f} s"
            ) from None
        finally:
            del self._asked[kind]
        assert isinstance(notice, kind)
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
            waiting = self._asked.get(type(notice))
            if isinstance(notice, Ping):
                self._send(Pong())
            elif isinstance(notice, Refused):
                self._fail(_refusal(notice))
            elif waiting is not None and not waiting.done():
                waiting.set_result(notice)
            elif self._unread > d.INBOX_BYTES:
                self._fail(NetworkProblem("the rendezvous sends faster than anyone can read"))
            else:
                size = len(data) + d.KEPT_MESSAGE_BYTES
                self._unread += size
                self._inbox.put_nowait((notice, size))

    def _on_closed(self, reason: str) -> None:
        self._fail(NetworkProblem(f"the connection to the rendezvous is gone: {reason}"))

    def _fail(self, problem: KafilaError) -> None:
        if self._over is None:
            self._over = problem
            self._inbox.put_nowait((problem, 0))
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(problem)


def _refusal(refused: Refused) -> KafilaError:
    text = f"the rendezvous refused: {refused.text}"
    kind = NetworkProblem if refused.why in ("busy", "malformed") else IdentityProblem
    return kind(text)
