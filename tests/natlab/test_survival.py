"""Numbers that go round a ring of members without a model: none is lost, whatever happens."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.natlab.crew import Member
from tools.natlab.survival import NAMES, Scene, scene

SECONDS = 40.0

pytestmark = pytest.mark.netns


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[tuple[Scene, list[Member]]]:
    place = scene(tmp_path)
    with place.lab:
        members = [Member(place.lab, place.hosts[name], name) for name in place.ring]
        for member in members:
            for other in set(NAMES) - {member.name}:
                member.waits("path", SECONDS, to=other, path="direct")
        yield place, members


def black_hole(place: Scene) -> None:
    place.black_hole(*place.ring[:2])


def reboot(place: Scene) -> None:
    place.routers["cleo"].reboot()


def lose(place: Scene) -> None:
    place.lab.everywhere(loss=0.05)


def restart(place: Scene) -> None:
    place.kill_rendezvous()
    place.start_rendezvous()


def test_numbers_go_on_whatever_happens(ring: tuple[Scene, list[Member]]) -> None:
    """A number that is lost, repeated or out of order would have ended its member."""
    place, (head, *_) = ring
    happenings: list[Callable[[Scene], None]] = [lose, reboot, restart, black_hole]
    for happens in happenings:
        happens(place)
        head.goes_on(SECONDS, frames=50)
        place.lab.everywhere(loss=0.0)
    assert head.told("path", to=place.ring[1])[-1]["path"] == "relayed"
    place.black_hole(*place.ring[:2], gone=False)
    deadline = time.monotonic() + SECONDS
    while head.told("path", to=place.ring[1])[-1]["path"] != "direct":
        assert time.monotonic() < deadline
        time.sleep(0.1)
