"""Sums the demo model can do, in the many ways people write them."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from .words import capital

LIMIT = 99
_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
TOO_BIG = "I can only work with numbers up to 99."

_FORMS = {
    "+": (
        "What is {a} + {b}?",
        "{a} + {b}",
        "{a}+{b}",
        "{a} + {b} =",
        "{a} + {b} = ?",
        "{a}+{b}=",
        "What is {a} plus {b}?",
        "How much is {a} + {b}?",
        "How much is {a} plus {b}?",
        "Add {a} and {b}.",
        "Calculate {a} + {b}.",
        "What's {a}+{b}?",
        "What is the sum of {a} and {b}?",
        "{a} plus {b}?",
        "Can you add {a} and {b}?",
        "Compute {a} plus {b}.",
        "I have {a} apples and get {b} more. How many apples do I have?",
        "What do you get when you add {b} to {a}?",
        "Solve {a} + {b}.",
        "And {a} + {b}?",
    ),
    "-": (
        "What is {a} - {b}?",
        "{a} - {b}",
        "{a}-{b}",
        "{a} - {b} =",
        "{a} - {b} = ?",
        "{a}-{b}=",
        "What is {a} minus {b}?",
        "How much is {a} - {b}?",
        "How much is {a} minus {b}?",
        "Subtract {b} from {a}.",
        "Calculate {a} - {b}.",
        "What's {a}-{b}?",
        "What is {a} take away {b}?",
        "{a} minus {b}?",
        "Take {b} away from {a}.",
        "I have {a} apples and eat {b}. How many apples are left?",
        "Compute {a} minus {b}.",
        "What is the difference of {a} and {b}?",
        "Solve {a} - {b}.",
        "And {a} - {b}?",
    ),
    "x": (
        "What is {a} x {b}?",
        "{a} x {b}",
        "{a}*{b}",
        "{a} * {b}",
        "What is {a} times {b}?",
        "How much is {a} times {b}?",
        "Multiply {a} by {b}.",
        "Calculate {a} * {b}.",
        "{a} times {b}?",
        "What is {a} * {b}?",
        "Multiply {a} and {b}.",
    ),
}


@dataclass(frozen=True)
class Sum:
    """`a op b`, with `op` one of `+`, `-` and `x`."""

    a: int
    op: str
    b: int

    @property
    def answer(self) -> str:
        """The whole sum: restating it first makes every wording one and the same problem."""
        result = {"+": self.a + self.b, "-": self.a - self.b, "x": self.a * self.b}[self.op]
        return f"{self.a} {self.op} {self.b} = {result}."

    @property
    def held_out(self) -> bool:
        """Whether training never sees these numbers together; times tables are learned by heart."""
        return self.op != "x" and zlib.crc32(f"{self.a}{self.op}{self.b}".encode()) % 10 == 0

    def question(self, rng: random.Random) -> str:
        """The sum in one of its wordings."""
        form = rng.choice(_FORMS[self.op])
        if max(self.a, self.b) < len(_WORDS) and rng.random() < 0.15:
            return capital(form.format(a=_WORDS[self.a], b=_WORDS[self.b]))
        return form.format(a=self.a, b=self.b)


def draw(rng: random.Random) -> Sum:
    """A random sum: small numbers more often, results below nought less often than by chance."""
    op = rng.choices("+-x", (11, 9, 3))[0]
    if op == "x":
        return Sum(rng.randint(0, 10), op, rng.randint(0, 10))
    top_a, top_b = rng.choices((9, LIMIT), (1, 4), k=2)
    a, b = rng.randint(0, top_a), rng.randint(0, top_b)
    if op == "-" and a < b and rng.random() < 0.85:
        a, b = b, a
    return Sum(a, op, b)


def draw_where(rng: random.Random, held_out: bool) -> Sum:
    """A random sum of the training half or of the held-out one."""
    while True:
        found = draw(rng)
        if found.held_out == held_out:
            return found


def several(rng: random.Random) -> tuple[str, str]:
    """A list of sums, answered in one go; the cheapest way to see many of them."""
    found = [draw_where(rng, held_out=False) for _ in range(rng.randint(2, 8))]
    signs = rng.choice((" {} ", "{}"))
    asked = ", ".join(f"{s.a}{signs.format(s.op)}{s.b}" for s in found)
    form = rng.choice(
        ("{q}", "Calculate {q}.", "What is {q}?", "Solve these: {q}", "Work out {q}.")
    )
    return form.format(q=asked), ", ".join(s.answer.rstrip(".") for s in found) + "."


def exchange(rng: random.Random) -> tuple[str, str]:
    """A question about numbers with its answer: mostly sums, sometimes a comparison or a count."""
    choice = rng.random()
    if choice < 0.80:
        found = draw_where(rng, held_out=False)
        return found.question(rng), found.answer
    if choice < 0.84:
        op = rng.choice("+-")
        big, other = rng.randint(100, 9999), rng.randint(0, 999)
        a, b = (big, other) if op == "-" or rng.random() < 0.5 else (other, big)
        return rng.choice(_FORMS[op]).format(a=a, b=b), TOO_BIG
    if choice < 0.92:
        a, b = rng.sample(range(LIMIT + 1), 2)
        smaller = rng.random() < 0.5
        word = rng.choice(("smaller", "less") if smaller else ("bigger", "larger", "more"))
        form = rng.choice(
            (
                "Which is {w}, {a} or {b}?",
                "What is {w}, {a} or {b}?",
                "Which number is {w}: {a} or {b}?",
            )
        )
        low, high = min(a, b), max(a, b)
        answer = f"{low} is smaller than {high}." if smaller else f"{high} is bigger than {low}."
        return form.format(w=word, a=a, b=b), answer
    if choice < 0.96:
        n = rng.randint(1, 98)
        where, neighbour = rng.choice((("after", n + 1), ("before", n - 1)))
        form = rng.choice(
            ("What comes {w} {n}?", "Which number comes {w} {n}?", "What number is {w} {n}?")
        )
        return form.format(w=where, n=n), f"{neighbour} comes {where} {n}."
    start = rng.choice((1, 1, 1, rng.randint(0, 20)))
    end = start + rng.randint(2, 9)
    form = rng.choice(
        ("Count from {a} to {b}.", "Can you count from {a} to {b}?", "Count {a} to {b}.")
    )
    if start == 1 and rng.random() < 0.4:
        form = rng.choice(("Count to {b}.", "Can you count to {b}?", "Please count up to {b}."))
    return form.format(a=start, b=end), ", ".join(str(n) for n in range(start, end + 1)) + "."
