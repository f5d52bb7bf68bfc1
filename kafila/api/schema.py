"""Requests of OpenAI's chat and text completions, as far as Kafila follows them.

Unknown fields are ignored, as OpenAI's own server does. Known ones that would change the answer
and are not followed are refused, because ignoring them would mislead.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kafila.api.errors import unsupported
from kafila.defaults import STOP_STRING_CHARACTERS, STOP_STRINGS


def _listed(value: Any) -> Any:
    return [] if value is None else [value] if isinstance(value, str) else value


StopString = Annotated[str, Field(min_length=1, max_length=STOP_STRING_CHARACTERS)]


class StreamOptions(BaseModel):
    """`include_usage`: one more chunk with the token counts."""

    include_usage: bool = False


class Sampled(BaseModel):
    """How tokens are drawn, of a request or of a checkpoint's generation_config. None is unsaid."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None


class Request(Sampled):
    """What both kinds of completion share."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    stop: Annotated[list[StopString], BeforeValidator(_listed), Field(max_length=STOP_STRINGS)] = []
    ignore_eos: bool = False
    """Go on past the model's own end (an extension, for benchmarks)."""
    return_token_ids: bool = False
    """Add `token_ids` to each choice (an extension)."""

    n: int | None = None
    best_of: int | None = None
    logprobs: bool | int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    def check(self) -> None:
        """Raise ApiError for what this server does not follow."""
        for name in ("n", "best_of"):
            if getattr(self, name) not in (None, 1):
                raise unsupported(name, "only one answer a request; send several requests")
        if self.logprobs not in (None, False):
            raise unsupported("logprobs", "log probabilities are not offered")
        for name in ("logit_bias", "presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                raise unsupported(name, "not followed; leave it out")


class TextPart(BaseModel):
    """A part of a message; only text is understood."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A turn. What the template may want beside role and content is kept."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None

    def plain(self) -> dict[str, Any]:
        """The turn as templates take it: content as one text."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        return {**self.model_dump(exclude_none=True), "role": role, "content": content or ""}


class ChatRequest(Request):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] = {}
    """Options of the model's own template, such as enable_thinking."""
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    def check(self) -> None:
        super().check()
        for name in ("tools", "functions"):
            if getattr(self, name):
                raise unsupported(name, "tool calls are not offered")
        if (self.response_format or {}).get("type", "text") != "text":
            raise unsupported("response_format", "only text is offered")
        for name in ("messages", "tools", "add_generation_prompt"):
            if name in self.chat_template_kwargs:
                raise unsupported("chat_template_kwargs", f"may not replace {name}")


class CompletionRequest(Request):
    """POST /v1/completions: a prompt as text or as token ids."""

    prompt: str | list[int] | list[str] | list[list[int]]
    suffix: str | None = None
    echo: bool = False

    def check(self) -> None:
        super().check()
        for name in ("suffix", "echo"):
            if getattr(self, name):
                raise unsupported(name, "not offered")

    def one(self) -> str | list[int]:
        """The one prompt there may be, text or ids."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return prompt
        if prompt and isinstance(prompt[0], int):
            return [token for token in prompt if isinstance(token, int)]
        if len(prompt) != 1:
            raise unsupported("prompt", "one prompt a request; send several requests")
        (only,) = prompt
        assert isinstance(only, str | list)
        return only
