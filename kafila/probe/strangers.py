"""A stranger's part in a classification: two members knock at each other's doors. Sans-IO.

A stranger is another member at an address that the first has never sent anything to. What of its
knocks comes in shows what the first one's NAT lets in; where the first one's own knocks seem to
come from shows how it maps. Knows nothing of servers, nor how the two agree.
"""

import math
from collections.abc import Sequence

from kafila import defaults as d
from kafila.address import Address
from kafila.net.reflecting import Knock, decode


class Visit:
    """The member's side: a stranger knocks at both its sockets, the mapping socket knocks back."""

    def __init__(self, door: Address, token: bytes) -> None:
        self.door = door
        """Where the stranger is, as the rendezvous sees it."""
        self.target = door
        """Where to knock back at."""
        self.seen: list[Address] = []
        """Where this member's knocks came from, as the stranger says."""
        self.over = False
        """The stranger has said so."""
        self.due = math.inf
        self._knock = Knock(token)
        self._times: list[float] = []

    def opener(self) -> bytes:
        """What makes way for the stranger's knocks; sent before it is asked to knock, and so that
        it never gets there: what comes unasked would take the flow for itself at some NATs."""
        return self._knock.encode()

    def begin(self, now: float) -> None:
        """The stranger was asked to knock."""
        self._times = [now + d.KNOCK_UNASKED + each for each in d.KNOCKS]
        self.due = self._times[0]

    def theirs(self, knock: Knock, source: Address) -> bool:
        """Whether a knock that came in is the stranger's."""
        return knock == self._knock and source[0] == self.door[0]

    def way_back(self, source: Address) -> None:
        """The stranger's knock came in at the mapping socket."""
        self.target = source  # it leads back, whatever the stranger's NAT does
        if self._times:  # it is open: no need to wait
            self.due = -math.inf

    def poll(self, now: float) -> bytes | None:
        """The knock to send to `target` from the mapping socket, if one is due."""
        if now < self.due:
            return None
        self._times.pop(0)
        self.due = self._times[0] if self._times else math.inf
        return self._knock.encode()


class Stranger:
    """The other side: knocks at a member's doors and notes where its knocks come from."""

    def __init__(self, doors: Sequence[Address], token: bytes, now: float) -> None:
        self.seen: list[Address] = []
        """Sources of the member's knocks, each once."""
        self.until = now + d.KNOCK_SECONDS
        self._doors = doors
        self._knock = Knock(token)
        self._times = [now + each for each in d.KNOCKS]

    @property
    def due(self) -> float:
        """When to call `poll` next."""
        return self._times[0] if self._times else self.until

    def poll(self, now: float) -> list[tuple[bytes, Address]]:
        """The knocks that are due."""
        if not self._times or now < self._times[0]:
            return []
        self._times.pop(0)
        return [(self._knock.encode(), door) for door in self._doors]

    def received(self, datagram: bytes, source: Address) -> None:
        """A datagram came in; what is no knock of this visit is ignored."""
        try:
            if decode(datagram) == self._knock and source not in self.seen:
                self.seen = [*self.seen, source][: d.DOORS]
        except ValueError:
            return
