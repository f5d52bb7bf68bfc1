"""A connection: QUIC below, the in-band proof at its start, then messages on channels.

Knows no socket: a `Shell` (the node) hands it datagrams and sends what it makes. Loop thread only.

    OPENING -> OPEN -> CLOSING -> CLOSED      closed here, the peer is told and heard out
               OPEN -> LINGERING -> CLOSED    closed there (or refused here): last words still go
    any -> CLOSED                              the peer is silent, or breaks the protocol
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import Any, Final, Protocol

from kafila.address import Address
from kafila.defaults import CLOSE_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_REASON
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.carrier import tunnelled
from kafila.net.channels import Messages, frame
from kafila.net.handshake import LARGEST, ClientHandshake, ServerHandshake
from kafila.net.inbox import Inbox, Reader
from kafila.net.outbox import Outbox
from kafila.net.quic import (
    HANDSHAKE_STREAM,
    Cause,
    Event,
    Opened,
    Quic,
    Received,
    Reset,
    Routed,
    Terminated,
    Unrouted,
)


class Shell(Protocol):
    """What a connection needs of the node around it."""

    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram now."""

    def wake(self, connection: "Connection") -> None:
        """Call `connection.flush()` once at the end of this loop turn."""

    def join(self, connection: "Connection") -> None:
        """Know a new connection until it is released."""

    def route(self, cid: bytes, connection: "Connection") -> None:
        """Bring datagrams with this connection id to the connection."""

    def unroute(self, cid: bytes) -> None:
        """Forget a connection id."""

    def release(self, connection: "Connection") -> None:
        """Forget the connection; nothing will come of it any more."""


class _State(Enum):
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    LINGERING = "lingering"
    CLOSED = "closed"


_GOODBYE: Final = b"\x10"


