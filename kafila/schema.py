"""What the models of plan and report files share: strict bases, units, and errors in words.

A pydantic complaint becomes one sentence with file and line that says what to write instead.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)
from pydantic_core import ErrorDetails

from kafila.address import parse_address
from kafila.errors import UsageProblem
from kafila.yamlfile import Document


class Strict(BaseModel):
    """No unknown keys, no conversions, no changes after reading."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _address(text: str) -> str:
    try:
        parse_address(text)
    except UsageProblem as problem:
        raise ValueError(str(problem)) from None
    return text


def without_absent(*fields: str) -> Any:
    """To be set in a model's body: these fields are not written where they are None.

    So a file that has no need of them reads as it did before there were any.
    """

    def written(self: Any, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = dump(self)
        return {
            key: value for key, value in found.items() if value is not None or key not in fields
        }

    return model_serializer(mode="wrap")(written)


_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
Name = Annotated[str, Field(pattern=_NAME)]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Address = Annotated[str, Field(pattern=r"^\S+:[0-9]{1,5}$"), AfterValidator(_address)]
Words = Annotated[str, Field(max_length=2000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text that is safe to show on a terminal."""
Count = Annotated[int, Field(ge=1, lt=1 << 53)]
Whole = Annotated[int, Field(ge=0, lt=1 << 53)]
"""What is measured or chosen; exact as a float too (9 PB, 285 years of microseconds)."""
Figure = Annotated[int, Field(ge=0)]
"""What follows from such numbers and may be larger than any of them."""

_PATTERNS = {
    _NAME: "a name of letters, digits, dots and dashes, as in anna",
    r"^[0-9a-f]{64}$": "64 hexadecimal digits, as the probe printed them",
    r"^sha256:[0-9a-f]{64}$": "sha256: and 64 hexadecimal digits, as the planner printed them",
    r"^\S+:[0-9]{1,5}$": "a host and a port, as in example.org:4710",
    r"^(standard|sha256:[0-9a-f]{64})$": "standard, or a manifest's digest",
    r"^[^\x00-\x1f\x7f-\x9f]*$": "text on one line, without control characters",
    r"^[0-9]{1,9}-[0-9]{1,9}$": "a first and a last block, as in 0-13",
}
_FACTORS = {
    "bytes": {
        **{unit: 1000**n for n, unit in enumerate(("b", "kb", "mb", "gb", "tb"))},
        **{unit: 1024**n for n, unit in enumerate(("bytes", "kib", "mib", "gib", "tib"))},
    },
    "us": {"ns": 1e-3, "us": 1, "µs": 1, "ms": 1e3, "s": 1e6},
    "ns": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
}
_UNIT_NAMES = {"bytes": "bytes", "us": "microseconds", "ns": "nanoseconds"}

T = TypeVar("T", bound=BaseModel)


def member_name(text: str) -> str:
    """`text` if it can name a member; UsageProblem otherwise."""
    try:
        return TypeAdapter(Name).validate_python(text, strict=True)
    except ValidationError:
        raise UsageProblem(
            f"{text[:63]!r} cannot name a member; write {_PATTERNS[_NAME]} with --name"
        ) from None


def build(model: type[T], document: Document) -> T:
    """`document` as a `model`; BadFile with the first complaint and how many more there are."""
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        wanted = "plan" if "ring" in model.model_fields else "report file"
        if (found := _kind(document.value)) not in (None, wanted):
            hint = "; kafila plan makes one from it" if wanted == "plan" else ""
            raise document.problem((), f"this is a {found}, not a {wanted}{hint}") from None
        faults = [(_place(fault), fault) for fault in error.errors(include_url=False)]

        def line(place: tuple[str | int, ...]) -> int:
            while place and place not in document.lines:
                place = place[:-1]
            return document.lines.get(place, 0)

        # A key that is missing mostly stands beside the gap under a wrong name: name only that.
        strange = {place[:-1] for place, fault in faults if fault["type"] == "extra_forbidden"}
        faults = [
            (place, fault)
            for place, fault in faults
            if fault["type"] != "missing" or place[:-1] not in strange
        ]
        # A list whose only entry is wrong is not empty, though pydantic counts it so.
        faults = [
            (place, fault)
            for place, fault in faults
            if fault["type"] != "too_short" or not fault["input"]
        ]
        place, fault = min(faults, key=lambda item: line(item[0]))
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise document.problem(place, _say(model, place, fault) + more) from None


def _kind(value: object) -> str | None:
    """Which of the two files it is meant to be, by what only that one has."""
    if not isinstance(value, Mapping):
        return None
    if "ring" in value:
        return "plan"
    return "report file" if isinstance(value.get("reports"), list) else None


def _place(fault: ErrorDetails) -> tuple[str | int, ...]:
    return tuple(part for part in fault["loc"] if part != "[key]")


def _say(model: type[BaseModel], place: tuple[str | int, ...], fault: ErrorDetails) -> str:
    """One sentence for a fault: what is wrong and what to write instead."""
    key = next((part for part in reversed(place) if isinstance(part, str)), "the file")
    found, kind = fault["input"], fault["type"]
    if kind == "extra_forbidden":
        return _unknown(key, found, _fields(model, place[:-1]))
    if kind == "missing":
        return f"the key '{key}' is missing here"
    if kind == "int_type":
        return f"{key} must be {_whole(key, found)}, not {_show(found)}"
    if kind == "bool_type":
        return f"{key} must be true or false, not {_show(found)}"
    if kind == "string_pattern_mismatch":
        return f"{key} must be {_PATTERNS[fault['ctx']['pattern']]}, not {_show(found)}"
    if kind == "string_type" and key == "blocks":
        return f"blocks must be a first and a last block; write {found}-{found}"
    if kind == "string_type":
        hint = f'; write "{found}" in quotes' if isinstance(found, int | float) else ""
        return f"{key} must be text, not {_show(found)}{hint}"
    if kind == "literal_error":
        return f"{key} must be {fault['ctx']['expected']}, not {_show(found)}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{key} must be a group of keys, not {_show(found)}"
    if kind in ("tuple_type", "list_type"):
        return f"{key} must be a list, not {_show(found)}"
    if kind == "too_short":
        return f"{key} must have at least one entry"
    if kind in ("greater_than_equal", "less_than", "less_than_equal", "greater_than"):
        return f"{key} must be {fault['msg'].removeprefix('Input should be ')}, not {_show(found)}"
    return f"{key}: {fault['msg'].removeprefix('Value error, ')}"


def _unknown(key: str, found: object, known: Mapping[str, object]) -> str:
    """An unknown key is mostly a misspelling or a known quantity in another unit."""
    stem, _, unit = key.rpartition("_")
    for other in known:
        base, _, wanted = other.rpartition("_")
        if base == stem and wanted in _FACTORS and unit != wanted:
            value = _convert(f"{found} {unit}", wanted)
            return f"unknown key '{key}'; write {other}: {value if value is not None else '...'}"
    close = get_close_matches(key, list(known), n=1)
    if close:
        return f"unknown key '{key}'; did you mean '{close[0]}'?"
    return f"unknown key '{key}'; the keys here are {', '.join(known)}"


def _whole(key: str, found: object) -> str:
    """'a whole number of bytes, such as ...' in the unit that `key` is named for."""
    unit = key.rpartition("_")[2]
    if unit not in _FACTORS:
        return "a whole number"
    value = _convert(str(found), unit)
    return f"a whole number of {_UNIT_NAMES[unit]}" + (
        f" (write {value})" if value is not None else ""
    )


def _convert(text: str, wanted: str) -> int | None:
    """The whole number that `text`, a number with or without a unit, says in `wanted` units."""
    match = re.fullmatch(r"\s*([0-9][0-9_]*\.?[0-9]*)\s*([A-Za-zµ]*)\s*", text)
    if not match:
        return None
    factor = _FACTORS[wanted].get(match[2].lower()) if match[2] else 1
    return None if factor is None else round(float(match[1].replace("_", "")) * factor)


def _show(found: object) -> str:
    if isinstance(found, Mapping):
        return "a group of keys"
    if isinstance(found, list | tuple):
        return "a list"
    if found is None:
        return "nothing"
    text = str(found).lower() if isinstance(found, bool) else str(found)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _fields(model: type[BaseModel], place: tuple[str | int, ...]) -> Mapping[str, Any]:
    """The fields that a mapping at `place` may have."""
    for part in place:
        if isinstance(part, str):
            inner = _model_in(model.model_fields[part].annotation)
            assert inner is not None
            model = inner
    return model.model_fields


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if inner := _model_in(argument):
            return inner
    return None
