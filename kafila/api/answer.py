"""A generation's tokens as text: detokenised, ended by stop strings, counted and timed."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kafila.api.tokens import Detokenizer, StopStrings, Tokens
from kafila.serve.generation import Generation


@dataclass(frozen=True)
class Piece:
    """Some text, and the tokens that have come since the last piece."""

    text: str
    ids: list[int]


class Answer:
    """One request's answer. `pieces` ends with the generation or with a stop string."""

    def __init__(
        self,
        generation: Generation,
        tokens: Tokens | None,
        *,
        stops: Sequence[str],
        eos: frozenset[int],
    ) -> None:
        self.generation = generation
        self.finish: Literal["stop", "length"] = "length"
        self._detokenizer = Detokenizer(tokens) if tokens else None
        self._stops = StopStrings(stops)
        self._eos = eos
        self._count = 0

    async def pieces(self) -> AsyncIterator[Piece]:
        """Text as soon as it is certain. Raises the ring's error."""
        ids: list[int] = []
        async for token in self.generation:
            self._count += 1
            ids.append(token)
            text = "" if token in self._eos else self._stops.feed(self._text(token))
            if text:
                yield Piece(text, ids)
                ids = []
            if self._stops.stopped:
                self.generation.cancel()
                break
        rest = self._stops.feed(self._detokenizer.flush() if self._detokenizer else "")
        rest += self._stops.flush()
        if self._stops.stopped or self.generation.finish == "stop":
            self.finish = "stop"
        if rest or ids:
            yield Piece(rest, ids)

    def _text(self, token: int) -> str:
        return self._detokenizer.feed(token) if self._detokenizer else ""

    def usage(self) -> dict[str, Any]:
        """Token counts, the ending token included."""
        prompt = self.generation.prompt
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._count,
            "total_tokens": prompt + self._count,
            "prompt_tokens_details": {"cached_tokens": self.generation.cached or 0},
        }

    def timings(self) -> dict[str, Any]:
        """Rates, in milliseconds and tokens a second, under the names llama.cpp gave them.

        `cache_n` tokens of the prompt were held already, `prompt_n` were computed. The prompt's
        time runs from taking the request to its first token (waiting for a slot included), the
        prediction's from the first token to the last.
        """
        times, count = self.generation.times, self.generation.produced
        cached = self.generation.cached or 0
        computed = self.generation.prompt - cached
        prompt = max(times.first - times.submitted, 0.0)
        predicted = times.last - times.first
        return {
            "cache_n": cached,
            "prompt_n": computed,
            "prompt_ms": round(prompt * 1e3, 3),
            "prompt_per_second": round(computed / prompt, 3) if prompt else None,
            "predicted_n": count,
            "predicted_ms": round(predicted * 1e3, 3),
            "predicted_per_second": round((count - 1) / predicted, 3) if predicted else None,
        }
