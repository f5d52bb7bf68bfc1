"""What the API must know of the model served: name, tokenizer, template, sampling defaults."""

from dataclasses import dataclass
from pathlib import Path

from kafila.api.chat import ChatTemplate
from kafila.api.schema import Request
from kafila.api.tokens import Tokens, ending_ids, read_json
from kafila.serve.generation import Params

SAMPLED = Params(temperature=1.0)
"""OpenAI's defaults, for checkpoints without a generation_config."""


@dataclass(frozen=True)
class Model:
    """`tokens` and `template` are None where the checkpoint has none; then ids still work."""

    name: str
    tokens: Tokens | None = None
    template: ChatTemplate | None = None
    eos: frozenset[int] = frozenset()
    defaults: Params = SAMPLED

    @classmethod
    def open(cls, name: str, folder: Path) -> "Model":
        """Read a checkpoint's folder. Raises CheckpointProblem."""
        tokens = Tokens.open(folder)
        config = read_json(folder / "generation_config.json")
        sampled = config.get("do_sample") is not False
        defaults = Params(
            temperature=_number(config.get("temperature"), SAMPLED.temperature) if sampled else 0.0,
            top_k=int(_number(config.get("top_k"), 0)),
            top_p=_number(config.get("top_p"), 1.0),
            min_p=_number(config.get("min_p"), 0.0),
        )
        eos = tokens.eos if tokens else ending_ids(folder)
        return cls(name, tokens, ChatTemplate.open(folder), eos, defaults)

    def params(self, request: Request, seed: int) -> Params:
        """How a request's tokens are drawn; `seed` where it names none."""

        def chosen(value: float | None, default: float) -> float:
            return default if value is None else value

        return Params(
            temperature=chosen(request.temperature, self.defaults.temperature),
            top_k=max(0, int(chosen(request.top_k, self.defaults.top_k))),
            top_p=chosen(request.top_p, self.defaults.top_p),
            min_p=chosen(request.min_p, self.defaults.min_p),
            seed=(seed if request.seed is None else request.seed) % 2**32,
        )


def _number(value: object, default: float) -> float:
    return value if isinstance(value, int | float) else default
