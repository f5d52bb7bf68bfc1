"""Greetings, questions about the model, names to remember, honest answers to all the rest."""

from __future__ import annotations

import random

from . import cast, talk_tables
from .facts import KINDS
from .plots import lines
from .words import capital

Exchange = tuple[str, str]

_UNKNOWN_ANSWER = (
    "I am a very small model and I do not know that. Ask me for a story, a sum or a simple fact."
)


def _talk() -> list[tuple[list[str], list[str]]]:
    found = []
    for meaning in talk_tables.TALK.strip().split("\n\n"):
        written = meaning.replace("\n>> ", " ").splitlines()
        questions = [line for line in written if not line.startswith("> ")]
        answers = [line.removeprefix("> ") for line in written if line.startswith("> ")]
        found.append((questions, answers))
    return found


def _slots() -> dict[str, list[str]]:
    split = (slot.partition(":") for slot in talk_tables.SLOTS.strip().split("\n\n"))
    return {name: [" ".join(w.split()) for w in words.split(";")] for name, _, words in split}


_TALK = _talk()
_UNKNOWN = lines(talk_tables.UNKNOWN)
_SLOTS = _slots()


def _word(rng: random.Random) -> str:
    """An invented word of some length; short ones are too often real."""
    while len(word := cast.invented_word(rng)) < 4:
        pass
    return word


def _unknown(rng: random.Random) -> Exchange:
    form = rng.choice(_UNKNOWN)
    values = {slot: rng.choice(words) for slot, words in _SLOTS.items()}
    return capital(form.format(unknown=_word(rng), **values)), _UNKNOWN_ANSWER


def _fixed(rng: random.Random) -> Exchange:
    questions, answers = rng.choice(_TALK)
    return rng.choice(questions), rng.choice(answers)


def _yes_or_no(rng: random.Random) -> Exchange:
    name = rng.choice(("colour", "opposite", "capital"))
    kind = KINDS[name]
    left, right = rng.choice(kind.rows)
    said = right if rng.random() < 0.5 else rng.choice(kind.rows)[1]
    question = {
        "colour": "Is {a} {s}?",
        "opposite": "Is {s} the opposite of {a}?",
        "capital": "Is {s} the capital of {a}?",
    }[name].format(a=left, s=said)
    answer = kind.answer.format(a=left, A=capital(left), b=right)
    return question, ("Yes, " if said == right else "No, ") + answer[:1].lower() + answer[1:]


def exchange(rng: random.Random) -> Exchange:
    """One question and answer of small talk."""
    draw = rng.choices((_fixed, _unknown, _yes_or_no), (6, 4, 2))[0]
    return draw(rng)


def name_exchanges(rng: random.Random) -> list[Exchange]:
    """Somebody says a name; the later exchange asks for it. Talk may go on in between."""
    name = rng.choice([*cast.NAMES, *(capital(_word(rng)) for _ in range(8))])
    asks = (
        "What is my name?",
        "What's my name?",
        "Do you know my name?",
        "Who am I?",
        "Do you remember my name?",
    )
    if rng.random() < 0.15:
        return [(rng.choice(asks), "You have not told me your name yet.")]
    tells = (
        "My name is {n}.",
        "I am {n}.",
        "I'm {n}.",
        "Hi, I am {n}.",
        "Hello, my name is {n}!",
        "Call me {n}.",
        "Hello! I'm {n}.",
    )
    hello = (
        rng.choice(tells).format(n=name),
        f"Hello, {name}! Ask me for a story, a sum or a simple fact.",
    )
    return [hello, (rng.choice(asks), f"Your name is {name}.")]
