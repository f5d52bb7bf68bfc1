"""Which slot a prompt gets, and who has the most of it."""

from kafila.serve.places import Place, Places, common


def at(place: Place | None) -> tuple[int, int] | None:
    return (place.group, place.row) if place else None


def leave(places: Places, place: Place | None, *chunks: bytes) -> None:
    assert place is not None
    place.chunks = chunks
    places.free(place)


def test_the_emptiest_group_and_its_lowest_row() -> None:
    places = Places(2, 2)
    taken = [places.take([]) for _ in range(5)]
    assert [at(place) for place in taken] == [(0, 0), (1, 0), (0, 1), (1, 1), None]
    assert (places.used, len(places)) == (4, 4)
    leave(places, taken[3])
    assert at(places.take([])) == (1, 1)


def test_what_holds_nothing_goes_before_what_is_old() -> None:
    places = Places(1, 3)
    a, b, c = (places.take([]) for _ in range(3))
    leave(places, b, b"b")
    leave(places, a, b"a")
    leave(places, c)
    assert [at(places.take([b"x"])) for _ in range(3)] == [(0, 2), (0, 1), (0, 0)]


def test_a_prompt_goes_on_in_the_slot_that_holds_no_more_than_its_beginning() -> None:
    places = Places(1, 3)
    a, b, c = (places.take([]) for _ in range(3))
    leave(places, a, b"1", b"2")
    leave(places, b, b"1", b"2", b"3")
    leave(places, c)
    assert at(places.take([b"1", b"2", b"x"])) == (0, 0)
    assert at(places.take([b"1", b"2", b"y"])) == (0, 2)  # the other conversation stays
    assert c is not None
    assert at(places.source(c, [b"1", b"2", b"3", b"4"])[0]) == (0, 1)


def test_a_busy_group_is_not_made_busier_for_what_it_holds() -> None:
    places = Places(2, 2)
    a, b = places.take([]), places.take([])
    c = places.take([])
    assert at(c) == (0, 1)
    leave(places, c, b"1")
    leave(places, b)
    assert a is not None
    assert at(places.take([b"1", b"2"])) == (1, 0)


def test_the_own_slot_before_others_that_hold_as_much() -> None:
    places = Places(1, 2)
    a, b = places.take([]), places.take([])
    assert a is not None
    assert b is not None
    a.chunks = b.chunks = [b"1"]
    assert places.source(b, [b"1", b"2"]) == (b, 1)
    a.chunks = [b"1", b"2"]
    assert places.source(b, [b"1", b"2"]) == (a, 2)
    assert places.source(b, [b"2"]) == (b, 0)


def test_common() -> None:
    assert common([], [b"1"]) == 0
    assert common([b"1", b"2", b"3"], [b"1", b"2"]) == 2
    assert common([b"1", b"x", b"3"], [b"1", b"2", b"3"]) == 1
