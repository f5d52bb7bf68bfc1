"""A member's place in the ring: frames from the previous member in, frames to the next one out.

It also carries what all members must learn (loaded, ready, failed) round the ring. Frames travel
forward; only a failure goes both ways, as the one ahead may be the one that is gone. Knows nothing
of requests or stages; a ring of one hands frames to itself.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from kafila.defaults import LAST_WORDS_SECONDS
from kafila.errors import KafilaError, NetworkProblem
from kafila.serve import frames
from kafila.serve.frames import Checked, Failure, Frame, FrameError, Loaded, Ready, Shape


class Link(Protocol):
    """What the ring needs of a connection to a neighbour (`kafila.net.Connection`)."""

    on_message: Callable[[int, bytes], None] | None
    on_closed: Callable[[str], None] | None

    @property
    def closed(self) -> bool: ...

    def send(self, channel: int, message: bytes) -> None: ...


def as_problem(error: BaseException) -> KafilaError:
    """Any exception as one line that can travel."""
    if isinstance(error, KafilaError):
        return error
    lines = str(error).strip().splitlines()
    return KafilaError(f"it failed: {type(error).__name__}: {lines[0] if lines else ''}")


class RingFailed(NetworkProblem):
    """A member failed or was lost; the message starts with the name of the one that says so."""


class Ring:
    """Frames to and from the neighbours of member `me` among `names` (ring order, head first).

    `previous` and `following` are one link in a ring of two, None in a ring of one.
    """

    def __init__(
        self, names: Sequence[str], me: int, previous: Link | None, following: Link | None
    ) -> None:
        self.names = names
        self.me = me
        self.shape: Shape | None = None
        self.on_frame: Callable[[Frame], None] = self._unexpected
        self.on_loaded: Callable[[int], None] = lambda member: None
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[KafilaError] = self._loop.create_future()
        self._waiting_for = set(range(len(names)))
        self._following = following
        self._links: dict[Link, str] = {}
        self._told = False
        for link, member in ((previous, me - 1), (following, me + 1)):
            if link is not None:
                self._links[link] = names[member % len(names)]
        for link, name in self._links.items():
            self._listen(link, name)

    @property
    def alone(self) -> bool:
        """A ring of one."""
        return len(self.names) == 1

    @property
    def last(self) -> bool:
        """This member's output goes to the head."""
        return self.me == len(self.names) - 1

    @property
    def loading(self) -> list[str]:
        """On the head: who has not loaded yet."""
        return [self.names[member] for member in sorted(self._waiting_for)]

    def send(self, frame: Frame) -> None:
        """Hand a frame to the next member."""
        if self._following is None:
            self._loop.call_soon(self._take, frame)
        elif not self._following.closed:  # `on_closed` tells of that
            self._following.send(frames.channel(frame), frames.encode(frame))

    def account(self, error: KafilaError) -> KafilaError:
        """How the ring ended, as the other members read it: who says so, then in whose words."""
        if isinstance(error, RingFailed):
            return error
        return RingFailed(f"{self.names[self.me]}: {error}")

    def loaded(self, shape: Shape) -> None:
        """This member can compute frames of `shape`: tell the head."""
        self.shape = shape
        if self.me == 0:
            self._take(Loaded(self.me))
        else:
            self.send(Loaded(self.me))

    def fail(self, error: KafilaError) -> None:
        """This member cannot go on, or leaves: tell the others in its own words and end here."""
        try:
            self._tell(error)
        finally:
            self._end(error)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Whatever goes wrong in here ends the ring: half-done work would stop it without a word.

        All that the loop calls on behalf of the ring runs under it.
        """
        try:
            yield
        except FrameError as error:
            before = self.names[self.me - 1]
            self.fail(NetworkProblem(f"{before} sent what this ring does not speak: {error}"))
        except Exception as error:  # of a stage, a link or this program: all are the ring's end
            self.fail(as_problem(error))

    # --- from the neighbours -----------------------------------------------------------------

    def _listen(self, link: Link, name: str) -> None:
        def message(_channel: int, data: bytes) -> None:
            self._message(data)

        def closed(reason: str) -> None:
            with self.guard():
                self._lost(name, reason)

        link.on_message, link.on_closed = message, closed

    def _message(self, data: bytes) -> None:
        with self.guard():
            self._received(
                frames.decode(data, members=len(self.names), shape=self.shape, to_head=self.me == 0)
            )

    def _take(self, frame: Frame) -> None:
        with self.guard():
            self._received(frame)

    def _received(self, frame: Frame) -> None:
        match frame:
            case Loaded() if self.me == 0:
                self._waiting_for.discard(frame.member)
                self.on_loaded(frame.member)
                if not self._waiting_for and not self.ready.is_set():
                    self.ready.set()
                    self.send(Ready())
            case Loaded():
                self.send(frame)
            case Ready():
                if self.me != 0:
                    self.ready.set()
                    self.send(frame)
            case Checked():
                name = self.names[frame.member]
                self.fail(
                    NetworkProblem(
                        f"{name} only checked its edges (--check): run `kafila serve` there without"
                    )
                )
            case Failure():
                if frame.member != self.me and not self.failed.done():
                    self._spread(frame)
                    self._end(RingFailed(f"{self.names[frame.member]}: {frame.text}"))
            case _:
                self.on_frame(frame)

    def _lost(self, name: str, reason: str) -> None:
        """A neighbour is gone. Its own account may still come the other way, and is better."""
        if self.failed.done():
            return
        lost = NetworkProblem(f"lost {name}: {reason.rstrip('.')}")
        self._tell(lost)
        self._loop.call_later(LAST_WORDS_SECONDS, self._end, lost)

    def _tell(self, error: KafilaError) -> None:
        if not self._told:
            self._told = True
            self._spread(Failure(self.me, error.exit_code, str(error)))

    def _spread(self, frame: Failure) -> None:
        """Tell both neighbours; whoever has heard of a failure already takes no notice."""
        for link in self._links:
            if not link.closed:
                link.send(frames.channel(frame), frames.encode(frame))

    def _end(self, error: KafilaError) -> None:
        self._told = True
        if not self.failed.done():
            self.failed.set_result(error)

    def _unexpected(self, frame: Frame) -> None:
        raise FrameError(f"a {type(frame).__name__} before this member was ready")
