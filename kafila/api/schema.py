"""Requests of OpenAI's chat and text completions, as far as Kafila follows them.

Unknown fields are ignored, as OpenAI's own server does. Known ones that would change the answer
and are not followed are refused, because ignoring them would mislead.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    Strict,
    model_validator,
)

from kafila.api.errors import unsupported
from kafila.defaults import MESSAGES, STOP_STRING_CHARACTERS, STOP_STRINGS

Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]


def _stops(value: Any) -> Any:
    """One stop string or a few, as a list; their number is bounded before each is looked at."""
    if isinstance(value, list) and len(value) > STOP_STRINGS:
        raise ValueError(f"at most {STOP_STRINGS} stop strings are followed")
    return [value] if isinstance(value, str) else value


StopString = Annotated[str, Field(min_length=1, max_length=STOP_STRING_CHARACTERS)]


class Said(BaseModel):
    """Fields of a JSON object; null says as much as leaving the field out."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: said for key, said in value.items() if said is not None}


class StreamOptions(Said):
    """`include_usage`: one more chunk with the token counts."""

    include_usage: Flag = False


class Sampled(Said):
    """How tokens are drawn, of a request or of a checkpoint's generation_config. None is unsaid."""

    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=-1)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None


class Request(Sampled):
    """What both kinds of completion share."""

    model: str = ""
    stream: Flag = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[Whole, Field(ge=1)] | None = None
    seed: Whole | None = None
    stop: Annotated[list[StopString], BeforeValidator(_stops)] = []
    ignore_eos: Flag = False
    """Go on past the model's own end (an extension, for benchmarks)."""
    return_token_ids: Flag = False
    """Add `token_ids` to each choice (an extension)."""

    n: Whole | None = None
    best_of: Whole | None = None
    logprobs: Flag | Whole | None = None
    logit_bias: dict[str, Any] | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None

    def check(self) -> None:
        """Raise ApiError for what this server does not follow."""
        for name in ("n", "best_of"):
            if getattr(self, name) not in (None, 1):
                raise unsupported(name, "only one answer a request; send several requests")
        if self.logprobs is not None and self.logprobs is not False:  # 0 asks for some
            raise unsupported("logprobs", "log probabilities are not offered")
        for name in ("logit_bias", "presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                raise unsupported(name, "not followed; leave it out")


def _joined(value: Any) -> Any:
    """Content in parts as one text; the first part that is none ends it."""
    return "".join(map(_text_of, value)) if isinstance(value, list) else value


def _text_of(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise ValueError('only text parts are supported: {"type": "text", "text": "..."}')
    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError("a text part must have its text")
    return text


class Message(Said):
    """A turn. What the template may want beside role and content is kept."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_joined)] = ""

    def plain(self) -> dict[str, Any]:
        """The turn as templates take it."""
        role = "system" if self.role == "developer" else self.role
        return {**(self.model_extra or {}), "role": role, "content": self.content}


class ChatRequest(Request):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MESSAGES), FailFast()]
    max_completion_tokens: Annotated[Whole, Field(ge=1)] | None = None
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


def _one(value: Any) -> str | list[int]:
    """The one prompt there may be; what its first element is says what all must be."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > 1:
            raise unsupported("prompt", "one prompt a request; send several requests")
        value = value[0]
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of token ids")
    if not value:
        raise ValueError("the prompt is empty")
    if not all(type(token) is int for token in value):  # true is an int to isinstance
        raise ValueError("token ids must be whole numbers")
    return value


class CompletionRequest(Request):
    """POST /v1/completions: a prompt as text or as token ids."""

    prompt: Annotated[str | list[int], PlainValidator(_one)]
    suffix: str | None = None
    echo: Flag = False

    def check(self) -> None:
        super().check()
        for name in ("suffix", "echo"):
            if getattr(self, name):
                raise unsupported(name, "not offered")
