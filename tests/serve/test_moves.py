"""When a member says that an edge moved: at once, but seldom."""

import re
from pathlib import Path

import pytest

from kafila.defaults import MOVE_WORDS_SECONDS
from kafila.serve.moves import Moves, Watch
from tests.session.ring import Pair, Town, misplace

NOW = 1000.0
DIRECT = ("direct", "")
RELAYED = ("relayed", "the direct path died")


def test_a_move_is_said_at_once_and_only_once() -> None:
    moves = Moves(DIRECT)
    assert moves.timer() is None
    assert not moves.moved(DIRECT, NOW)
    assert moves.moved(RELAYED, NOW)
    assert not moves.moved(RELAYED, NOW + 1)
    assert moves.timer() is None
    assert moves.moved(DIRECT, NOW + MOVE_WORDS_SECONDS)


def test_moves_that_follow_soon_are_said_when_they_last() -> None:
    moves = Moves(DIRECT)
    assert moves.moved(RELAYED, NOW)
    assert not moves.moved(DIRECT, NOW + 1)
    assert moves.timer() == NOW + MOVE_WORDS_SECONDS
    assert not moves.poll(NOW + 2)
    assert moves.poll(NOW + MOVE_WORDS_SECONDS)
    assert moves.timer() is None


def test_what_has_passed_by_then_is_not_said() -> None:
    moves = Moves(DIRECT)
    assert moves.moved(RELAYED, NOW)
    assert not moves.moved(DIRECT, NOW + 1)
    assert not moves.moved(RELAYED, NOW + 2)
    assert moves.timer() is None
    assert not moves.poll(NOW + MOVE_WORDS_SECONDS)


async def test_a_real_move_is_said_and_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Town(tmp_path) as town:
        pair = Pair(town)
        with monkeypatch.context() as patch:
            await pair.open(lambda node: misplace(node, patch))
        said: list[str] = []
        name = pair.plan.ring[1].name
        watch = Watch(pair.plan, 0, {1: pair.edges[0]}, said.append)
        assert watch.status() == f"; relayed: {name}"
        (before,) = watch.health()
        assert (before["path"], before["relayed_share"]) == ("relayed", 1.0)
        assert before["why"]
        assert ", all relayed; in the end relayed, " in watch.account()[0]
        await town.stop()
        await town.start()
        await pair.until("direct")
        await pair.exchange(b"directly")
        assert len(said) == 1
        start = f"edge to {name} is now direct (127.0.0.1), "
        assert re.fullmatch(re.escape(start) + r"\d+\.\d\d ms there and back", said[0])
        assert watch.status() == ""
        (after,) = watch.health()
        assert (after["path"], after["why"]) == ("direct", "")
        assert 0 < after["relayed_share"] < 1
        (line,) = watch.account()
        assert re.search(r" direct, .+ relayed \(\d+\.\d%\); in the end direct \(", line)
        watch.close()
