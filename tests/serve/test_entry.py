"""What is refused before a member does anything: foreign keys, plans that do not fit."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafila.cli import main
from kafila.derive import recheck
from kafila.errors import BadFile, IdentityProblem, NotAdmitted
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.plantext import render
from kafila.serve import entry
from tests.session.samples import plan as planned

Serve = Callable[..., tuple[int, str]]


@pytest.fixture
def identities(tmp_path: Path) -> list[tuple[str, Identity]]:
    return [(name, Identity.load_or_create(tmp_path / name)) for name in ("anna", "bert")]


@pytest.fixture
def plan(identities: list[tuple[str, Identity]]) -> PlanFile:
    return planned(identities)


def edited(plan: PlanFile, **session: Any) -> PlanFile:
    return plan.model_copy(update={"session": plan.session.model_copy(update=session)})


def cramped(plan: PlanFile) -> PlanFile:
    """The plan after someone has written a smaller room for its last member."""
    *others, last = plan.ring
    small = last.model_copy(update={"room_bytes": 1000})
    return plan.model_copy(update={"ring": (*others, small)})


def test_a_member_is_who_its_keys_say(
    plan: PlanFile, identities: list[tuple[str, Identity]], tmp_path: Path
) -> None:
    for name, identity in identities:
        assert plan.ring[entry.place(plan, identity)].name == name
    with pytest.raises(IdentityProblem, match="not in the plan"):
        entry.place(plan, Identity.load_or_create(tmp_path / "stranger"))


def replaced(folder: Path) -> Path:
    """Anna's exchange key after it was lost and another took its place."""
    file = folder / "anna" / "exchange.pem"
    shutil.copy(folder / "bert" / "exchange.pem", file)
    return file


def test_a_replaced_exchange_key_is_named(plan: PlanFile, tmp_path: Path) -> None:
    file = replaced(tmp_path)
    with pytest.raises(IdentityProblem) as caught:
        entry.place(plan, Identity.load_or_create(tmp_path / "anna"))
    assert f"{file} was replaced since anna was probed" in str(caught.value)


def test_a_plan_is_derived_anew(plan: PlanFile) -> None:
    entry.admit(plan)
    refused = recheck(cramped(plan)).refused
    with pytest.raises(NotAdmitted, match="undersized: ") as caught:
        entry.admit(cramped(plan))
    assert str(caught.value) == str(refused)
    entry.admit(cramped(plan).model_copy(update={"forced": True}))


@pytest.mark.parametrize("concurrency", [65_536, 2**53])
def test_more_requests_than_frames_can_number(plan: PlanFile, concurrency: int) -> None:
    """Whoever insists on the plan is told in words all the same, and at once."""
    wide = edited(plan, concurrency=concurrency).model_copy(update={"forced": True})
    with pytest.raises(BadFile, match=f"{concurrency} requests at once, at most 65535"):
        entry.admit(wide)


@pytest.fixture
def serve(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Serve:
    """Runs `kafila serve plan.yaml` as anna in tmp_path; nothing may get as far as the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kafila.cli.serve._serve", unreached)

    def run(plan: PlanFile, *words: str) -> tuple[int, str]:
        Path("plan.yaml").write_text(render(plan))
        monkeypatch.setattr(sys, "argv", ["kafila", "serve", "plan.yaml", "--home", "anna", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return run


def unreached(*_: object) -> None:
    raise AssertionError("it went on to the model")


def test_serve_refuses_what_no_longer_fits(serve: Serve, plan: PlanFile) -> None:
    code, err = serve(cramped(plan))
    assert code == 3
    assert err == f"kafila: {recheck(cramped(plan)).refused}\n"
    with pytest.raises(AssertionError, match="went on"):
        serve(cramped(plan).model_copy(update={"forced": True}))


def test_serve_refuses_another_exchange_key(serve: Serve, plan: PlanFile, tmp_path: Path) -> None:
    replaced(tmp_path)
    code, err = serve(plan)
    assert (code, err.count("\n")) == (7, 1)
    assert "exchange.pem was replaced" in err
