"""Two plans compared: what was decided otherwise, and what that does to the predictions.

Both plans' figures must be fresh (`kafila.derive.recheck`): those follow from the decisions and are
effects, never changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafila.explain.reasons import held, network_share, share_words
from kafila.explain.ring import Ring
from kafila.planfile import Member, PlanFile
from kafila.plantext import AT_BEST, at_best
from kafila.words import gib, listed, ms, rate, seconds

DERIVED = {"id", "stage_us", "context_us", "load_us", "need_bytes", "cost_us", "to"}
"""Keys that follow from others, in session and members."""


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that differs: of a member, or of the whole plan (`member` is None).

    None for what one of the plans does not have.
    """

    member: str | None
    key: str
    was: object
    now: object


@dataclass(frozen=True, slots=True)
class Effect:
    """A predicted figure in both plans: numbers for programs, words for people."""

    what: str
    was: float | None
    now: float | None
    was_words: str
    now_words: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `kafila diff` says; without changes the plans decide the same."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]


def compare(was: PlanFile, now: PlanFile) -> Comparison:
    """From the plan `was` to the plan `now`."""
    return Comparison(tuple(_changes(was, now)), tuple(_effects(was, now)))


def _changes(was: PlanFile, now: PlanFile) -> Iterator[Change]:
    yield from _leaves(None, _decisions(was), _decisions(now))
    before = {member.name: member for member in was.ring}
    after = {member.name: member for member in now.ring}
    if _round(before, after) != _round(after, before):
        yield Change(None, "ring", list(before), list(after))
    for name, member in before.items():
        if name not in after:
            yield Change(name, "blocks", member.blocks, None)
    for name, member in after.items():
        if name not in before:
            yield Change(name, "blocks", None, member.blocks)
        else:
            yield from _leaves(name, _flat(before[name], {"name"}), _flat(member, {"name"}))


def _round(ring: Mapping[str, Member], other: Mapping[str, Member]) -> list[str]:
    """The members that both rings have in their order, from the same one on."""
    common = [name for name in ring if name in other]
    start = common.index(min(common)) if common else 0
    return common[start:] + common[:start]


def _decisions(plan: PlanFile) -> dict[str, object]:
    """What is decided for the whole plan, by key: `session.context`."""
    flat = _flat(plan, {"ring", "predictions", "warnings"})
    return {**flat, "predictions.approximate": plan.predictions.approximate}


def _flat(part: PlanFile | Member, left_out: set[str]) -> dict[str, object]:
    """What is decided or measured, by key with the group it is in: `measured.bandwidth`."""
    flat: dict[str, object] = {}
    for key, value in part.model_dump(exclude=left_out).items():
        parts = value if isinstance(value, dict) else {"": value}
        for inner, leaf in parts.items():
            if not {key, inner} & DERIVED:
                flat[f"{key}.{inner}".rstrip(".")] = leaf
    return flat


def _leaves(
    member: str | None, was: Mapping[str, object], now: Mapping[str, object]
) -> Iterator[Change]:
    for key in [*was, *(key for key in now if key not in was)]:
        if was.get(key) != now.get(key):
            yield Change(member, key, was.get(key), now.get(key))


def _effects(was: PlanFile, now: PlanFile) -> Iterator[Effect]:
    plans = (was, now)
    old, new = was.predictions, now.predictions
    before, after = was.session.concurrency, now.session.concurrency
    best = (at_best(old), at_best(new))
    yield _speed("one user", old.token_us, new.token_us, best)
    yield _speed("one user, context full", old.token_full_us, new.token_full_us, best)
    users = f"{before} users" if before == after else f"{before}, then {after} users"
    shared = (old.shared_token_us, new.shared_token_us)
    yield _speed(f"{users} together", *shared, best, before, after)
    yield _effect("first token", (old.first_token_us, new.first_token_us), seconds, best)
    yield _effect("slowest stage", (old.bottleneck_us, new.bottleneck_us), ms)
    rings = [Ring.of(plan) for plan in plans]
    yield Effect(
        "network share",
        network_share(rings[0]),
        network_share(rings[1]),
        *(share_words(ring) or UNKNOWN for ring in rings),
    )
    yield _effect("memory in all", [_need(plan) for plan in plans], lambda size: gib(int(size)))
    fullest = [max(plan.ring, key=_fill) for plan in plans]
    yield Effect(
        "fullest member",
        _fill(fullest[0]),
        _fill(fullest[1]),
        *(f"{member.name}, {_fill(member):.0%}" for member in fullest),
    )


