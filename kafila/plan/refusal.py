"""The refusal: who is undersized by how much, and what would fit instead."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kafila.errors import NotAdmitted
from kafila.plan.admission import Fit, block_need, other_need
from kafila.plan.values import Device, Load, Model
from kafila.words import counted, gib, listed

Admits = Callable[[Model, Load], bool]

_INT8_BITS = 8.25
"""What a weight of a block takes at most, its share of a row's scale included."""


class Refused(NotAdmitted):
    """No plan: which members are undersized by how much, and what would fit."""

    def __init__(
        self,
        model: Model,
        load: Load,
        fits: Sequence[Fit],
        *,
        context: int,
        concurrency: int,
        weights: str | None,
        missing_bytes: int,
        notes: Sequence[str] = (),
    ) -> None:
        self.fits = tuple(fits)
        self.context = context
        """Most tokens that would fit at the declared concurrency; 0 if not even one."""
        self.concurrency = concurrency
        """Most requests that would fit at the declared context; 0 if not even one."""
        self.weights = weights
        """The widest weights that would fit: bfloat16 or int8; None if not even those."""
        self.missing_bytes = missing_bytes
        """The least memory that would have to be added, all members together."""
        lines = [
            f"{model.name} does not fit with {load.context} tokens for "
            f"{counted(load.concurrency, 'request')}; undersized: "
            f"{listed([fit.name for fit in fits if fit.short_bytes])}",
            *_table(fits),
            *notes,
            f"would fit: {self._instead(load)}",
        ]
        super().__init__("\n".join(lines))

    def _instead(self, load: Load) -> str:
        ways = []
        if self.context:
            ways.append(f"context {self.context} at concurrency {load.concurrency}")
        if self.concurrency:
            ways.append(f"concurrency {self.concurrency} at context {load.context}")
        if self.weights:
            how = " (--dtype int8)" if self.weights == "int8" else ""
            ways.append(f"{self.weights} weights{how}")
        ways.append(f"{gib(self.missing_bytes)} more room in all")
        return ", or ".join(ways)


def _table(fits: Sequence[Fit]) -> list[str]:
    rows = [("member", "room", "need", "short by")]
    rows += [
        (
            fit.name,
            gib(fit.room_bytes),
            gib(fit.need_bytes),
            gib(fit.short_bytes) if fit.short_bytes else "",
        )
        for fit in fits
    ]
    wide = max(len(row[0]) for row in rows)
    return [
        f"  {name:<{wide}}  {room:>11}  {need:>11}  {short:>11}".rstrip()
        for name, room, need, short in rows
    ]


def refusal(
    model: Model,
    load: Load,
    fits: Sequence[Fit],
    admits: Admits,
    missing_bytes: int | None = None,
    notes: Sequence[str] = (),
) -> Refused:
    """The refusal of a division; `admits` says whether another model or load would fit.

    `missing_bytes` is what the division lacks, unless another division would lack less.
    """
    if missing_bytes is None:
        missing_bytes = sum(fit.short_bytes for fit in fits)
    return Refused(
        model,
        load,
        fits,
        context=_largest(load.context, lambda n: admits(model, replace(load, context=n))),
        concurrency=_largest(
            load.concurrency, lambda n: admits(model, replace(load, concurrency=n))
        ),
        weights=_widest(model, load, admits),
        missing_bytes=missing_bytes,
        notes=notes,
    )


def _largest(below: int, fits: Callable[[int], bool]) -> int:
    """The largest number under `below` that `fits` (which is monotone), 0 when none does."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _widest(model: Model, load: Load, admits: Admits) -> str | None:
    smaller = []
    if model.itemsize == 4 and not model.int8:
        smaller.append(("bfloat16", halved(model)))
    if not model.int8:
        smaller.append(("int8", in_int8(model)))
    return next((name for name, other in smaller if admits(other, load)), None)


def halved(model: Model) -> Model:
    """A float32 model in bfloat16."""
    return replace(
        model,
        block_bytes=model.block_bytes // 2,
        head_read_bytes=model.head_read_bytes // 2,
        head_resident_bytes=model.head_resident_bytes // 2,
        kv_bytes=model.kv_bytes // 2,
        itemsize=2,
    )


def in_int8(model: Model) -> Model:
    """The model with its blocks in int8; head and KV cache stay as they are."""
    share = _INT8_BITS / (8 * model.itemsize)
    return replace(model, block_bytes=round(model.block_bytes * share), int8=True)


def least_missing(
    model: Model, load: Load, devices: Sequence[Device], head: str | None = None
) -> int:
    """The least room that must be added for some division to fit, whoever gets it.

    With the requests in one group, and any member (or `head`) as head.
    """
    return min(
        _missing(model, load, devices, each) for each in devices if head in (None, each.name)
    )


def _missing(model: Model, load: Load, devices: Sequence[Device], head: Device) -> int:
    """Everybody is filled up; what is left goes first to those whose last gap is the largest."""
    block = block_need(model, load, 1)
    free = [
        each.room_bytes - other_need(model, load, each, 1, head=each is head) for each in devices
    ]
    first = sum(block - room for room in free if room < block)  # everybody holds one
    left = model.blocks - sum(max(1, room // block) for room in free)
    gaps = sorted((room % block for room in free if room >= block), reverse=True)
    return first + max(0, left) * block - sum(gaps[: max(0, left)])
