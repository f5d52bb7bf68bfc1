"""How a stage's arrays are split among several devices of one process: tensor parallelism.

Attention by KV heads, the MLP by its inner width, the vocabulary by tokens; what is small is whole
on every device. XLA does the rest (GSPMD): a block costs two sums over the devices. Knows names
and shapes, no values.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from stages.config import BYTES, Qwen3Config
from stages.formats import Shape

AXES = {"q": 0, "k": 0, "v": 0, "o": 1, "gate": 0, "up": 0, "down": 1, "embed": 0, "unembed": 0}
"""The axis along which each matrix [out, in] is split; an int8 matrix' scale goes with its out."""

NAME = "devices"
"""Of the only axis of the mesh."""

_spec: Any = PartitionSpec  # which JAX leaves untyped


@dataclass(frozen=True)
class Split:
    """Devices that compute a stage together, each with an equal part.

    On one device there is nothing to split: shardings are None, and compiled code bears none.
    """

    devices: tuple[jax.Device, ...]
    left_out: tuple[jax.Device, ...] = ()
    why: str = ""
    """They were left out."""

    @classmethod
    def of(cls, config: Qwen3Config) -> "Split":
        """All devices of JAX's default platform like the first; where the model's KV heads or its
        MLP cannot be divided by that, so many that they can be."""
        found = jax.devices()
        alike = [each for each in found if each.device_kind == found[0].device_kind]
        widths = config.kv_heads, config.ffn
        count = max(n for n in range(1, len(alike) + 1) if not any(w % n for w in widths))
        chosen = alike[:count]
        reasons = []
        if len(alike) > count:
            reasons.append(
                f"{config.kv_heads} KV heads and an MLP {config.ffn} wide divide by {count}, "
                f"not by {len(alike)}"
            )
        if len(found) > len(alike):
            reasons.append("devices of another kind cannot share a stage")
        left_out = tuple(each for each in found if each not in chosen)
        return cls(tuple(chosen), left_out, "; ".join(reasons))

    @property
    def count(self) -> int:
        return len(self.devices)

    @property
    def names(self) -> tuple[str, ...]:
        """Tell the devices from each other and from the others of their machine."""
        return tuple(_name(each) for each in self.devices)

    @property
    def words(self) -> str:
        """Such as "2 x NVIDIA H200"; what was left out, too, and why."""
        kind = self.devices[0].device_kind
        said = kind if self.count == 1 else f"{self.count} x {kind}"
        if not self.left_out:
            return said
        names = ", ".join(f"{each.device_kind} {_name(each)}" for each in self.left_out)
        return f"{said} (left out: {names}; {self.why})"

    def leaf(self, name: str, shape: Shape) -> NamedSharding | None:
        """Of the leaf of this name, as `Functions` have it."""
        return self._sharding(self._axis(name, shape))

    def copies(self, leaves: Mapping[str, tuple[Shape, str]]) -> int:
        """Bytes that the devices hold of such leaves beyond one of each."""
        return (self.count - 1) * sum(
            math.prod(shape) * BYTES[dtype]
            for name, (shape, dtype) in leaves.items()
            if self._axis(name, shape) is None
        )

    @property
    def whole(self) -> NamedSharding | None:
        """Of what every device has all of."""
        return self._sharding(None)

    @property
    def slot(self) -> NamedSharding | None:
        """Of keys or values [kv_heads, context, head_dim]."""
        return self._sharding(0)

    def put(self, name: str, values: Any) -> jax.Array:
        """A leaf on the devices, from a host array or one that lies on the first device. One part
        after the other, so that no more than one is copied on the way."""
        sharding = self.leaf(name, values.shape)
        if sharding is None:
            return whole_on(self.devices[0], values)
        values = np.asarray(values)
        indices = sharding.addressable_devices_indices_map(values.shape)
        parts = [whole_on(device, values[index]) for device, index in indices.items()]
        array: jax.Array = jax.make_array_from_single_device_arrays(values.shape, sharding, parts)
        return array

    def _axis(self, name: str, shape: Shape) -> int | None:
        """None where it is whole on each device, as is a vocabulary that they do not divide."""
        matrix, _, part = name.partition(".")
        axis = AXES.get(matrix)
        if axis is None or (part == "scale" and axis > 0) or shape[axis] % self.count:
            return None
        return axis

    def _sharding(self, axis: int | None) -> NamedSharding | None:
        return self._shardings[axis] if self.count > 1 else None

    @cached_property
    def _shardings(self) -> dict[int | None, NamedSharding]:
        mesh = Mesh(np.array(self.devices), (NAME,))
        specs = {None: _spec(), 0: _spec(NAME), 1: _spec(None, NAME)}
        return {axis: NamedSharding(mesh, one) for axis, one in specs.items()}


def whole_on(device: jax.Device, values: Any) -> jax.Array:
    """All of the values on one device, and there when this returns. On CPU they are used where they
    lie if they are aligned; the array keeps their memory alive."""
    array: jax.Array = jax.device_put(values, device, may_alias=True)
    return array.block_until_ready()


def _name(device: jax.Device) -> str:
    """Tells this device from the others of its machine, in any process.

    CUDA_VISIBLE_DEVICES hides devices from a process, and those that are left count from 0.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if device.platform == "gpu" else ""
    names = [each.strip() for each in visible.split(",")]
    place = getattr(device, "local_hardware_id", None)
    place = device.id if place is None else place
    return names[place] if visible and place < len(names) else str(place)