UNKNOWN = "not known"


def _need(plan: PlanFile) -> int:
    return sum(member.need_bytes for member in plan.ring)


def _fill(member: Member) -> float:
    return member.need_bytes / member.room_bytes


def _effect(
    what: str,
    figures: Sequence[float | None],
    word: Callable[[float], str],
    before: tuple[str, str] = ("", ""),
) -> Effect:
    was, now = figures
    was_words, now_words = (
        UNKNOWN if each is None else f"{hedge}{word(each)}"
        for each, hedge in zip(figures, before, strict=True)
    )
    return Effect(what, was, now, was_words, now_words)


def _speed(
    what: str,
    was_us: int | None,
    now_us: int | None,
    best: tuple[str, str],
    before: int = 1,
    after: int = 1,
) -> Effect:
    """Tokens per second of so many users, who wait that long for a token each."""
    waits = ((was_us, before), (now_us, after))
    figures = [None if us is None else users * 1e6 / max(us, 1) for us, users in waits]
    return _effect(what, figures, lambda per_second: rate(1e6 / per_second), best)


def words(comparison: Comparison) -> str:
    """The comparison as lines for a terminal."""
    if not comparison.changes:
        return "the plans decide the same"
    subjects = [change.member or change.key for change in comparison.changes]
    wide = min(max(map(len, subjects)), 32)
    lines = [
        f"{subject:<{wide}}  {_say(change)}"
        for subject, change in zip(subjects, comparison.changes, strict=True)
    ]
    moved = [effect for effect in comparison.effects if effect.was_words != effect.now_words]
    if not moved:
        return "\n".join([*lines, "", "the predictions stay the same"])
    columns = [
        [getattr(effect, key) for effect in moved] for key in ("what", "was_words", "now_words")
    ]
    first, second, third = (max(map(len, column)) for column in columns)
    lines += ["", f"{'predicted':<{first}}  {'before':>{second}}  {'after':>{third}}"]
    for effect in moved:
        line = (
            f"{effect.what:<{first}}  {effect.was_words:>{second}}  "
            f"{effect.now_words:>{third}}  {_percent(effect)}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)


def _percent(effect: Effect) -> str:
    if effect.was is None or effect.now is None or not effect.was or effect.what in SHARES:
        return ""
    if effect.was_words.startswith(AT_BEST) != effect.now_words.startswith(AT_BEST):
        return ""  # a bound and a figure
    return f"{effect.now / effect.was - 1:+.0%}"


SHARES = ("network share", "fullest member")


def _say(change: Change) -> str:
    if change.key == "ring":
        return " -> ".join(listed(_strings(names)) for names in (change.was, change.now))
    if change.member and change.key == "blocks":
        if change.was is None:
            return f"joins with {_held(change.now)}"
        if change.now is None:
            return f"leaves, held {_held(change.was)}"
        return f"{_held(change.was)} -> {_held(change.now)}"
    if change.key == "notes":
        return "say something else"
    if isinstance(change.was, dict) or isinstance(change.now, dict):
        return f"{change.key} differs"
    what = f"{change.key} " if change.member else ""
    return f"{what}{_show(change.key, change.was)} -> {_show(change.key, change.now)}"


def _strings(names: object) -> list[str]:
    assert isinstance(names, list)
    return [str(name) for name in names]


def _held(blocks: object) -> str:
    first, last = str(blocks).split("-")
    return held(range(int(first), int(last) + 1))


def _show(key: str, value: object) -> str:
    """A value as a person reads it; long digests by their beginning."""
    if value is None:
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        if key.endswith("_bytes"):
            return gib(value)
        if key.endswith("_us"):
            return ms(value)
        if key.endswith(("bandwidth", "upload")):
            return f"{value / 1e9:.1f} GB/s" if value >= 1e8 else f"{value / 1e6:.2f} MB/s"
        if key.endswith("flops"):
            return f"{value / 1e12:.2f} TFLOP/s"
    text = str(value)
    digest = len(text) >= 64 and text.removeprefix("sha256:").isalnum()
    return f"{text.removeprefix('sha256:')[:8]}..." if digest else text
