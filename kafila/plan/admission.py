"""Admission: what each member needs at the declared load, and what it has.

Memory is the only reason to refuse; a slow ring is admitted.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from kafila.errors import BadFile, NotAdmitted
from kafila.plan.groups import rows_of, sensible_groups
from kafila.plan.values import Device, Load, Model
from kafila.words import gib, listed


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

    Each process on a machine measured what is free for all of them. Where the rooms of one memory
    add up to more than it can hold now, that is shared out in proportion; a room that is parts of
    several shrinks as its worst. Doing so twice changes nothing.
    """
    users: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        for name in device.memories:
            users[name].append(device)
    shares: dict[str, int] = {}
    notes = []
    # Memories with the same users are one: a machine's, or those of devices that work as one.
    for members, count in Counter(tuple(each) for each in users.values()).items():
        memory = count * min(Fraction(each.machine_bytes, len(each.memories)) for each in members)
        total = count * sum(Fraction(each.room_bytes, len(each.memories)) for each in members)
        if total <= memory:
            continue
        for each in members:
            share = max(1, int(each.room_bytes * memory / total))
            shares[each.name] = min(share, shares.get(each.name, share))
        if len(members) == 1:
            name = members[0].name
            notes.append(f"{name} cannot have more room than the {gib(int(memory))} of its memory")
        else:
            who = listed([member.name for member in members])
            notes.append(f"{who} are on one machine and share {gib(int(memory))} of room")
    shared = tuple(
        replace(each, room_bytes=shares.get(each.name, each.room_bytes)) for each in devices
    )
    return shared, tuple(notes)


def need_bytes(
    model: Model, load: Load, device: Device, blocks: int, groups: int, *, head: bool
) -> int:
    """Everything `device` holds while it serves `blocks` blocks in `groups` groups."""
    return blocks * block_need(model, load, groups) + other_need(
        model, load, device, groups, head=head
    )


def limit(model: Model, load: Load, device: Device, groups: int, *, head: bool) -> int:
    """lim(i): the most blocks that fit; 0 or less when none does."""
    left = device.room_bytes - other_need(model, load, device, groups, head=head)
    return left // block_need(model, load, groups)


def fits_of(
    model: Model, load: Load, ring: Sequence[Device], counts: Sequence[int], groups: int
) -> tuple[Fit, ...]:
    """Need against room of every member of a division."""
    return tuple(
        Fit(
            device.name,
            device.room_bytes,
            need_bytes(model, load, device, blocks, groups, head=position == 0),
        )
        for position, (device, blocks) in enumerate(zip(ring, counts, strict=True))
    )


def all_fit(fits: Sequence[Fit]) -> bool:
    """Whether nobody lacks anything."""
    return not any(fit.short_bytes for fit in fits)


def possible(model: Model, load: Load, devices: Sequence[Device], head: str | None = None) -> bool:
    """Whether any division fits, with any member (or `head`) as head and any number of groups."""
    return any(
        _divisible(model, load, devices, groups, each)
        for groups in sensible_groups(load.concurrency)
        for each in devices
        if head in (None, each.name)
    )


def _divisible(
    model: Model, load: Load, devices: Sequence[Device], groups: int, head: Device
) -> bool:
    limits = [limit(model, load, each, groups, head=each is head) for each in devices]
    return min(limits) >= 1 and sum(limits) >= model.blocks


def block_need(model: Model, load: Load, groups: int) -> int:
    """Weights and KV of one block; the slots of a group are as many as its rows, used or not."""
    slots = groups * rows_of(load, groups)
    return model.block_bytes + slots * load.context * model.kv_bytes


def other_need(model: Model, load: Load, device: Device, groups: int, *, head: bool) -> int:
    """All that does not depend on how many blocks it holds."""
    workspace = device.workspace.at(rows_of(load, groups), load.context)
    return device.runtime_bytes + workspace + (model.head_resident_bytes if head else 0)
