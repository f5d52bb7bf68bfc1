"""A conversation to one prompt, by the checkpoint's own chat template in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kafila.api.tokens import read_json
from kafila.errors import CheckpointProblem


class TemplateRefused(ValueError):
    """The template does not take these messages; the text is its own."""


class ChatTemplate:
    """A compiled template; `special` are the tokenizer's named tokens that templates refer to."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        self._template = environment.from_string(source)
        self._special = dict(special)

    @classmethod
    def open(cls, folder: Path) -> "ChatTemplate | None":
        """From chat_template.jinja or tokenizer_config.json; None where there is neither."""
        config = read_json(folder / "tokenizer_config.json")
        path = folder / "chat_template.jinja"
        try:
            source = path.read_text("utf-8") if path.exists() else None
        except (OSError, ValueError) as error:
            raise CheckpointProblem(f"{path}: not a text: {error}") from None
        source = source if source is not None else _named(config.get("chat_template"))
        if source is None:
            return None
        special = {}
        for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
            token = config.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                special[name] = text
        try:
            return cls(source, special)
        except TemplateError as error:
            raise CheckpointProblem(f"{folder}: its chat template is broken: {error}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        """The prompt that asks for the assistant's next turn; `options` such as enable_thinking.

        Raises TemplateRefused.
        """
        values: dict[str, Any] = {**self._special, **options, "messages": list(messages)}
        values |= {"tools": None, "add_generation_prompt": True}
        try:
            return self._template.render(values)
        except TemplateRefused:
            raise
        except Exception as error:  # a template can fail in any way Python can
            raise TemplateRefused(f"the chat template fails on these messages: {error}") from None


def _named(value: Any) -> str | None:
    """The default among several named templates, or the one there is."""
    if isinstance(value, list):
        named = [entry for entry in value if isinstance(entry, dict)]
        value = next((e.get("template") for e in named if e.get("name") == "default"), None)
    return value if isinstance(value, str) else None


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """JSON as templates were written for: nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateRefused(message)


def _now(format: str) -> str:
    return datetime.now().astimezone().strftime(format)
