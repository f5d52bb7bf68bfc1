"""From a machine's memory to the rooms of the members on it, while other programs use it too."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kafila import defaults
from kafila.net.identity import Identity
from kafila.plan.admission import share_rooms
from kafila.plan.edges import edge_us
from kafila.plan.make import make_plan
from kafila.plan.reach import predict
from kafila.plan.refusal import Refused
from kafila.plan.values import Device
from kafila.probe import machine
from kafila.probe import report as files
from kafila.probe.device import measure
from stages.measure import Measured
from tests.plan.fleets import ONE, model, report

GIB = 1 << 30


def with_ram(monkeypatch: pytest.MonkeyPatch, total: int, available: int) -> None:
    """Describe a machine that is no container."""
    ram = SimpleNamespace(total=total, available=available)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: ram)
    monkeypatch.setattr(machine, "_cgroup_limit", lambda: None)


def probed(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    device_bytes: int | None,
    devices: tuple[str, ...] = ("0",),
) -> files.Report:
    """A report whose timings are given: only what becomes of the memory is asked here."""
    found = Measured(
        platform="cpu" if device_bytes is None else "cuda",
        device="",
        device_ids=() if device_bytes is None else devices,
        device_bytes=device_bytes,
        bandwidth=10**10,
        bandwidth_spread=0,
        overhead_us=50,
        overhead_spread_us=0,
        flops=10**12,
        flops_spread=0,
        rows_ns={1: 1000},
        block_ns=0,
        runtime_bytes=0,
        workspace_base=0,
        workspace_row=0,
        workspace_context=0,
    )
    monkeypatch.setattr("stages.measure.measure_device", lambda *_: found)
    monkeypatch.setattr(defaults, "CACHE", str(folder))
    identity = Identity.load_or_create(folder / "home")
    return measure("anna", identity, None, lambda *_: None)


def test_what_others_use_and_the_reserve_are_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ram(monkeypatch, 40 * GIB, 16 * GIB)
    assert machine.host_memory() == 14 * GIB
    with_ram(monkeypatch, 8 * GIB, GIB // 2)
    assert machine.host_memory() == 1


def test_members_on_a_machine_more_than_half_busy_share_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both measured 14 of 40 GiB: together that is less than the machine has, and not to be had."""
    with_ram(monkeypatch, 40 * GIB, 16 * GIB)
    measured = probed(monkeypatch, tmp_path, None)
    assert measured.machine_bytes == measured.room_bytes == 14 * GIB
    memory = {"machine": measured.machine, "machine_bytes": measured.machine_bytes}
    members = [
        report(name, room_bytes=measured.room_bytes, runtime_bytes=0, **memory).device()
        for name in ("anna", "bert")
    ]
    shared, notes = share_rooms(members)
    assert [each.room_bytes for each in shared] == [7 * GIB, 7 * GIB]
    assert notes == ("anna and bert are on one machine and share 14.00 GiB of room",)
    assert share_rooms(shared) == (shared, ())
    with pytest.raises(Refused, match=r"share 14\.00 GiB"):
        make_plan(model(20, block_bytes=GIB), ONE, members, "anna")
    assert make_plan(model(13, block_bytes=GIB // 2), ONE, members, "anna")


def test_a_device_with_a_memory_of_its_own_is_not_asked_for_ram(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_ram(monkeypatch, 40 * GIB, 16 * GIB)
    measured = probed(monkeypatch, tmp_path, 24 * GIB)
    assert measured.machine_bytes == measured.room_bytes
    assert 20 * GIB < measured.room_bytes < 24 * GIB


def test_a_room_on_several_devices_is_shared_device_by_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Anna works on both cards, bert on the second, cleo on a third, dora on the CPU."""

    def member(name: str, device_bytes: int | None, *devices: str) -> Device:
        found = probed(monkeypatch, tmp_path, device_bytes, devices).device()
        return replace(found, name=name)

    with_ram(monkeypatch, 40 * GIB, 16 * GIB)
    anna = member("anna", 48 * GIB, "0", "1")
    bert, cleo = member("bert", 24 * GIB, "1"), member("cleo", 24 * GIB, "2")
    dora = member("dora", None)
    assert len({each.host for each in (anna, bert, cleo, dora)}) == 1
    assert set(anna.memories) > set(bert.memories)
    assert len({*anna.memories, *cleo.memories, *dora.memories}) == 4
    shared, notes = share_rooms([anna, bert, cleo, dora])
    card = bert.room_bytes
    assert [each.room_bytes for each in shared] == [card, card // 2, card, dora.room_bytes]
    assert len(notes) == 1
    assert notes[0].startswith("anna and bert are on one machine and share")
    assert share_rooms(shared) == (shared, ())
    # Two who both work on both share what both hold, and a note says it once.
    twins, notes = share_rooms([anna, replace(anna, name="bert")])
    assert [each.room_bytes for each in twins] == [card, card]
    assert len(notes) == 1
    assert f"share {2 * card / GIB:.2f} GiB" in notes[0]


def test_members_on_different_devices_of_a_machine_are_on_one_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_ram(monkeypatch, 40 * GIB, 16 * GIB)
    rooms = [(24 * GIB, ("0",)), (24 * GIB, ("1",)), (None, ())]
    members = [probed(monkeypatch, tmp_path, size, names).device() for size, names in rooms]
    assert len({each.machine for each in members}) == 3
    for one, other in combinations(members, 2):
        assert predict(one, other).why == "one machine"
        assert edge_us(one, other, "direct") == 0
