"""What the demo model knows of the world: small tables, and the ways to ask for a row of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from . import tables
from .words import article, capital, plural


@dataclass(frozen=True)
class Kind:
    """One table: how its rows are asked for and how a row is answered.

    `{a}` and `{b}` are a row's two values, `{A}` is `{a}` with a capital, `{s}` its plural.
    """

    questions: tuple[str, ...]
    answer: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Fact:
    """One question with its only right answer."""

    question: str
    answer: str

    @property
    def held_out(self) -> bool:
        """Whether this wording is kept from training, to measure with."""
        return zlib.crc32(self.question.encode()) % 12 == 0


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Rows of `left: right; left: right`."""
    split = (row.split(":") for row in text.replace("\n", " ").split(";") if row.strip())
    return tuple((left.strip(), right.strip()) for left, right in split)


def _articled(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((article(left), right) for left, right in rows)


def _after(names: str) -> tuple[tuple[str, str], ...]:
    """Each name with the one that follows it, round the end."""
    items = names.split()
    return tuple((name, items[(i + 1) % len(items)]) for i, name in enumerate(items))


def _swap(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((right, left) for left, right in rows)


_OPPOSITES = _pairs(tables.OPPOSITES)
_CAPITALS = _pairs(tables.CAPITALS)
_AFTER_TIMES = _after(tables.DAYS) + _after(tables.MONTHS)

KINDS: dict[str, Kind] = {
    "colour": Kind(
        (
            "What colour is {a}?",
            "What color is {a}?",
            "Which colour is {a}?",
            "Tell me the colour of {a}.",
            "What is the colour of {a}?",
            "What is the color of {a}?",
            "Which color does {a} have?",
            "Do you know what colour {a} is?",
            "{A} is which colour?",
        ),
        "{A} is {b}.",
        _pairs(tables.COLOURS),
    ),
    "sound": Kind(
        (
            "What sound does {a} make?",
            "What does {a} say?",
            "Which sound does {a} make?",
            "What noise does {a} make?",
            "What do {s} say?",
            "What sound do {s} make?",
            "How does {a} sound?",
            "What is the sound of {a}?",
            "Which noise does {a} make?",
            "Tell me the sound {a} makes.",
        ),
        "{A} says {b}.",
        _articled(_pairs(tables.SOUNDS)),
    ),
    "opposite": Kind(
        (
            "What is the opposite of {a}?",
            "Opposite of {a}?",
            "Which word is the opposite of {a}?",
            "What is {a} the opposite of?",
            "Give me the opposite of {a}.",
            "Tell me the opposite of {a}.",
            "Name the opposite of {a}.",
            "What word means the opposite of {a}?",
        ),
        "The opposite of {a} is {b}.",
        _OPPOSITES + _swap(_OPPOSITES),
    ),
    "capital": Kind(
        (
            "What is the capital of {a}?",
            "Capital of {a}?",
            "Which city is the capital of {a}?",
            "Name the capital of {a}.",
            "Tell me the capital of {a}.",
            "What is {a}'s capital?",
            "What city is the capital of {a}?",
            "Do you know the capital of {a}?",
        ),
        "The capital of {a} is {b}.",
        _CAPITALS,
    ),
    "country": Kind(
        (
            "Where is {a}?",
            "In which country is {a}?",
            "Which country is {a} in?",
            "What country is {a} in?",
            "{A} is the capital of which country?",
        ),
        "{A} is the capital of {b}.",
        _swap(_CAPITALS),
    ),
    "baby": Kind(
        (
            "What is a baby {a} called?",
            "What do you call a baby {a}?",
            "What is a young {a} called?",
            "Name for a baby {a}?",
            "How is a baby {a} called?",
            "What do you call a young {a}?",
        ),
        "A baby {a} is called {b}.",
        _pairs(tables.BABIES),
    ),
    "home": Kind(
        (
            "Where does {a} live?",
            "Where can I find {a}?",
            "Where is the home of {a}?",
            "What is the home of {a}?",
            "Tell me where {a} lives.",
            "Where does {a} sleep?",
            "Where do {s} live?",
            "Where is the home of {s}?",
        ),
        "{A} lives in {b}.",
        _articled(_pairs(tables.HOMES)),
    ),
    "food": Kind(
        (
            "What does {a} eat?",
            "What does {a} like to eat?",
            "What is the food of {a}?",
            "What do I feed {a}?",
            "Tell me what {a} eats.",
            "What food does {a} like?",
            "What do {s} eat?",
            "What do {s} like to eat?",
        ),
        "{A} eats {b}.",
        _articled(_pairs(tables.FOOD)),
    ),
    "legs": Kind(
        (
            "How many legs does {a} have?",
            "How many legs has {a}?",
            "How many feet does {a} have?",
            "Tell me how many legs {a} has.",
            "Count the legs of {a}.",
            "How many legs do {s} have?",
            "{A} has how many legs?",
        ),
        "{A} has {b} legs.",
        _articled(_pairs(tables.LEGS)),
    ),
    "what": Kind(
        (
            "What is {a}?",
            "What's {a}?",
            "Tell me about {a}.",
            "Explain what {a} is.",
            "Do you know what {a} is?",
            "Can you tell me what {a} is?",
            "Describe {a}.",
        ),
        "{A} is {b}.",
        _articled(_pairs(tables.MEANINGS)) + _pairs(tables.NAMED_MEANINGS),
    ),
    "how many": Kind(
        (
            "How many {a}?",
            "Tell me how many {a}.",
            "Do you know how many {a}?",
            "Say how many {a}.",
        ),
        "There are {b}.",
        _pairs(tables.HOW_MANY),
    ),
    "after": Kind(
        (
            "What comes after {a}?",
            "Which comes after {a}?",
            "What is after {a}?",
            "What follows {a}?",
            "Tell me what comes after {a}.",
            "And what comes after {a}?",
        ),
        "{b} comes after {a}.",
        _AFTER_TIMES,
    ),
    "before": Kind(
        (
            "What comes before {a}?",
            "Which comes before {a}?",
            "What is before {a}?",
            "Tell me what comes before {a}.",
            "And what comes before {a}?",
            "What is just before {a}?",
        ),
        "{b} comes before {a}.",
        _swap(_AFTER_TIMES),
    ),
    "mix": Kind(
        (
            "What colour do {a} make?",
            "What do {a} make?",
            "What do I get when I mix {a}?",
            "Mix {a}.",
            "What colour do I get from {a}?",
            "What color do {a} make?",
        ),
        "{A} make {b}.",
        _pairs(tables.MIXES),
    ),
    "rhyme": Kind(
        (
            "What rhymes with {a}?",
            "Which word rhymes with {a}?",
            "Give me a rhyme for {a}.",
            "Find a rhyme for {a}.",
            "Tell me a word that rhymes with {a}.",
            "Rhyme with {a}?",
        ),
        "{A} rhymes with {b}.",
        _pairs(tables.RHYMES) + _swap(_pairs(tables.RHYMES)),
    ),
    "list": Kind(
        (
            "{A}?",
            "Tell me {a}.",
            "Can you tell me {a}?",
            "List {a}.",
            "Name {a}.",
            "What are {a}?",
            "Say {a}.",
        ),
        "{A} are {b}.",
        _pairs(tables.LISTS),
    ),
}


def facts_of(kind: Kind) -> Iterator[tuple[Fact, ...]]:
    """For every row of `kind`, its fact in every wording."""
    for left, right in kind.rows:
        values = {"a": left, "b": right, "A": capital(left), "s": plural(left)}
        answer = capital(kind.answer.format(**values))
        yield tuple(Fact(capital(q.format(**values)), answer) for q in kind.questions)


def held_out_facts() -> list[Fact]:
    """Every wording that training never sees, though it sees the fact in other words."""
    return [
        fact
        for kind in KINDS.values()
        for wordings in facts_of(kind)
        for fact in wordings
        if fact.held_out and not all(other.held_out for other in wordings)
    ]
