"""The picture for a terminal: lines of styled spans, readable without colour at 80 columns."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kafila.explain.picture import Arrow, Bar, Picture, Station

Style = Literal["plain", "strong", "faint", "compute", "slowest", "memory", "over", "relayed"]
Line = list[tuple[str, Style]]

BAR = 44
"""Cells of a bar where there is width enough."""
LEAST_BAR = 4
"""Fewer cells tell nothing; the figures then stand alone."""
LEAST_WIDTH = 40
LABEL = 12
"""Columns for what a reason is about; a longer name pushes its sentence to the right."""

STAYS = "\N{NO-BREAK SPACE}"
"""For the spaces at which a line is not to end."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What a picture is drawn with, beside letters."""

    full: str
    empty: str
    down: str
    top: str
    side: str
    bottom: str


DRAWN = Glyphs(full="█", empty="░", down="↓", top="┌─▶", side="│", bottom="└──")
TYPED = Glyphs(full="#", empty=".", down="v", top="+->", side="|", bottom="+--")
"""For terminals that have no more than ASCII."""


def glyphs_for(encoding: str) -> Glyphs:
    """The best glyphs that `encoding` has."""
    try:
        "█░↓┌─▶│└".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return TYPED
    return DRAWN


def lines(picture: Picture, width: int = 80, glyphs: Glyphs = DRAWN) -> list[Line]:
    """The picture in lines of at most `width` columns; below LEAST_WIDTH it stays that wide."""
    width = max(width, LEAST_WIDTH)
    figures = "; ".join(
        f"{what} {how_much}".replace(" ", STAYS) for what, how_much in picture.figures
    )
    drawn: list[Line] = [
        *_wrapped(picture.title, width, "strong"),
        *_wrapped(picture.subtitle, width, "plain"),
        *_wrapped(figures, width, "strong"),
        [],
        *_ring(picture.stations, width, glyphs),
        [],
    ]
    for reason in picture.reasons:
        drawn += _reason(reason.about, reason.words, width)
    return drawn


def plain(drawn: list[Line]) -> str:
    """Lines as text without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in drawn)


def _wrapped(text: str, width: int, style: Style) -> list[Line]:
    return [[(part.replace(STAYS, " "), style)] for part in textwrap.wrap(text, width)]


def _reason(about: str, words: str, width: int) -> Iterator[Line]:
    label = f"{about:<{LABEL}} "
    parts = textwrap.wrap(words, width, initial_indent=label, subsequent_indent=" " * (LABEL + 1))
    for part in parts:
        name = about if part.startswith(label) else ""
        yield [(name, "slowest" if about == "warning" else "strong"), (part[len(name) :], "plain")]


def _ring(stations: tuple[Station, ...], width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Stations one below the other; the rail at the left leads from the last to the first."""
    rail = f" {glyphs.side}   " if len(stations) > 1 else "     "
    figures = max(len(text) for each in stations for text in (_time(each), each.memory.words))
    cells = min(BAR, width - len(rail) - len("compute ") - figures - 1)
    for position, station in enumerate(stations):
        top = len(stations) > 1 and position == 0
        yield from _heading(station, f" {glyphs.top} " if top else rail, rail, width)
        for label, bar, style, words in (
            ("compute", station.compute, _compute_style(station), _time(station)),
            ("memory ", station.memory, _memory_style(station), station.memory.words),
        ):
            yield [(f"{rail}{label} ", "faint"), *_bar(bar, cells, glyphs, style), (words, "plain")]
        if station.arrow and position < len(stations) - 1:
            yield [(rail, "faint"), _arrow(station.arrow, f"{glyphs.down} ")]
        elif station.arrow:
            back = f"back to {station.arrow.to}: "
            yield [(f" {glyphs.bottom} ", "faint"), _arrow(station.arrow, back)]


def _heading(station: Station, start: str, rail: str, width: int) -> Iterator[Line]:
    role = ", the head" if station.head else ""
    nat = f", {station.nat}" if station.nat else ""
    words = f"{station.name}{role}{nat}: {station.blocks}, limited by {station.limit}"
    for position, part in enumerate(textwrap.wrap(words, width - len(rail))):
        name = station.name if position == 0 and part.startswith(station.name) else ""
        indent = rail if position else start
        yield [(indent, "faint"), (name, "strong"), (part[len(name) :], "plain")]


def _arrow(arrow: Arrow, before: str) -> tuple[str, Style]:
    return f"{before}{arrow.words}", "relayed" if arrow.relayed else "plain"


def _time(station: Station) -> str:
    return f"{station.compute.words}, slowest" if station.slowest else station.compute.words


def _compute_style(station: Station) -> Style:
    return "slowest" if station.slowest else "compute"


def _memory_style(station: Station) -> Style:
    return "over" if station.memory.part > 1 else "memory"


def _bar(bar: Bar, cells: int, glyphs: Glyphs, style: Style) -> Line:
    """At least one cell where there is anything, all of them only where nothing is left."""
    if cells < LEAST_BAR:
        return []
    full = min(cells, max(int(bar.part * cells), 1 if bar.part > 0 else 0))
    return [(glyphs.full * full, style), (glyphs.empty * (cells - full) + " ", "faint")]
