"""The scheduler against a ring that answers in any order it could."""

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafila.serve.actions import Action, Chunk, End, Forward, Free, Step, Token
from kafila.serve.frames import FrameError
from kafila.serve.scheduler import QueueFull, Scheduler, chunks_under_way

EOS = 0
CHUNK = 3
ALIKE = [b"a", b"b"]  # few kinds of chunk, so that many prompts begin alike
QUEUE = 3


class RingMachine(RuleBasedStateMachine):
    """Plays head, ring and clients; checks every action against what it has seen."""

    @initialize(groups=st.integers(1, 3), rows=st.integers(1, 3), members=st.integers(1, 4))
    def begin(self, groups: int, rows: int, members: int) -> None:
        self.members = members
        self.scheduler = Scheduler(
            groups=groups, rows=rows, members=members, chunk=CHUNK, queue=QUEUE
        )
        self.ids = 0
        self.work: Chunk | Step | None = None
        self.chunks: deque[Chunk] = deque()  # round the ring, in order
        self.steps: dict[int, Forward] = {}
        self.releases: deque[tuple[int, int]] = deque()
        self.owner: dict[tuple[int, int], int] = {}
        self.prompt: dict[int, int] = {}
        self.labels: dict[int, list[bytes]] = {}
        self.holds: dict[tuple[int, int], list[object]] = {}  # what was computed, by position
        self.limit: dict[int, int] = {}
        self.filled: dict[int, int] = {}
        self.tokens: dict[int, list[int]] = {}
        self.ended: dict[int, str] = {}
        self.paused: set[int] = set()

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Chunk():
                    assert self.work is None
                    self.work = action
                    if action.request not in self.owner.values():
                        self.begin_prefill(action)
                    else:
                        assert action.source == action.slot
                    assert self.owner[action.slot] == action.request
                    assert self.filled[action.request] == action.start
                    assert 0 < action.stop - action.start <= CHUNK
                    assert action.last == (action.stop == self.prompt[action.request])
                    self.filled[action.request] = action.stop
                    told = self.told(action.request)
                    assert self.holds[action.slot][: action.start] == told[: action.start]
                    self.holds[action.slot] = told[: action.stop]
                    assert len(self.chunks) < chunks_under_way(self.members)
                case Step():
                    assert self.work is None
                    assert action.group not in self.steps, "two frames of one group"
                    assert action.rows
                    self.work = action
                    for row, request, position in action.rows:
                        assert self.owner[action.group, row] == request
                        assert request not in self.ended
                        assert request not in self.paused
                        assert position == self.filled[request] >= self.prompt[request]
                        self.filled[request] += 1
                        self.holds[action.group, row].append(("a token of", request))
                case Forward():
                    assert action.group not in self.steps
                    self.steps[action.group] = action
                case Token():
                    assert action.request not in self.ended
                    self.tokens[action.request].append(action.token)
                case End():
                    assert action.request not in self.ended
                    self.ended[action.request] = action.reason
                case Free():
                    assert action.slot not in self.releases
                    if owner := self.owner.get(action.slot):
                        assert owner in self.ended
                    busy = [s for s in self.steps.values() if s.group == action.slot[0]]
                    assert all(row != action.slot[1] for s in busy for row, _ in s.rows)
                    assert all(chunk.slot != action.slot for chunk in self.chunks)
                    self.releases.append(action.slot)

    def begin_prefill(self, chunk: Chunk) -> None:
        """A request's first chunk, in a slot that is free and behind what some slot holds."""
        assert chunk.slot not in self.owner, "a slot that is not free"
        self.owner[chunk.slot] = chunk.request
        assert chunk.start % CHUNK == 0
        assert chunk.start < self.prompt[chunk.request]
        assert chunk.start or chunk.source == chunk.slot
        self.holds[chunk.slot] = self.holds.get(chunk.source, [])[: chunk.start]
        self.filled[chunk.request] = chunk.start

    def told(self, request: int) -> list[object]:
        """What each position of a prompt must hold: whole chunks are as good as those alike."""
        labels = self.labels[request]
        whole = [tuple(labels[: i // CHUNK + 1]) for i in range(len(labels) * CHUNK)]
        return [*whole, *[("the rest of", request)] * (self.prompt[request] - len(whole))]

    @rule(prompt=st.integers(1, 11), limit=st.integers(1, 5), data=st.data())
    def submit(self, prompt: int, limit: int, data: st.DataObject) -> None:
        self.ids += 1
        self.prompt[self.ids], self.limit[self.ids] = prompt, limit
        self.labels[self.ids] = [data.draw(st.sampled_from(ALIKE)) for _ in range(prompt // CHUNK)]
        self.filled[self.ids], self.tokens[self.ids] = 0, []
        free = self.scheduler.slots - self.scheduler.used
        waiting = self.scheduler.waiting
        try:
            labels = self.labels[self.ids]
            self.do(self.scheduler.submit(self.ids, prompt, limit, frozenset([EOS]), labels))
        except QueueFull:
            assert (free, waiting) == (0, QUEUE)
            self.ended[self.ids] = "refused"

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.integers(1, self.ids))
        before = self.ended.get(request)
        self.do(self.scheduler.cancel(request))
        assert self.ended[request] == (before or "cancelled")

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        request = data.draw(st.integers(1, self.ids))
        self.paused.add(request)
        self.do(self.scheduler.pause(request))

    @precondition(lambda self: self.paused)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.paused)))
        self.paused.remove(request)
        self.do(self.scheduler.resume(request))

    @precondition(lambda self: self.work)
    @rule(data=st.data())
    def computed(self, data: st.DataObject) -> None:
        work, self.work = self.work, None
        tokens: list[int] = []
        if isinstance(work, Chunk):
            self.chunks.append(work)
        else:
            assert work is not None
            tokens = [data.draw(st.integers(0, 4)) for _ in work.rows]
        self.do(self.scheduler.computed(tokens))

    @precondition(lambda self: self.chunks)
    @rule()
    def chunk_returns(self) -> None:
        chunk = self.chunks.popleft()
        self.do(self.scheduler.chunk_returned(chunk.request, chunk.slot, chunk.stop))

    @precondition(lambda self: self.steps)
    @rule(data=st.data())
    def step_returns(self, data: st.DataObject) -> None:
        frame = self.steps.pop(data.draw(st.sampled_from(sorted(self.steps))))
        rows = tuple(row for row, _ in frame.rows)
        self.do(self.scheduler.step_returned(frame.group, frame.step, rows))

    @precondition(lambda self: self.releases)
    @rule()
    def release_returns(self) -> None:
        slot = self.releases.popleft()
        self.owner.pop(slot, None)
        self.do(self.scheduler.released(slot))

    @invariant()
    def bounded(self) -> None:
        if self.ids:
            assert self.scheduler.waiting <= QUEUE
            assert self.scheduler.used <= self.scheduler.slots
            computing = isinstance(self.work, Chunk)
            assert len(self.chunks) + computing <= chunks_under_way(self.members)

    def teardown(self) -> None:
        """Left alone, the ring answers everything and every request ends as it must."""
        if not hasattr(self, "scheduler"):
            return
        while self.paused:
            self.do(self.scheduler.resume(self.paused.pop()))
        for _ in range(5000):
            if self.releases:
                self.release_returns()
            elif self.work:
                work, self.work = self.work, None
                if isinstance(work, Chunk):
                    self.chunks.append(work)
                    self.do(self.scheduler.computed())
                else:
                    self.do(self.scheduler.computed([1] * len(work.rows)))
            elif self.chunks:
                self.chunk_returns()
            elif self.steps:
                frame = self.steps.pop(min(self.steps))
                rows = tuple(row for row, _ in frame.rows)
                self.do(self.scheduler.step_returned(frame.group, frame.step, rows))
            else:
                break
        assert sorted(self.ended) == list(range(1, self.ids + 1))
        assert (self.scheduler.used, self.scheduler.waiting) == (0, 0)
        for request, reason in self.ended.items():
            tokens = self.tokens[request]
            assert EOS not in tokens[:-1]
            assert len(tokens) <= self.limit[request]
            if reason == "stop":
                assert tokens[-1] == EOS
            if reason == "length":
                assert len(tokens) == self.limit[request]


RingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestRing = RingMachine.TestCase


def make(**changes: int) -> Scheduler:
    sizes = {"groups": 2, "rows": 2, "members": 3, "chunk": 4, "queue": 2} | changes
    return Scheduler(**sizes)


def chunks(actions: list[Action]) -> list[Chunk]:
    return [action for action in actions if isinstance(action, Chunk)]


def test_slots_fill_the_least_loaded_group_and_its_lowest_row() -> None:
    scheduler = make(members=9)
    started = chunks(scheduler.submit(0, 1, 1, frozenset()))
    for request in range(1, 4):
        scheduler.submit(request, 1, 1, frozenset())
        started += chunks(scheduler.computed())
    assert [chunk.slot for chunk in started] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_a_prompt_fills_the_ring_with_chunks() -> None:
    """One for each member to compute, and one on its way to it."""
    scheduler = make(members=2)
    seen = chunks(scheduler.submit(7, 40, 1, frozenset()))
    for _ in range(3):
        seen += chunks(scheduler.computed())
    assert [(chunk.start, chunk.stop) for chunk in seen] == [(0, 4), (4, 8), (8, 12), (12, 16)]
    assert scheduler.computed() == []
    (more,) = scheduler.chunk_returned(7, (0, 0), 4)
    assert isinstance(more, Chunk)
    assert more.start == 16


def test_two_prompts_take_turns() -> None:
    scheduler = make(members=9)
    order = [chunk.request for chunk in chunks(scheduler.submit(1, 16, 1, frozenset()))]
    scheduler.submit(2, 8, 1, frozenset())
    for _ in range(5):
        order += [chunk.request for chunk in chunks(scheduler.computed())]
    assert order == [1, 1, 2, 1, 2, 1]


def prefill(scheduler: Scheduler, request: int, prompt: int, labels: list[bytes]) -> list[Chunk]:
    """Play a lone request's prompt through; its chunks. It then sits out, until it leaves."""
    seen = chunks(scheduler.submit(request, prompt, 9, frozenset(), labels))
    scheduler.pause(request)
    for chunk in seen:
        seen += chunks(scheduler.computed())
        seen += chunks(scheduler.chunk_returned(request, chunk.slot, chunk.stop))
    return seen


def leave(scheduler: Scheduler, request: int, slot: tuple[int, int]) -> None:
    scheduler.cancel(request)
    scheduler.released(slot)


def test_a_conversation_goes_on_in_its_slot() -> None:
    scheduler = make()
    spans = []
    for request, labels in enumerate([[b"a", b"b"], [b"a", b"b", b"c"], [b"a", b"b", b"c"]], 1):
        prompt = 4 * len(labels) + (1 if request < 3 else 0)
        played = prefill(scheduler, request, prompt, labels)
        spans.append([(chunk.slot, chunk.start, chunk.stop) for chunk in played])
        leave(scheduler, request, (0, 0))
    assert spans == [
        [((0, 0), 0, 4), ((0, 0), 4, 8), ((0, 0), 8, 9)],
        [((0, 0), 8, 12), ((0, 0), 12, 13)],
        [((0, 0), 8, 12)],  # the last token's chunk is computed anyway
    ]


def test_another_conversation_copies_what_it_shares() -> None:
    """And leaves the slot alone that it copies from, finished or running."""
    scheduler = make(groups=1, rows=3)
    first = prefill(scheduler, 1, 13, [b"a", b"b", b"c"])
    assert {c.source for c in first} == {(0, 0)}
    (running,) = prefill(scheduler, 2, 6, [b"a"])
    assert (running.slot, running.source, running.start) == ((0, 1), (0, 0), 4)
    leave(scheduler, 1, (0, 0))
    other, rest = prefill(scheduler, 3, 14, [b"a", b"b", b"d"])
    assert (other.slot, other.source, other.start) == ((0, 2), (0, 0), 8)
    assert (rest.slot, rest.source, rest.start) == ((0, 2), (0, 2), 12)


def test_the_least_recently_used_slot_goes_first() -> None:
    scheduler = make(groups=1, rows=3)
    taken = []
    for request, label in enumerate([b"a", b"b", b"c", b"b", b"a", b"d", b"a"]):
        (*_, last) = prefill(scheduler, request, 5, [label])
        taken.append((last.slot[1], last.start))
        leave(scheduler, request, last.slot)
    assert taken == [(0, 4), (1, 4), (2, 4), (1, 4), (0, 4), (2, 4), (0, 4)]


def test_prompts_that_begin_alike_are_computed_once() -> None:
    scheduler = make(members=9, groups=1, rows=4)
    seen = chunks(scheduler.submit(1, 13, 9, frozenset(), [b"a", b"b", b"c"]))
    scheduler.submit(2, 13, 9, frozenset(), [b"a", b"b", b"c"])
    scheduler.submit(3, 9, 9, frozenset(), [b"a", b"d"])
    scheduler.submit(4, 9, 9, frozenset(), [b"e", b"f"])
    for _ in range(11):
        seen += chunks(scheduler.computed())
    assert [(c.request, c.start) for c in seen if c.request == 1] == [
        (1, 0),
        (1, 4),
        (1, 8),
        (1, 12),
    ]
    assert [(c.request, c.start) for c in seen if c.request == 2] == [(2, 12)]
    assert [(c.request, c.start) for c in seen if c.request == 3] == [(3, 4), (3, 8)]
    assert [(c.request, c.start) for c in seen if c.request == 4] == [(4, 0), (4, 4), (4, 8)]
    assert seen[2].request == 3  # no later than it must


def test_who_waits_for_another_goes_on_when_that_is_cancelled() -> None:
    scheduler = make(members=9, groups=1, rows=4)
    scheduler.submit(1, 13, 9, frozenset(), [b"a", b"b", b"c"])
    scheduler.submit(2, 13, 9, frozenset(), [b"a", b"b", b"c"])
    scheduler.cancel(1)
    (more,) = chunks(scheduler.computed())
    assert (more.request, more.start, more.source) == (2, 4, (0, 0))


def test_decode_and_prefill_alternate() -> None:
    scheduler = make(groups=1, members=1, chunk=1)
    kinds = []
    actions = scheduler.submit(1, 1, 9, frozenset())
    request, sent = 1, {1: 0, 2: 0}
    for _ in range(14):
        (work,) = [a for a in actions if isinstance(a, Chunk | Step)]
        kinds.append(type(work).__name__)
        if isinstance(work, Step):
            actions = scheduler.computed([5] * len(work.rows))
            rows = tuple(row for row, _, _ in work.rows)
            actions += scheduler.step_returned(0, work.step, rows)
        else:
            sent[work.request] = work.stop
            actions = scheduler.computed()
            actions += scheduler.chunk_returned(work.request, work.slot, work.stop)
        if request == 1:
            actions += scheduler.submit(2, 20, 9, frozenset())
            request = 2
    assert kinds[:2] == ["Chunk", "Step"]
    assert all(a != b for a, b in pairwise(kinds[1:]))


def test_frames_that_were_never_sent_are_refused() -> None:
    scheduler = make()
    scheduler.submit(1, 4, 4, frozenset())
    with pytest.raises(FrameError, match="prefill"):
        scheduler.chunk_returned(2, (0, 0), 4)
    with pytest.raises(FrameError, match="prefill"):
        scheduler.chunk_returned(1, (1, 0), 4)
    with pytest.raises(FrameError, match="decode"):
        scheduler.step_returned(0, 0, ())
    with pytest.raises(FrameError, match="release"):
        scheduler.released((0, 0))


def test_a_step_with_other_rows_is_refused() -> None:
    scheduler = make(groups=1, members=1)
    scheduler.submit(1, 4, 4, frozenset())
    scheduler.computed()
    (step,) = scheduler.chunk_returned(1, (0, 0), 4)
    assert isinstance(step, Step)
    scheduler.computed([9])
    with pytest.raises(FrameError, match="decode"):
        scheduler.step_returned(0, step.step, (1,))
    assert scheduler.step_returned(0, step.step, (0,))
