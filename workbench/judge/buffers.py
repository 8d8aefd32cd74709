"""The tensors of one run, each in memory of its own between guard zones, with outputs filled with poison."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.judge.description import Workspace
from workbench.judge.views import fill
from workbench.ops.own.tensor_type import TensorType
from workbench.ops.tensor_checks import dtype_name, element_name

GUARD = 1024
"""Bytes on either side of a buffer."""

_ALIGNMENT = 512
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtype of the elements of a tensor, by their size in bytes."""

_POISON = {  # NaN with a payload that no computation gives
    "float16": (0x7EAD, 0x7EA5),
    "bfloat16": (0x7FAD, 0x7FA5),
    "float32": (0x7FADBEEF, 0x7FA5BEEF),
    "float64": (0x7FFADBEEFDEADBEE, 0x7FFA5BEEFDEADBEE),
    "float8_e4m3fn": (0x7F, 0xFF),
    "float8_e5m2": (0x7F, 0xFF),
    "bool": (0xFF, 0xFE),
}  # fmt: skip
_POISON |= {"complex64": _POISON["float32"], "complex128": _POISON["float64"]}


@dataclass
class _Guarded:
    """A tensor inside a larger allocation, with the content of the allocation before the launch."""

    storage: torch.Tensor
    start: int
    size: int
    tensor: torch.Tensor
    before: torch.Tensor

    @classmethod
    def empty(cls, kind: TensorType) -> _Guarded:
        """Make a tensor of a type, aligned to 512 bytes unless the type is declared unaligned."""
        item = kind.element_size()
        span = (1 + sum((n - 1) * s for n, s in zip(kind.shape, kind.strides, strict=True))) * item
        size = span if kind.numel() else 0
        storage = torch.empty(size + 2 * GUARD + 2 * _ALIGNMENT, dtype=torch.uint8)
        start = GUARD + -(storage.data_ptr() + GUARD) % _ALIGNMENT + (0 if kind.aligned else item)
        storage.copy_(_noise(storage.numel()))
        flat = storage[start : start + size].view(getattr(torch, kind.dtype))
        tensor = flat.as_strided(kind.shape, kind.strides) if size else flat.reshape(kind.shape)
        return cls(storage, start, size, tensor, storage)

    def keep(self) -> None:
        """Remember the present content."""
        self.before = self.storage.clone()

    def guards_written(self, *, between: bool) -> bool:
        """Return True if anything around the tensor, or ``between`` its rows, has changed."""
        end = self.start + self.size
        outside = torch.equal(self.storage[: self.start], self.before[: self.start])
        outside = outside and torch.equal(self.storage[end:], self.before[end:])
        if outside and between and not self.tensor.is_contiguous():
            changed, item = self.storage[self.start : end] != self.before[self.start : end], self.tensor.element_size()
            strides = (*(item * one for one in self.tensor.stride()), 1)
            changed.as_strided((*self.tensor.shape, item), strides).fill_(False)
            return bool(changed.any())
        return not outside

    def bits(self, storage: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tensor's elements as integers, from its own storage or another with the same layout."""
        flat = (self.storage if storage is None else storage)[self.start : self.start + self.size]
        if not self.size:
            return self.tensor
        shape, strides, item = tuple(self.tensor.shape), self.tensor.stride(), self.tensor.element_size()
        if self.tensor.is_complex():  # real and imaginary parts are elements of their own
            shape, strides, item = (*shape, 2), (*(2 * one for one in strides), 1), item // 2
        return flat.view(BITS[item]).as_strided(shape, strides)


_random = torch.frombuffer(bytearray(os.urandom(1 << 16)), dtype=torch.uint8)


def _noise(size: int) -> torch.Tensor:
    return _random.repeat(-(-size // _random.numel()))[:size]


class Buffers:
    """Arguments, outputs and workspace of one run; ``round`` chooses between two kinds of poison.

    Arguments in ``copied`` that are not contiguous are passed to kernels as contiguous copies.
    """

    def __init__(
        self, case: Any, problem: Any, workspace: Sequence[Workspace], round: int, copied: Collection[str] = ()
    ):
        self._in_place = case.contract.in_place
        self._inputs: dict[str, _Guarded] = {}
        kinds = dict(problem.arguments)
        for name, value in case.arguments().items():
            if isinstance(value, torch.Tensor):
                self._inputs[name] = one = _Guarded.empty(kinds[name])
                fill(one.tensor, value)
        self._outputs = {name: _Guarded.empty(kind) for name, kind in problem.outputs}
        for one in self._outputs.values():
            _poison(one, round)
        self._workspace = {}
        for part in workspace:
            one = self._workspace[part.name] = _Guarded.empty(TensorType.contiguous(part.dtype, part.shape))
            one.tensor.copy_(torch.full(part.shape, part.fill).to(one.tensor.dtype))
        self._copies = {
            name: _Guarded.empty(TensorType.contiguous(kinds[name].dtype, kinds[name].shape))
            for name, one in self._inputs.items()
            if name in copied and not one.tensor.is_contiguous()
        }
        for name, one in self._copies.items():
            one.tensor.copy_(self._inputs[name].tensor)
        self._all = self._inputs | self._outputs | self._workspace
        for one in (*self._all.values(), *self._copies.values()):
            one.keep()

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Every tensor by name, as it is passed to kernels."""
        return {name: one.tensor for name, one in (self._all | self._copies).items()}

    def copy_back(self) -> None:
        """Copy the contents of written copies back into the arguments that they stand for."""
        for name, one in self._copies.items():
            if name in self._in_place:
                self._inputs[name].tensor.copy_(one.tensor)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, which have no content before the launch."""
        return tuple(self._outputs)

    @property
    def out(self) -> dict[str, torch.Tensor]:
        """The tensors that the case's check compares: outputs, then arguments written in place."""
        written = {name: self._inputs[name] for name in self._in_place}
        return {name: one.tensor for name, one in (self._outputs | written).items()}

    def guards_written(self) -> list[str]:
        """Return the names of the buffers whose surroundings were written."""
        every = (*self._all.items(), *self._copies.items())
        return [name for name, one in every if one.guards_written(between=name in self._in_place)]

    def changed_inputs(self) -> tuple[str, int] | None:
        """Return (element, count) of the first argument that was written without being declared in place, or None."""
        for name, one in self._inputs.items():
            if name not in self._in_place and not torch.equal(one.storage, one.before):
                changed = one.bits() != one.bits(one.before)
                if not bool(changed.any()):  # the write is between its rows
                    return f"{name}[between its rows]", 0
                return _first(name, changed), int(changed.sum())
        return None

    def unwritten(self) -> tuple[str, int, int] | None:
        """Return (element, count, elements) of the first output that still holds poison, or None."""
        for name, one in self._outputs.items():
            if one.size:
                kept = one.bits() == one.bits(one.before)
                poisoned = dtype_name(one.tensor.dtype) in _POISON
                if bool(kept.any()) and (poisoned or bool(kept.all())):  # an integer may be right by chance
                    return _first(name, kept), int(kept.sum()), kept.numel()
        return None


def _first(name: str, mask: torch.Tensor) -> str:
    return element_name(name, mask.shape, int(mask.flatten().to(torch.uint8).argmax()))


def _poison(one: _Guarded, round: int) -> None:
    name = dtype_name(one.tensor.dtype)
    if one.size == 0:
        return
    if name in _POISON:
        bits = one.bits()
        bits.fill_(
            torch.frombuffer(bytearray(_POISON[name][round].to_bytes(bits.itemsize, "little")), dtype=bits.dtype)[0]
        )
    else:  # every integer is a valid value; an unwritten one is wrong in at least one of the two rounds
        bits = one.bits()
        bits.copy_(
            _noise(one.size).view(bits.dtype).reshape(bits.shape) ^ (-round if bits.dtype.is_signed else 255 * round)
        )