class Connection:
    """An authenticated connection that carries messages, in order on each channel."""

    def __init__(
        self,
        shell: Shell,
        quic: Quic,
        handshake: ClientHandshake | ServerHandshake,
        *,
        label: str,
        address: Address,
        limit: int,
        channels: int,
        idle_timeout: float,
        on_opened: Callable[["Connection", KafilaError | None], None],
    ) -> None:
        """`label` names the peer in messages; `limit` bounds a message in bytes, `channels` their
        numbers; `on_opened` is called once, with the reason if the connection did not come up."""
        self.label = label
        self.address = address
        """Where the peer is now."""
        self.alpn = ""
        self._shell = shell
        self._quic = quic
        self._handshake = handshake
        self._idle_timeout = idle_timeout
        self._on_opened: Callable[[Connection, KafilaError | None], None] | None = on_opened
        self._loop = asyncio.get_running_loop()
        self._state = _State.OPENING
        self._deadline: float | None = self._loop.time() + HANDSHAKE_TIMEOUT
        self._words = Messages(max(LARGEST, len(_GOODBYE) + 2 + MAX_REASON))
        self._inbox = Inbox(channels, limit, self._call)
        self._outbox = Outbox(quic, channels, limit)
        self._goodbye: tuple[int, str] | None = None
        self._on_closed: Callable[[str], None] | None = None
        self._why: str | None = None
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._ping_at: float | None = None
        shell.join(self)
        for cid in quic.cids:
            shell.route(cid, self)
        shell.wake(self)

    # --- what users of a connection need -----------------------------------------------------

    @property
    def peer_key(self) -> bytes:
        """The peer's proven Ed25519 key, 32 bytes."""
        return self._handshake.peer_key

    @property
    def closed(self) -> bool:
        """Whether the connection carries nothing any more."""
        return self._state not in (_State.OPENING, _State.OPEN)

    @property
    def unsent(self) -> int:
        """About how many bytes wait to be sent; 0 once it is closed."""
        return self._outbox.unsent

    @property
    def on_message(self) -> Reader | None:
        """Called with channel and message. What came before it was set is delivered soon after."""
        return self._inbox.reader

    @on_message.setter
    def on_message(self, callback: Reader | None) -> None:
        self._inbox.reader = callback
        self._loop.call_soon(self._inbox.catch_up)

    @property
    def on_closed(self) -> Callable[[str], None] | None:
        """Called once with a sentence when the peer closed or fell silent, not for `close()`."""
        return self._on_closed

    @on_closed.setter
    def on_closed(self, callback: Callable[[str], None] | None) -> None:
        self._on_closed = callback
        if callback is not None and self._why is not None:
            self._loop.call_soon(self._report)

    def send(self, channel: int, message: bytes) -> None:
        """Queue a message; it leaves at the end of this loop turn.

        Raises NetworkProblem if the connection is closed, ValueError for a message over the limit
        or a channel that is none.
        """
        if self._state is not _State.OPEN:
            raise NetworkProblem(
                f"cannot send to {self.label}: {self._why or 'the connection is closed'}"
            )
        self._outbox.put(channel, message)
        self._shell.wake(self)

    async def close(self, reason: str = "") -> None:
        """Close the connection once the peer has everything that was sent (bounded wait)."""
        if self._state is _State.OPEN:
            self._state = _State.CLOSING
            self._inbox.shut()
            self._deadline = self._loop.time() + CLOSE_TIMEOUT
            self._say_goodbye(reason)
            self._shell.wake(self)
        if self._state is _State.CLOSING:
            await self._over.wait()
        else:
            self.abort(reason)

    def abort(self, reason: str) -> None:
        """Close the connection now, whatever is still on its way."""
        if self._state is _State.CLOSED:
            return
        self._answer(NetworkProblem(f"the connection to {self.label} was closed."))
        self._quic.close(_plain(reason))
        self._transmit(self._loop.time())
        self._finish()

    @property
    def tunnelled(self) -> bool:
        """Whether it goes through TLS on TCP, since no UDP gets through."""
        return tunnelled(self.address)

    # --- what the node calls -----------------------------------------------------------------

    def receive(self, datagram: bytes, source: Address, now: float) -> None:
        """Take a datagram; `process` and `flush` follow once all pending ones are taken."""
        self._quic.receive(datagram, self._peer_address(source), now)

    def process(self, now: float) -> None:
        """Act on what has arrived or come due."""
        try:
            for event in self._quic.events():
                if self._state is not _State.CLOSED:
                    self._handle(event)
        except ValueError as error:
            self._break(f"{self.label} broke the protocol: {error}.")

    def flush(self, now: float) -> None:
        """Send what there is to send, and set the timer."""
        if self._state is not _State.CLOSED:
            self._transmit(now)
            self._arm(now)

    def lost(self, why: str) -> None:
        """End it without a goodbye: what carried it is gone."""
        if self._state is not _State.CLOSED:
            self._break(why)

    # --- time --------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        """Keep one timer, at or before the earliest thing to do."""
        times = (self._quic.timer(), self._deadline, self._ping_at)
        due = min((time for time in times if time is not None), default=None)
        if due is None or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(max(due, now), self._tick)

    def _tick(self) -> None:
        assert self._timer is not None
        now = max(self._loop.time(), self._timer.when())  # the loop may be a clock tick early
        self._timer = None
        due = self._quic.timer()
        if due is not None and due <= now:
            self._quic.handle_timer(now)
        if self._ping_at is not None and self._ping_at <= now:
            self._ping(now)
        if self._deadline is not None and self._deadline <= now:
            self._expire()
        self.process(now)
        self.flush(now)

    def _ping(self, now: float) -> None:
        self._ping_at = now + self._idle_timeout / 3  # two may be lost before the peer gives up
        self._quic.ping()

    def _expire(self) -> None:
        """The deadline of the state has passed."""
        if self._state is _State.OPENING:
            self._break(f"{self.label} answered, but did not complete the handshake in time.")
        else:
            self.abort("")

    # --- events ------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        match event:
            case Received(stream, data, end) if stream == HANDSHAKE_STREAM:
                for message in self._words.feed(data):
                    self._hear(message)
                if end:
                    raise ValueError("its handshake stream ended")
            case Received(stream, data, end):
                self._take(stream, data, end)
            case Opened(alpn):
                self.alpn = alpn
                if isinstance(self._handshake, ClientHandshake):
                    for message in self._handshake.opening():
                        self._quic.send(HANDSHAKE_STREAM, frame(message))
            case Routed(cid):
                self._shell.route(cid, self)
            case Unrouted(cid):
                self._shell.unroute(cid)
            case Reset():
                raise ValueError("a stream was reset")
            case Terminated(cause, reason):
                self._terminated(cause, reason)

    def _hear(self, message: bytes) -> None:
        """Take a message of the handshake stream."""
        if self._state is _State.OPENING:
            self._prove(message)
        elif self._handshake.refusal is None:  # else: what was sent along with a refused HELLO
            if message[:1] != _GOODBYE or len(message) < 3:
                raise ValueError("an unknown control message")
            self._goodbye = (
                int.from_bytes(message[1:3]),
                _plain(message[3:].decode(errors="ignore")),
            )
            self._hear_out()

    def _prove(self, message: bytes) -> None:
        reply = self._handshake.receive(message)
        if reply is not None:
            self._quic.send(HANDSHAKE_STREAM, frame(reply))
        if self._handshake.refusal is not None:
            self._answer(IdentityProblem(self._handshake.refusal.words(self.label)))
            if self._handshake.refusal.by_us:
                self._linger()
            else:
                self.abort("refused")
        elif self._handshake.accepted:
            self._state = _State.OPEN
            self._deadline = None
            self._ping(self._loop.time())
            self._answer(None)

    def _take(self, stream: int, data: bytes, end: bool) -> None:
        """Take bytes of a channel."""
        if isinstance(self._handshake, ServerHandshake) and not self._handshake.accepted:
            raise ValueError("it sent messages before its proof")
        if not stream & 2:
            raise ValueError("it opened a bidirectional stream")
        self._inbox.take(stream, data, end)
        if end:
            self._hear_out()

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as error:  # one faulty reader must not silence the node's other peers
            self._loop.call_exception_handler(
                {"message": f"reader of {self.label} failed", "exception": error}
            )

    def _terminated(self, cause: Cause, reason: str) -> None:
        said = f": {_plain(reason)}" if reason else ""
        match cause:
            case Cause.SILENCE:
                self._break(f"nothing was heard of {self.label} for {self._idle_timeout:g} s.")
            case Cause.ALPN:
                self._break(f"{self.label} is not what was asked for: another kind of Kafila node.")
            case Cause.TLS if isinstance(self._handshake, ClientHandshake):
                self._break(
                    f"{self.label} could not prove the key that was expected of it{said}.",
                    IdentityProblem,
                )
            case Cause.TLS:
                self._break(f"{self.label} does not believe this machine's key.", IdentityProblem)
            case Cause.CLOSED:
                self._break(f"{self.label} closed the connection{said}.")

    # --- the end -----------------------------------------------------------------------------

    def _say_goodbye(self, reason: str) -> None:
        """End every channel and say how many there were: then the peer knows it has them all."""
        head = _GOODBYE + self._outbox.end().to_bytes(2)
        self._quic.send(HANDSHAKE_STREAM, frame(head + _plain(reason).encode()[:MAX_REASON]))

    def _hear_out(self) -> None:
        """Go, if the peer has said goodbye and all it sent before is here."""
        if self._goodbye is None or self._inbox.ended < self._goodbye[0]:
            return
        if self._state is _State.CLOSING:
            self.abort("")
        elif self._state is _State.OPEN:
            self._say_goodbye("")
            self._linger()
            reason = self._goodbye[1]
            self._gone(f"{self.label} closed the connection" + (f": {reason}" if reason else "."))

    def _answer(self, problem: KafilaError | None) -> None:
        """Say once whether the connection came up."""
        if self._on_opened is not None:
            callback, self._on_opened = self._on_opened, None
            self._call(callback, self, problem)

    def _linger(self) -> None:
        """Stay until the peer has heard our last words and closes, or is given up."""
        self._state = _State.LINGERING
        self._deadline = self._loop.time() + CLOSE_TIMEOUT

    def _break(self, why: str, problem: type[KafilaError] = NetworkProblem) -> None:
        """The connection ends without a goodbye."""
        before = self._state
        self._answer(problem(why))
        self.abort("protocol error")
        if before is _State.OPEN:
            self._gone(why)

    def _gone(self, why: str) -> None:
        self._why = why
        self._report()

    def _report(self) -> None:
        if self._on_closed is not None and self._why is not None:
            callback, self._on_closed = self._on_closed, None
            self._call(callback, self._why)

    def _finish(self) -> None:
        self._state = _State.CLOSED
        self._outbox.unsent = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._over.set()
        self._shell.release(self)

    # --- datagrams ---------------------------------------------------------------------------

    def _transmit(self, now: float) -> None:
        for datagrams in self._quic.datagrams(now):
            self._send(datagrams)
            self._outbox.gone(sum(len(datagram) for datagram, _ in datagrams))

    def _peer_address(self, source: Address) -> Hashable:
        """Return what QUIC takes for the peer's address: it follows a client that moves."""
        return source

    def _send(self, datagrams: Iterable[tuple[bytes, Hashable]]) -> None:
        for datagram, address in datagrams:
            assert isinstance(address, tuple)
            self.address = address
            self._shell.send(datagram, address)


def _plain(text: str) -> str:
    """Make a peer's words fit for a terminal: printable, bounded, one line."""
    return "".join(character for character in text if character.isprintable())[:MAX_REASON]


def forsake(future: asyncio.Future[Any]) -> None:
    """Wait no more for a future: what it holds or may have held by now is of no interest."""
    if not future.cancel() and not future.cancelled():
        future.exception()  # looked at: asyncio does not complain of it later
