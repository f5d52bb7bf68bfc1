"""What the head does next: events in, actions out. Knows no array, clock, socket or token's text.

A request waits in a bounded queue, takes a slot (group, row), is prefilled in chunks, then steps
with its group until it ends. A slot is given to another request only after nothing of the old one
is under way and its Release has been round the ring. Chunks that a slot holds already are not
prefilled again: the first one that is missing says where those before it are.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafila.defaults import CHUNKS_A_MEMBER
from kafila.serve.actions import Action, Chunk, End, Forward, Free, Slot, Step, Token, Work
from kafila.serve.frames import FrameError
from kafila.serve.places import Chunks, Place, Places, common
from kafila.serve.turns import decode_next


def chunks_under_way(members: int) -> int:
    """Prefill chunks in a ring at most, at their members and on their way."""
    return CHUNKS_A_MEMBER * members


class QueueFull(Exception):
    """The admission queue is at its bound; the client may try again later."""


@dataclass
class _Request:
    id: int
    prompt: int
    limit: int
    eos: frozenset[int]
    chunks: Chunks  # the whole ones of the prompt
    place: Place | None = None
    begun: bool = False
    behind: tuple["_Request", int] | None = None  # who will soon have so many of its positions
    sent: int = 0  # prompt positions handed to the head's stage, or found in a slot
    returned: int = 0  # prompt positions that have been round the ring
    produced: int = 0
    busy: int = 0  # chunks and steps of it that are computing or under way
    ready: bool = False  # its last activation is at the head
    paused: bool = False
    leaving: bool = False

    @property
    def slot(self) -> Slot:
        return (self.place.group, self.place.row) if self.place else (-1, -1)

    @property
    def waits(self) -> bool:
        """What it shares with another prompt is sent for that one first, and then copied."""
        if self.behind is None:
            return False
        other, upto = self.behind
        return not other.leaving and other.sent < upto


@dataclass
class _Group:
    index: int
    slots: list[_Request | None]
    steps: int = 0
    flying: list[_Request] = field(default_factory=list)  # rows of the one frame under way

    def stepping(self) -> list[_Request]:
        """Requests that can take a step now; none while a frame of the group is under way."""
        if self.flying:
            return []
        return [r for r in self.slots if r and r.ready and not r.paused and not r.leaving]


class Scheduler:
    """Every method is an event and returns the actions it leads to, in the order to do them.

    At most one Work action is outstanding: `computed` answers it.
    """

    def __init__(self, *, groups: int, rows: int, members: int, chunk: int, queue: int) -> None:
        self._groups = [_Group(g, [None] * rows) for g in range(groups)]
        self._places = Places(groups, rows)
        self._most_chunks = chunks_under_way(members)
        self._chunk = chunk
        self._bound = queue
        self._requests: dict[int, _Request] = {}
        self._waiting: deque[_Request] = deque()
        self._prefilling: deque[_Request] = deque()
        self._chunks = 0  # computing or under way
        self._work: Work | None = None
        self._after_decode = False
        self._turn = 0  # the group that is looked at first

    @property
    def used(self) -> int:
        """Slots that hold a request or wait for its Release."""
        return self._places.used

    @property
    def slots(self) -> int:
        """Slots in all."""
        return len(self._places)

    @property
    def waiting(self) -> int:
        """Requests in the admission queue."""
        return len(self._waiting)

    # --- events from clients -----------------------------------------------------------------

    def submit(
        self, request: int, prompt: int, limit: int, eos: frozenset[int], chunks: Chunks = ()
    ) -> list[Action]:
        """A new request of `prompt` tokens that may get `limit` more; QueueFull past the bound.

        `chunks` are its whole chunks, to be compared with those of others.
        """
        if len(self._waiting) >= self._bound:
            raise QueueFull
        self._requests[request] = _Request(request, prompt, limit, eos, chunks)
        self._waiting.append(self._requests[request])
        return self._next()

    def cancel(self, request: int) -> list[Action]:
        """The client is gone or has enough; unknown and ended requests are nothing to do."""
        found = self._requests.get(request)
        if found is None or found.leaving:
            return []
        if found in self._waiting:
            self._waiting.remove(found)
            del self._requests[request]
            return [End(request, "cancelled")]
        if found in self._prefilling:
            self._prefilling.remove(found)
        return [End(request, "cancelled"), *self._leave(found), *self._next()]

    def pause(self, request: int) -> list[Action]:
        """The client does not read: the request sits out its group's steps."""
        if found := self._requests.get(request):
            found.paused = True
        return []

    def resume(self, request: int) -> list[Action]:
        """The client reads again."""
        if found := self._requests.get(request):
            found.paused = False
        return self._next()

    # --- events from the head's stage and from the ring --------------------------------------

    def computed(self, tokens: Iterable[int] = ()) -> list[Action]:
        """The outstanding Work is done; `tokens` are a Step's, in the order of its rows."""
        work, self._work = self._work, None
        if not isinstance(work, Step):
            return self._next()
        group = self._groups[work.group]
        actions: list[Action] = []
        for (_, request, _), token in zip(work.rows, tokens, strict=True):
            found = self._requests[request]
            if not found.leaving:
                found.produced += 1
                actions.append(Token(request, token))
                if token in found.eos:
                    actions.append(End(request, "stop"))
                    found.leaving = True
                elif found.produced == found.limit:
                    actions.append(End(request, "length"))
                    found.leaving = True
            if found.leaving:
                found.busy -= 1
                actions += self._leave(found)
            else:
                group.flying.append(found)
        onward = [(r.slot[1], r.prompt + r.produced - 1) for r in group.flying]
        forward = [Forward(work.group, work.step, tuple(onward))] if onward else []
        return [*forward, *self._next(), *actions]

    def chunk_returned(self, request: int, slot: Slot, stop: int) -> list[Action]:
        """The request's chunk up to `stop` has been round the ring."""
        found = self._requests.get(request)
        if found is None or found.slot != slot or not found.returned < stop <= found.sent:
            raise FrameError("a prefill chunk came back that was never sent")
        self._chunks -= 1
        found.busy -= 1
        found.returned = stop
        found.ready = stop == found.prompt
        return [*(self._leave(found) if found.leaving else ()), *self._next()]

    def step_returned(self, group: int, step: int, rows: tuple[int, ...]) -> list[Action]:
        """The group's frame has been round the ring."""
        found = self._groups[group]
        sent = tuple(request.slot[1] for request in found.flying)
        if not sent or (step, rows) != (found.steps, sent):
            raise FrameError("a decode step came back that was never sent")
        actions: list[Action] = []
        for request in found.flying:
            request.busy -= 1
            request.ready = True
            if request.leaving:
                actions += self._leave(request)
        found.flying = []
        return [*self._next(), *actions]

    def released(self, slot: Slot) -> list[Action]:
        """The slot's Release has been round the ring: it is free."""
        group, row = slot
        found = self._groups[group].slots[row]
        if found is None or found.place is None or not found.leaving or found.busy:
            raise FrameError("a release came back that was never sent")
        self._groups[group].slots[row] = None
        self._places.free(found.place)
        del self._requests[found.id]
        return self._next()

    # --- decisions ---------------------------------------------------------------------------

    def _leave(self, request: _Request) -> list[Action]:
        request.leaving = True
        return [] if request.busy else [Free(request.slot)]

    def _next(self) -> list[Action]:
        self._admit()
        if self._work is not None:
            return []
        stepping = self._stepping_group()
        prefill = bool(self._prefilling) and self._chunks < self._most_chunks
        if stepping and decode_next(True, prefill, self._after_decode):
            self._work, self._after_decode = self._step(stepping), True
        elif prefill:
            self._work, self._after_decode = self._next_chunk(), False
        return [self._work] if self._work else []

    def _admit(self) -> None:
        """First come, first served."""
        while self._waiting:
            place = self._places.take(self._waiting[0].chunks)
            if place is None:
                return
            request = self._waiting.popleft()
            self._groups[place.group].slots[place.row] = request
            request.place = place
            request.behind = self._leader(request)
            self._prefilling.append(request)

    def _leader(self, request: _Request) -> tuple[_Request, int] | None:
        """Who is being prefilled and has most in common with the request, and that in positions."""
        shared = [(common(r.chunks, request.chunks), r) for r in self._prefilling]
        most, leader = max(shared, key=lambda pair: pair[0], default=(0, request))
        return (leader, most * self._chunk) if most else None

    def _stepping_group(self) -> _Group | None:
        order = self._groups[self._turn :] + self._groups[: self._turn]
        return next((group for group in order if group.stepping()), None)

    def _step(self, group: _Group) -> Step:
        self._turn = (group.index + 1) % len(self._groups)
        group.steps = (group.steps + 1) % 2**32
        rows = group.stepping()
        for request in rows:
            request.ready = False
            request.busy += 1
        numbered = tuple((r.slot[1], r.id, r.prompt + r.produced) for r in rows)
        return Step(group.index, group.steps, numbered)

    def _next_chunk(self) -> Chunk:
        """Requests take turns chunk by chunk, so a long prompt does not hold up a short one."""
        request = next(r for r in self._prefilling if not r.waits)  # the first of all never does
        self._prefilling.remove(request)
        place = request.place
        assert place is not None
        source = place if request.begun else self._begin(request, place)
        start, stop = request.sent, min(request.sent + self._chunk, request.prompt)
        request.sent = stop
        request.busy += 1
        place.chunks = request.chunks[: stop // self._chunk]
        self._chunks += 1
        if stop < request.prompt:
            self._prefilling.append(request)
        where = source.group, source.row
        return Chunk(request.id, request.slot, start, stop, stop == request.prompt, where)

    def _begin(self, request: _Request, place: Place) -> Place:
        """Who has what the request begins with. Its last token is computed, for the output."""
        source, shared = self._places.source(place, request.chunks)
        shared = min(shared, (request.prompt - 1) // self._chunk)
        request.begun, request.behind = True, None
        request.sent = request.returned = shared * self._chunk
        if not shared:
            return place
        self._places.touch(source)
        return source
