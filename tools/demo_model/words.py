"""Small words of English grammar: capitals, articles, plurals."""

from __future__ import annotations

_PLURALS = {
    "mouse": "mice",
    "sheep": "sheep",
    "fish": "fish",
    "deer": "deer",
    "wolf": "wolves",
    "goose": "geese",
    "fly": "flies",
    "puppy": "puppies",
    "butterfly": "butterflies",
    "monkey": "monkeys",
    "person": "people",
}


def capital(text: str) -> str:
    """`text` with its first letter in upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    """`noun` after its indefinite article."""
    vowel = noun[:1].lower() in "aeiou" and not noun.startswith("uni")
    return f"{'an' if vowel else 'a'} {noun}"


def plural(noun: str) -> str:
    """The plural of `noun`, which may still have its article."""
    word = noun.removeprefix("a ").removeprefix("an ")
    if word in _PLURALS:
        return _PLURALS[word]
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
