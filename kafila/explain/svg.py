"""The picture as an SVG: a ring whose arcs are one token's time, bars beside it, reasons below.

It stands on its own panel, light or dark as the viewer prefers, and needs no other file.
"""

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from kafila.explain.picture import Arrow, Bar, Picture, Station
from kafila.explain.style import COLOURS, STYLE

WIDTH, MARGIN = 880, 32
TOP = 140
"""Where ring and rows start, below the heading."""
RADIUS, THICK = 104, 30
CENTRE_X = MARGIN + RADIUS + THICK
ROWS_X, ROW = 348, 92
BAR_X, BAR_WIDTH, BAR_HEIGHT = ROWS_X + 92, 216, 10
LINE, LABEL = 20, 110
"""Of the reasons: height of a line, width of what they are about."""
CHARS, NAME, LABEL_NAME = 100, 16, 12
"""Characters that fit a reason's line, a member's name over its bars, and one in smaller print."""

STAGE_DEGREES, EDGE_DEGREES = 14.0, 6.0
"""The least of an arc, so that nobody vanishes behind a slow network, or a fast edge."""


def draw(picture: Picture) -> str:
    """The whole SVG document."""
    rows_end = TOP + ROW * len(picture.stations)
    ring_end = TOP + 2 * (RADIUS + THICK)
    reasons_top = max(rows_end, ring_end) + 12
    reasons, end = _reasons(picture, reasons_top)
    height = end + MARGIN - LINE // 2
    body = [
        _tag("title", _clean(picture.title), id="title"),
        _tag("desc", _clean(describe(picture)), id="desc"),
        _tag("style", STYLE),
        _tag("rect", class_="panel", x=0.5, y=0.5, width=WIDTH - 1, height=height - 1, rx=10),
        *_heading(picture),
        *_ring(picture, TOP + RADIUS + THICK // 2),
        *_rows(picture.stations),
        *reasons,
    ]
    document = _tag(
        "svg",
        "\n" + "\n".join(body) + "\n",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=WIDTH,
        height=height,
        role="img",
        aria_labelledby="title desc",
    )
    return document + "\n"


def describe(picture: Picture) -> str:
    """All the picture says, for those who do not see it."""
    ring = [
        f"{each.name}{', the head' if each.head else ''}: {_held(each)}, computes "
        f"{each.compute.words} a token, needs {each.memory.words}"
        + (f", sends to {each.arrow.to} ({each.arrow.words})" if each.arrow else "")
        for each in picture.stations
    ]
    figures = [f"{what} {how_much}" for what, how_much in picture.figures]
    reasons = [f"{reason.about}: {reason.words}" for reason in picture.reasons]
    return ". ".join([picture.subtitle, "; ".join(figures), *ring, *reasons]) + "."


def _heading(picture: Picture) -> Iterator[str]:
    yield _text(MARGIN, 46, _short(picture.title, 60), "title")
    yield _text(MARGIN, 70, picture.subtitle, "faint")
    x = MARGIN
    for what, how_much in picture.figures:
        yield _text(x, 102, how_much, "big")
        yield _text(x, 120, what, "faint")
        x += 24 + max(12 * len(how_much), 7 * len(what))


def _ring(picture: Picture, centre_y: int) -> Iterator[str]:
    """Clockwise from the top: each stage an arc as long as it computes, each edge a gap."""
    stations = picture.stations
    if len(stations) == 1:
        yield _tag(
            "circle",
            cx=CENTRE_X,
            cy=centre_y,
            r=RADIUS,
            fill="none",
            stroke=COLOURS[0],
            stroke_width=THICK,
        )
    else:
        lengths = [
            length
            for each in stations
            for length in (each.length, each.arrow.length if each.arrow else 0)
        ]
        crowd = min(1.0, 240 / (len(stations) * (STAGE_DEGREES + EDGE_DEGREES)))
        least = [STAGE_DEGREES * crowd, EDGE_DEGREES * crowd] * len(stations)
        angles = sweeps(lengths, least)
        at = 0.0
        for position, each in enumerate(stations):
            stage, edge = angles[2 * position], angles[2 * position + 1]
            yield _stage_arc(each, position, at, stage, centre_y)
            if each.arrow:
                yield from _edge_arc(each.arrow, at + stage, edge, centre_y)
            at += stage + edge
    yield _text(CENTRE_X, centre_y + 2, picture.length[0], "big", anchor="middle")
    yield _text(CENTRE_X, centre_y + 22, picture.length[1], "faint", anchor="middle")


def sweeps(lengths: Sequence[float], least: Sequence[float]) -> list[float]:
    """Degrees in proportion to `lengths`, none below its `least`; 360 in all.

    The least degrees must be fewer than 360 together. Without lengths they set the proportions.
    """
    if not sum(lengths):
        return [360 * degrees / sum(least) for degrees in least]
    raised: set[int] = set()
    while True:
        left = 360 - sum(least[at] for at in raised)
        total = sum(length for at, length in enumerate(lengths) if at not in raised)
        angles = [
            least[at] if at in raised else left * length / total
            for at, length in enumerate(lengths)
        ]
        below = {at for at, angle in enumerate(angles) if angle < least[at]}
        if not below:
            return angles
        raised |= below


def _stage_arc(station: Station, position: int, at: float, sweep: float, centre_y: int) -> str:
    arc = _tag(
        "path",
        d=_arc(at, sweep, centre_y),
        fill="none",
        stroke=COLOURS[position % len(COLOURS)],
        stroke_width=THICK,
    )
    words = f"{station.name}: {station.blocks}, {station.compute.words}"
    number = ""
    if sweep >= STAGE_DEGREES * 0.7:
        x, y = _point(at + sweep / 2, RADIUS, centre_y)
        number = _text(x, y + 4.5, str(position + 1), "number", anchor="middle")
    return _tag("g", _tag("title", _clean(words)) + arc + number)


def _edge_arc(arrow: Arrow, at: float, sweep: float, centre_y: int) -> Iterator[str]:
    """A thin line with a tip in the direction of the ring."""
    kind = "relayed" if arrow.relayed else "direct"
    tip = min(sweep * 0.6, 4.0)
    if sweep - tip > 1:
        yield _tag("path", class_=kind, d=_arc(at, sweep - tip, centre_y), stroke_width=2.5)
    points = [
        _point(at + sweep - 0.3, RADIUS, centre_y),
        _point(at + sweep - tip, RADIUS - 6, centre_y),
        _point(at + sweep - tip, RADIUS + 6, centre_y),
    ]
    corners = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    yield _tag("polygon", class_="slowest" if arrow.relayed else "tip", points=corners)


def _arc(at: float, sweep: float, centre_y: int) -> str:
    (x, y), (to_x, to_y) = _point(at, RADIUS, centre_y), _point(at + sweep, RADIUS, centre_y)
    large = int(sweep > 180)
    return (
        f"M {_number(x)} {_number(y)} A {RADIUS} {RADIUS} 0 {large} 1 "
        f"{_number(to_x)} {_number(to_y)}"
    )


def _point(degrees: float, radius: float, centre_y: int) -> tuple[float, float]:
    """Where a clock's hand of that length points."""
    turn = math.radians(degrees)
    return CENTRE_X + radius * math.sin(turn), centre_y - radius * math.cos(turn)


def _rows(stations: Sequence[Station]) -> Iterator[str]:
    for position, station in enumerate(stations):
        y = TOP + ROW * position
        name = _short(station.name, NAME) + (", the head" if station.head else "")
        speed, more = ("slowest", ", slowest") if station.slowest else ("compute", "")
        fill = "over" if station.memory.part > 1 else "memory"
        drawn = [
            _tag("title", _clean(station.name)),
            _tag(
                "rect",
                x=ROWS_X,
                y=y,
                width=24,
                height=24,
                rx=6,
                fill=COLOURS[position % len(COLOURS)],
            ),
            _text(ROWS_X + 12, y + 17, str(position + 1), "number", anchor="middle"),
            _text(ROWS_X + 34, y + 17.5, name, "name"),
            _text(WIDTH - MARGIN, y + 17.5, _held(station), "faint", anchor="end"),
            *_bar(y + 43, "compute", station.compute, speed, more),
            *_bar(y + 62, "memory", station.memory, fill),
        ]
        yield _tag("g", "\n" + "\n".join(drawn) + "\n")
        if station.arrow:
            back = "back to " if position == len(stations) - 1 else "to "
            limit = f"limited by {station.limit}"
            yield _text(WIDTH - MARGIN, y + 82, limit, "faint", anchor="end")
            yield from _arrow(
                y + 81, f"{back}{_short(station.arrow.to, LABEL_NAME)}: ", station.arrow
            )


def _held(station: Station) -> str:
    """What it holds, and what stands between it and the others."""
    return f"{station.nat}, {station.blocks}" if station.nat else station.blocks


def _bar(y: int, label: str, bar: Bar, kind: str, more: str = "") -> Iterator[str]:
    yield _text(ROWS_X + 34, y, label, "faint")
    x, top, round_ = BAR_X + 8, y - BAR_HEIGHT + 1, BAR_HEIGHT / 2
    filled = max(min(1.0, bar.part) * BAR_WIDTH, BAR_HEIGHT if bar.part > 0 else 0)
    for width, css in ((BAR_WIDTH, "track"), (filled, kind)):
        if width:
            yield _tag("rect", class_=css, x=x, y=top, width=width, height=BAR_HEIGHT, rx=round_)
    yield _text(x + BAR_WIDTH + 12, y, bar.words + more)


def _arrow(y: int, where: str, arrow: Arrow) -> Iterator[str]:
    x = ROWS_X + 12
    kind = "relayed" if arrow.relayed else "direct"
    yield _tag("line", class_=kind, x1=x, y1=y - 50, x2=x, y2=y - 3, stroke_width=2)
    corners = f"{x - 4.5},{y - 4} {x + 4.5},{y - 4} {x},{y + 4}"
    yield _tag("polygon", class_="slowest" if arrow.relayed else "tip", points=corners)
    yield _text(ROWS_X + 34, y + 1, where + arrow.words, "faint")


def _reasons(picture: Picture, top: int) -> tuple[list[str], int]:
    """What the words below look like, and where they end."""
    drawn = [_tag("line", class_="rule", x1=MARGIN, y1=top, x2=WIDTH - MARGIN, y2=top)]
    y = top + 12
    for reason in picture.reasons:
        colour = ["slowest"] if reason.about == "warning" else []
        for position, part in enumerate(textwrap.wrap(reason.words, CHARS) or [""]):
            y += LINE
            if position == 0:
                drawn.append(_text(MARGIN, y, _short(reason.about, LABEL_NAME), "strong", *colour))
            drawn.append(_text(MARGIN + LABEL, y, part))
        y += 4
    return drawn, y


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(x: float, y: float, words: str, *classes: str, anchor: str = "start") -> str:
    kind = {"class_": " ".join(classes)} if classes else {}
    placed = {} if anchor == "start" else {"text_anchor": anchor}
    return _tag("text", _clean(words), x=x, y=y, **kind, **placed)


def _tag(element: str, content: str = "", **attributes: str | float) -> str:
    """An element; `content` is markup already. Underscores in names are dashes, but at the end."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}="
        + quoteattr(value if isinstance(value, str) else _number(value))
        for key, value in attributes.items()
    )
    return f"<{element}{written}>{content}</{element}>" if content else f"<{element}{written}/>"


def _clean(text: str) -> str:
    """Text as markup, without the few characters that XML cannot hold."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", text))


def _number(value: float) -> str:
    return f"{round(value, 2):g}"
