"""What happens in a session, for whoever shows it: `str(event)` is a line for a person."""

from collections.abc import Callable
from dataclasses import dataclass

from kafila.words import listed, short


@dataclass(frozen=True)
class CodeReady:
    """The host can be joined with this code."""

    code: str
    members: int
    expires_s: int

    def __str__(self) -> str:
        others = self.members - 1
        who = "the other member" if others == 1 else f"the other {others} members"
        return f"this code is for {who} and good for {self.expires_s // 60} minutes"


@dataclass(frozen=True)
class MemberJoined:
    """A member knows the code and measures now."""

    name: str
    joined: int
    members: int

    def __str__(self) -> str:
        return f"{self.name} joined ({self.joined} of {self.members})"


@dataclass(frozen=True)
class ReportReceived:
    name: str
    reports: int
    members: int

    def __str__(self) -> str:
        return f"report of {self.name} received ({self.reports} of {self.members})"


@dataclass(frozen=True)
class MemberLeft:
    """A member's connection went before its report came; it may join again."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} left before it reported; it may join again with the same code"


@dataclass(frozen=True)
class JoinerRefused:
    key: str
    text: str

    def __str__(self) -> str:
        return f"refused {short(self.key)}: {self.text}"


@dataclass(frozen=True)
class HostConfirmed:
    """To the member: the host knows the code too; measuring starts."""

    host: str
    key: str
    model: str | None
    members: int

    def __str__(self) -> str:
        what = self.model or "the standard shapes"
        who = f"{self.host} (key {short(self.key)})"
        return f"joined {who}, {self.members} members; measuring {what}"


@dataclass(frozen=True)
class ReportSent:
    """To the member: the host keeps its report."""

    reports: int
    members: int

    def __str__(self) -> str:
        return f"the host has the report ({self.reports} of {self.members})"


@dataclass(frozen=True)
class Waiting:
    """These members of the plan are not there yet."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"waiting for {listed(self.names)}"


@dataclass(frozen=True)
class OtherPlan:
    """A member is there with another plan, or was: a process that died seems to be there yet."""

    name: str
    theirs: str
    mine: str
    waiting_s: int

    def __str__(self) -> str:
        return (
            f"{self.name} has another plan ({short(self.theirs)}) than this member "
            f"({short(self.mine)}); waiting {self.waiting_s} s for it to start with this one"
        )


@dataclass(frozen=True)
class Met:
    """A member of the plan is there."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} is here"


@dataclass(frozen=True)
class RendezvousLost:
    """To a serving member: no rendezvous, for now. Said once for an outage."""

    why: str

    def __str__(self) -> str:
        return f"{self.why.rstrip('.')}; it is dialled again, and direct edges do not need it"


@dataclass(frozen=True)
class RendezvousBack:
    """The member is registered again."""

    def __str__(self) -> str:
        return "the rendezvous is back"


@dataclass(frozen=True)
class Unrelayed:
    """The edge to this member has no relay: it comes up directly or not at all."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"no relay for the edge to {self.name}: {self.why.rstrip('.')}"


Event = (
    CodeReady
    | MemberJoined
    | ReportReceived
    | MemberLeft
    | JoinerRefused
    | HostConfirmed
    | ReportSent
    | Waiting
    | OtherPlan
    | Met
    | RendezvousLost
    | RendezvousBack
    | Unrelayed
)
OnEvent = Callable[[Event], None]
