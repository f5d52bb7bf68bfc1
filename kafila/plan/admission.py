"""Admission: what each member needs at the declared load, what it has, and what would fit instead.

Memory is the only reason to refuse; a slow ring is admitted.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kafila.errors import BadFile, NotAdmitted
from kafila.plan.values import Device, Load, Model
from kafila.words import counted, gib, listed


@dataclass(frozen=True, slots=True)
class Fit:
    """One member of a division: `short_bytes` is what it lacks, 0 when it fits."""

    name: str
    room_bytes: int
    need_bytes: int

    @property
    def short_bytes(self) -> int:
        """Need beyond the room."""
        return max(0, self.need_bytes - self.room_bytes)


class Refused(NotAdmitted):
    """No plan: which members are undersized by how much, and the loads that would fit."""

    def __init__(
        self,
        model: Model,
        load: Load,
        fits: Sequence[Fit],
        *,
        context: int,
        concurrency: int,
        notes: Sequence[str] = (),
    ) -> None:
        self.fits = tuple(fits)
        self.context = context
        """Most tokens that would fit at the declared concurrency; 0 if not even one."""
        self.concurrency = concurrency
        """Most requests that would fit at the declared context; 0 if not even one."""
        self.missing_bytes = sum(fit.short_bytes for fit in fits)
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
        ways.append(f"{gib(self.missing_bytes)} more room where it is short")
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


def check_members(model: Model, devices: Sequence[Device]) -> None:
    """The set of members must be one that can be planned at all."""
    if not devices:
        raise BadFile("no reports: a plan needs at least one member")
    for field, advice in (
        ("name", "give one of them another with `kafila probe --name`"),
        ("key", "one machine was probed twice; use `--home` for several members on one machine"),
    ):
        seen: dict[str, str] = {}
        for device in devices:
            value = getattr(device, field)
            if value in seen:
                who = f"the name {value}" if field == "name" else "one key"
                raise BadFile(f"{seen[value]} and {device.name} have {who}: {advice}")
            seen[value] = device.name
    if len(devices) > model.blocks:
        raise NotAdmitted(
            f"{len(devices)} members for the {model.blocks} blocks of {model.name}: every member "
            f"must hold one; leave out {len(devices) - model.blocks}"
        )


def share_rooms(devices: Sequence[Device]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices with rooms that can be had at once, and a note for every machine it concerns.

    Each process on a machine measured the room that all of them see. Where the rooms of one
    memory add up to more than it has, the largest is shared out in proportion. Doing so twice
    changes nothing.
    """
    machines: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        machines[device.machine].append(device)
    shares: dict[str, int] = {}
    notes = []
    for members in machines.values():
        memory = min(member.machine_bytes for member in members)
        total = sum(member.room_bytes for member in members)
        if total <= memory:
            continue
        pool = min(memory, max(member.room_bytes for member in members))
        for member in members:
            shares[member.name] = member.room_bytes * pool // total
        if len(members) == 1:
            notes.append(f"{members[0].name} cannot have more room than its {gib(memory)}")
        else:
            who = listed([member.name for member in members])
            notes.append(f"{who} are on one machine and share {gib(pool)} of room")
    shared = tuple(
        replace(each, room_bytes=shares.get(each.name, each.room_bytes)) for each in devices
    )
    return shared, tuple(notes)


def need_bytes(
    model: Model, load: Load, device: Device, blocks: int, groups: int, *, head: bool
) -> int:
    """Everything `device` holds while it serves `blocks` blocks in `groups` groups."""
    return blocks * _block_need(model, load, groups) + _other_need(
        model, load, device, groups, head=head
    )


def limit(model: Model, load: Load, device: Device, *, head: bool) -> int:
    """lim(i): the most blocks that fit in one group's arrangement; 0 or less when none does."""
    left = device.room_bytes - _other_need(model, load, device, 1, head=head)
    return left // _block_need(model, load, 1)


def _block_need(model: Model, load: Load, groups: int) -> int:
    """Weights and KV of one block; the slots of a group are as many as its rows, used or not."""
    slots = groups * rows_of(load, groups)
    return model.block_bytes + slots * load.context * model.kv_bytes


def _other_need(model: Model, load: Load, device: Device, groups: int, *, head: bool) -> int:
    workspace = device.workspace.at(rows_of(load, groups), load.context)
    return device.runtime_bytes + workspace + (model.head_resident_bytes if head else 0)


def rows_of(load: Load, groups: int) -> int:
    """Requests in each group: ceil(R/G)."""
    return -(-load.concurrency // groups)


def largest(below: int, fits: Callable[[int], bool]) -> int:
    """The largest number under `below` that `fits` (which is monotone), 0 when none does."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def refusal(
    model: Model,
    load: Load,
    fits: Sequence[Fit],
    admits: Callable[[Load], bool],
    notes: Sequence[str] = (),
) -> Refused:
    """The refusal for a division that does not fit; `admits` says whether another load would."""
    return Refused(
        model,
        load,
        fits,
        context=largest(load.context, lambda n: admits(replace(load, context=n))),
        concurrency=largest(load.concurrency, lambda n: admits(replace(load, concurrency=n))),
        notes=notes,
    )
