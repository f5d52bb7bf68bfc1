"""What the rendezvous' pure parts ask of the shell around them."""

from dataclasses import dataclass

from kafila.rendezvous.messages import Notice


@dataclass(frozen=True)
class Send:
    connection: int
    message: Notice


@dataclass(frozen=True)
class Close:
    """Close this connection, after what was sent to it before."""

    connection: int
    reason: str


@dataclass(frozen=True)
class Log:
    """One line for whoever runs the rendezvous."""

    line: str


Action = Send | Close | Log
