"""What the API must know of the model served: name, tokenizer, template, sampling defaults."""

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kafila.api.chat import ChatTemplate
from kafila.api.schema import Request, Sampled
from kafila.api.tokens import Tokens, ending_ids, read_json
from kafila.errors import CheckpointProblem
from kafila.serve.generation import Params

OPENAI = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""What is used where neither the request nor the checkpoint says anything."""

COLDEST = 1e-5
"""A temperature below is greedy: dividing logits by it would overflow float32."""


@dataclass(frozen=True)
class Model:
    """`tokens` and `template` are None where the checkpoint has none; then ids still work."""

    name: str
    tokens: Tokens | None = None
    template: ChatTemplate | None = None
    eos: frozenset[int] = frozenset()
    defaults: Sampled = field(default_factory=Sampled)

    @classmethod
    def open(cls, name: str, folder: Path) -> "Model":
        """Read a checkpoint's folder. Raises CheckpointProblem."""
        tokens = Tokens.open(folder)
        file = folder / "generation_config.json"
        config = read_json(file)
        try:
            defaults = Sampled.model_validate(config)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise CheckpointProblem(f"{file}: {fault['loc'][0]}: {fault['msg']}") from None
        if config.get("do_sample") is False:
            defaults = defaults.model_copy(update={"temperature": 0.0})
        eos = tokens.eos if tokens else ending_ids(folder)
        return cls(name, tokens, ChatTemplate.open(folder), eos, defaults)

    def params(self, request: Request, vocab: int, seed: int) -> Params:
        """How a request's tokens of `vocab` are drawn; `seed` where it names none.

        Whatever was asked for, the numbers fit the stage's arrays.
        """

        chosen = dict(OPENAI)
        for said in (self.defaults, request):
            chosen |= said.model_dump(include=set(OPENAI), exclude_none=True)
        temperature = chosen["temperature"]
        return Params(
            temperature=temperature if temperature >= COLDEST else 0.0,
            top_k=min(max(0, int(chosen["top_k"])), vocab),
            top_p=chosen["top_p"],
            min_p=chosen["min_p"],
            seed=(seed if request.seed is None else request.seed) % 2**32,
        )
