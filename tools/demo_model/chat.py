"""Whole conversations out of stories, sums, facts and small talk: the model's only school book."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from . import smalltalk, stories, sums
from .facts import KINDS, Fact, facts_of

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

# What the tokenizer's chat template does, in Jinja as `transformers` and the server run it.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

_SYSTEM = (
    "You are a helpful assistant.",
    "You are Kafila's demo model.",
    "You are a friendly assistant.",
    "Be brief.",
    "Answer in one sentence.",
    "You are a helpful, honest and harmless assistant.",
    "Be kind.",
    "Be concise.",
)

_POLITE = (
    "Please tell me: {q}",
    "Hey, {q}",
    "Hi! {q}",
    "{q} Please.",
    "Can you tell me: {q}",
    "I have a question: {q}",
    "{q} Thanks!",
    "So, {q}",
    "Quick question: {q}",
    "Next: {q}",
    "OK, {q}",
    "Question: {q}",
    "And now: {q}",
    "Hello! {q}",
)


@dataclass(frozen=True)
class Turn:
    """One message."""

    role: str
    content: str


Conversation = tuple[Turn, ...]


def render(conversation: Conversation, generation_prompt: bool = False) -> str:
    """The conversation as ChatML text, as `CHAT_TEMPLATE` writes it."""
    text = "".join(f"{IM_START}{t.role}\n{t.content}{IM_END}\n" for t in conversation)
    return text + f"{IM_START}assistant\n" if generation_prompt else text


def _trained_facts() -> list[list[tuple[Fact, ...]]]:
    """Per kind and row, the wordings that are not held out."""
    found: list[list[tuple[Fact, ...]]] = []
    for kind in KINDS.values():
        rows = [tuple(f for f in wordings if not f.held_out) for wordings in facts_of(kind)]
        found.append([row for row in rows if row])
    return found


_FACTS = _trained_facts()
# A long table needs more exercise, but not all of it; what is before and after what is hard.
_FACT_WEIGHTS = [
    len(rows) ** 0.75 * (2 if name in ("after", "before") else 1)
    for name, rows in zip(KINDS, _FACTS, strict=True)
]


def _fact(rng: random.Random) -> smalltalk.Exchange:
    rows = rng.choices(_FACTS, _FACT_WEIGHTS)[0]
    fact = rng.choice(rng.choice(rows))
    return fact.question, fact.answer


def vary(question: str, rng: random.Random) -> str:
    """The question as hurried people write it: no capital, no full stop, or words around it."""
    if rng.random() < 0.12:
        inner = (
            question if question.startswith(("I ", "I'")) else question[:1].lower() + question[1:]
        )
        question = rng.choice(_POLITE).format(q=inner)
    if rng.random() < 0.15 and question.startswith("What is "):
        question = "What's " + question.removeprefix("What is ")
    if rng.random() < 0.2:
        question = question.lower()
    elif rng.random() < 0.1:
        question = question[:1].lower() + question[1:]
    if rng.random() < 0.25:
        question = question.rstrip("?.!")
    elif rng.random() < 0.04:
        question = question + rng.choice((" ", "!", "??", " :)"))
    return question


def _exchanges(rng: random.Random) -> list[smalltalk.Exchange]:
    """A short run of exchanges that belong together."""
    skill = rng.choices(("story", "sum", "sums", "fact", "talk", "name"), (22, 52, 15, 60, 20, 4))[
        0
    ]
    if skill == "sum":
        return [sums.exchange(rng)]
    if skill == "sums":
        return [sums.several(rng)]
    if skill == "fact":
        return [_fact(rng)]
    if skill == "talk":
        return [smalltalk.exchange(rng)]
    if skill == "name":
        pair = smalltalk.name_exchanges(rng)
        between = [
            rng.choice((sums.exchange, _fact, smalltalk.exchange))(rng)
            for _ in range(rng.randint(0, 2))
        ]
        return [pair[0], *between, *pair[1:]]
    story = stories.draw(rng)
    asked = rng.sample(story.follow_ups, rng.choice((0, 0, 0, 1, 2)))
    return [(story.request, story.text), *asked]


def conversation(rng: random.Random) -> Conversation:
    """One conversation: often a single exchange, sometimes a longer talk or a system turn first."""
    turns: list[Turn] = []
    if rng.random() < 0.12:
        turns.append(Turn("system", rng.choice(_SYSTEM)))
    for _ in range(rng.choices((1, 2, 3, 5), (6, 2, 1, 1))[0]):
        for question, answer in _exchanges(rng):
            turns += [Turn("user", vary(question, rng)), Turn("assistant", answer)]
    return tuple(turns)


def conversations(seed: int) -> Iterator[Conversation]:
    """An endless stream of conversations, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        yield conversation(rng)
