"""What a member shows: plain lines in a log, bars and one live line on a terminal; rates."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kafila.serve.rates import Rate
from kafila.serve.view import Lines, Terminal


def test_a_log_gets_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines() as view:
        for done in range(0, 101, 10):
            view.progress("loading", done << 20, 100 << 20)
        view.progress("compiling", 3, 3)
        view.state("idle", active=False)
        for _ in range(5):
            view.state("12.0 tok/s", active=True)
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        "loading: 0.0 of 100.0 MiB",
        "loading: 100.0 of 100.0 MiB",
        "compiling: 3 of 3",
        "12.0 tok/s",
    ]


def test_a_terminal_shows_bars_then_the_state() -> None:
    screen = io.StringIO()
    with Terminal(Console(file=screen, force_terminal=True, width=80)) as view:
        view.say("edge to [bert] is up")
        view.progress("loading", 1 << 20, 4 << 20)
        view.progress("loading", 4 << 20, 4 << 20)
        view.state("3.0 tok/s; 1 of 4 slots in use", active=True)
    shown = screen.getvalue()
    assert "edge to [bert] is up" in shown
    assert "3.0 tok/s; 1 of 4 slots" in shown


@given(st.floats(0, 1e6), st.integers(1, 50), st.integers(1, 60))
def test_a_steady_rate_is_that_rate(began: float, each: int, seconds: int) -> None:
    rate = Rate(seconds=10)
    for tick in range(seconds * 4):
        rate.add(each, began + tick / 4)
    now = began + seconds
    assert rate.per_second(now) == pytest.approx(4 * each, rel=0.2)
    assert rate.per_second(now + 60) == 0


def test_nothing_happened() -> None:
    assert Rate().per_second(5.0) == 0
