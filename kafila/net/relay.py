"""A member's end of a relayed flow: `Binding` keeps it bound, `Relayed` carries datagrams over it.

`Binding` is sans-IO: messages and `now` (seconds) in, messages out. Must not know what travels in
the frames, nor the control connection that the grants come from.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kafila.address import Address, format_address
from kafila.defaults import (
    RELAY_AGAIN,
    RELAY_AGAIN_MOST,
    RELAY_REFRESH,
    RELAY_TRIES,
    STEP_SECONDS,
)
from kafila.errors import NetworkProblem
from kafila.net.carrier import Carrier, Reader
from kafila.net.datagram import RELAY, Family, family
from kafila.net.relaying import (
    FRAME_HEAD,
    Bind,
    Bound,
    Challenge,
    Grant,
    State,
    answer,
    decode_binding,
    frame_head,
)

BOUND: Final = (State.ALONE, State.BOTH, State.SPENT)
"""The states in which the relay knows this end's address."""


class Binding:
    """One end of a flow. Send what `poll` and `receive` return, call `poll` at `timer`.

    ASKING --CHALLENGE--> ANSWERING --BOUND--> BOUND --10 s, or asked--> ANSWERING
                              ^ |
                              +-+ CHALLENGE: this address is new to the relay, or the relay is
    """

    def __init__(
        self, grant: Grant, now: float, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.grant = grant
        self.state: State | None = None
        """What the relay said last; None: nothing yet."""
        self.boot: bytes | None = None
        self.observed: Address | None = None
        """Where the relay sees this end."""
        self.rtt: float | None = None
        """Seconds of the last round trip to the relay."""
        self._random = random
        self._cookie: bytes | None = None
        self._asked: dict[bytes, float] = {}  # transaction -> when, since the last BOUND
        self._challenges = 0  # since the last BOUND
        self._pause = RELAY_AGAIN
        self._due = now

    @property
    def bound(self) -> bool:
        """Whether the relay knows this end, as far as one can tell."""
        return self.state in BOUND and len(self._asked) < RELAY_TRIES

    def timer(self) -> float:
        """When to poll next."""
        return self._due

    def poll(self, now: float) -> list[bytes]:
        """Time has passed."""
        if now < self._due:
            return []
        message = self._question(now)
        self._due = now + self._pause
        self._pause = min(self._pause * 2, RELAY_AGAIN_MOST)
        return [message]

    def refresh(self, now: float) -> None:
        """Ask at once whether the relay still knows this end."""
        if not self._asked:
            self._due = now

    def renew(self, grant: Grant, now: float) -> None:
        """Take a newer grant for the same end of the same flow."""
        self.grant = grant
        if self.state not in BOUND:
            self._due = now

    def restart(self, now: float) -> None:
        """Begin anew: the datagrams leave from another socket now."""
        self._cookie = None
        self._forget(now)

    def receive(self, datagram: bytes, now: float) -> list[bytes]:
        """Take a message of the relay. Raises ValueError for what is none, or not due."""
        message = decode_binding(datagram)
        ours = message.flow == self.grant.flow and message.side == self.grant.side
        if not ours or message.transaction not in self._asked:
            raise ValueError("no answer to anything that was asked")
        match message:
            case Challenge():
                self._cookie = message.cookie
                self._challenges += 1
                self._due = now + self._pause
                if self._challenges > RELAY_TRIES:  # it will not be satisfied: at leisure
                    return []
                return [self._question(now)]
            case Bound():
                self.rtt = now - self._asked[message.transaction]
                self.state, self.boot = message.state, message.boot
                self.observed = message.observed
                self._forget(now + RELAY_REFRESH)
                return []
        raise ValueError("a question, where an answer is due")

    def _question(self, now: float) -> bytes:
        transaction = self._random(8)
        if len(self._asked) >= 2 * RELAY_TRIES:
            del self._asked[next(iter(self._asked))]
        self._asked[transaction] = now
        if self._cookie is None:
            return Bind(self.grant.flow, self.grant.side, transaction).encode()
        return answer(self.grant, transaction, self._cookie).encode()

    def _forget(self, due: float) -> None:
        self._asked.clear()
        self._challenges = 0
        self._pause = RELAY_AGAIN
        self._due = due


class Home(Protocol):
    """What a relayed flow needs of its node."""

    relays: dict[bytes, Reader]
    """Relayed flows, and who reads the datagrams that name them."""

    def dispatch(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        """Bring a datagram to its reader."""


class Relayed:
    """The carrier of one flow: what is sent on it comes to the peer by way of the relay.

    `on_restart` is called when the relay is another process than before, or honours the grant no
    more: ask on a new control connection, then `renew`. `on_moved` is called when the relay sees
    this end at another address than before.
    """

    def __init__(self, node: Home, carrier: Carrier, address: Address, grant: Grant) -> None:
        """See `bind`."""
        if grant.flow in node.relays:
            raise ValueError("this flow is bound already")
        self.address = address
        """What stands for the peer on this carrier: where the relay was at first. It stays so."""
        self.on_restart: Callable[[Relayed], None] | None = None
        self.on_moved: Callable[[Relayed], None] | None = None
        self._node = node
        self._carrier = carrier
        self._relay = address
        self._head = frame_head(grant.flow)
        self._loop = asyncio.get_running_loop()
        self._binding = Binding(grant, self._loop.time())
        self._heard = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        node.relays[grant.flow] = self.receive
        self._poll()

    @classmethod
    async def bind(
        cls,
        node: Home,
        carrier: Carrier,
        address: Address,
        grant: Grant,
        timeout: float = STEP_SECONDS,
    ) -> "Relayed":
        """Bind this end of the grant's flow at the relay, over `carrier`; it stays bound.

        Raises NetworkProblem when the relay is silent for `timeout` seconds, or has no room.
        """
        relayed = cls(node, carrier, address, grant)
        where = format_address(address)
        try:
            async with asyncio.timeout(timeout):
                await relayed._heard.wait()
            if relayed.state not in BOUND:
                why = "is full" if relayed.state is State.BUSY else "does not honour its own grant"
                raise NetworkProblem(f"the relay at {where} {why}; try again in a minute.")
        except TimeoutError:
            relayed.close()
            raise NetworkProblem(
                f"the relay at {where} does not answer after {timeout:g} s."
            ) from None
        except BaseException:
            relayed.close()
            raise
        return relayed

    @property
    def grant(self) -> Grant:
        return self._binding.grant

    @property
    def state(self) -> State | None:
        """What the relay said last."""
        return self._binding.state

    @property
    def bound(self) -> bool:
        """Whether the relay knows this end, as far as one can tell."""
        return self._binding.bound

    @property
    def rtt_us(self) -> int | None:
        """The last round trip to the relay, in microseconds."""
        rtt = self._binding.rtt
        return None if rtt is None else round(rtt * 1e6)

    @property
    def observed(self) -> Address | None:
        """Where the relay sees this end; None through a tunnel."""
        return self._binding.observed

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        """Send a datagram to the peer. There is one peer, and the way to the relay has its own
        time to live: `address` and `ttl` change nothing."""
        self._carrier.send(self._head + datagram, self._relay)

    def send_all(self, datagrams: Sequence[bytes], address: Address) -> None:
        """Send several datagrams to the peer, like `send`."""
        self._carrier.send_all([self._head + each for each in datagrams], self._relay)

    def refresh(self) -> None:
        """Ask the relay at once whether it still knows this end."""
        self._binding.refresh(self._loop.time())
        self._poll()

    def renew(self, grant: Grant) -> None:
        """Take a newer grant for the same end of the same flow."""
        if (grant.flow, grant.side) != (self.grant.flow, self.grant.side):
            raise ValueError("a grant for another end")
        self._binding.renew(grant, self._loop.time())
        self._poll()

    def move(self, carrier: Carrier, address: Address) -> None:
        """Go on over another carrier, or to the relay's new address; the same: nothing."""
        if carrier is self._carrier and address == self._relay:
            return
        self._carrier, self._relay = carrier, address
        self._binding.restart(self._loop.time())
        self._poll()

    def close(self) -> None:
        """Let the flow go; the relay forgets it. Again: nothing."""
        if not self._closed:
            self._closed = True
            del self._node.relays[self.grant.flow]
            self._poll()

    def receive(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        """Take a datagram that names this flow. Raises ValueError for what is not understood."""
        if carrier is not self._carrier or source != self._relay:
            raise ValueError("not from the relay")
        if datagram[0] == RELAY:
            inner = datagram[FRAME_HEAD:]
            if family(inner) not in (Family.QUIC, Family.CHECK):
                raise ValueError("nothing that a peer sends")
            self._node.dispatch(inner, self, self.address)
            return
        binding = self._binding
        state, boot, observed = binding.state, binding.boot, binding.observed
        for message in binding.receive(datagram, self._loop.time()):
            self._carrier.send(message, self._relay)
        self._poll()
        if binding.state is not None:
            self._heard.set()
        if state is None:
            return
        refused = binding.state is State.REFUSED and state is not State.REFUSED
        if boot != binding.boot or refused:
            self._tell(self.on_restart)
        if observed != binding.observed:
            self._tell(self.on_moved)

    def _tell(self, callback: "Callable[[Relayed], None] | None") -> None:
        if callback is not None:
            self._loop.call_soon(callback, self)

    def _poll(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._closed:
            return
        for message in self._binding.poll(self._loop.time()):
            self._carrier.send(message, self._relay)
        self._timer = self._loop.call_at(self._binding.timer(), self._poll)
