"""Text to tokens and back, for one checkpoint's tokenizer; knows nothing of requests or HTTP."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from kafila.errors import CheckpointProblem

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Tokens:
    """A checkpoint folder's tokenizer and the ids that end an answer."""

    def __init__(self, tokenizer: Tokenizer, eos: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.eos = eos

    @classmethod
    def open(cls, folder: Path) -> "Tokens | None":
        """Read tokenizer.json and who ends an answer; None where there is no tokenizer."""
        path = folder / "tokenizer.json"
        if not path.exists():
            return None
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointProblem(f"{path}: not a tokenizer: {error}") from None
        named = read_json(folder / "tokenizer_config.json").get("eos_token")
        name = named.get("content") if isinstance(named, dict) else named
        own = tokenizer.token_to_id(name) if isinstance(name, str) else None
        return cls(tokenizer, ending_ids(folder) | ({own} if own is not None else set()))

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`; `special` adds what the tokenizer puts round a plain prompt."""
        # unlike `encode` it lets other threads run meanwhile, and nobody asks for offsets
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        return list(encoding.ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def ending_ids(folder: Path) -> frozenset[int]:
    """The ids that end an answer, from generation_config.json or else config.json."""
    for name in ("generation_config.json", "config.json"):
        ids = read_json(folder / name).get("eos_token_id")
        if isinstance(ids, int):
            return frozenset([ids])
        if isinstance(ids, list) and ids:
            return frozenset(i for i in ids if isinstance(i, int))
    return frozenset()


def read_json(path: Path) -> dict[str, Any]:
    """A checkpoint's JSON object; empty where the file is missing."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointProblem(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointProblem(f"{path}: not a JSON object")
    return value


class Detokenizer:
    """Text as tokens come: never half a character, and what was given out stays true.

    Ids are decoded together with those before them (a decoder may look back), beginning at the
    last place where the text was whole.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._before: list[int] = []  # ids whose text is all given out, for context
        self._ids: list[int] = []
        self._given = 0  # characters of the ids' text that are given out

    def feed(self, token: int) -> str:
        """The text that this token completes; "" while a character is not whole."""
        self._ids.append(token)
        text = self._text()
        whole = text.rstrip(REPLACEMENT)
        # at most three bytes can wait for a character's end; more than that is not UTF-8
        stop = max(len(whole), len(text) - 3)
        new = text[self._given : stop]
        self._given = max(self._given, stop)
        if stop == len(text):
            self._before, self._ids, self._given = self._ids, [], 0
        return new

    def flush(self) -> str:
        """The rest, with replacement characters for what never became whole."""
        text = self._text()
        rest = text[self._given :]
        self._given = len(text)
        return rest

    def _text(self) -> str:
        before = self._tokens.decode(self._before)
        return self._tokens.decode(self._before + self._ids)[len(before) :]


class StopStrings:
    """Ends text where a stop string begins; holds back what may still become one."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that is certain; sets `stopped` when a stop string has come."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        hold = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """What was held back, when no more comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` with which `stop` begins."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
