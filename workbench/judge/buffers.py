"""Guard zones around the tensors of a run, poison in its outputs, and reports of what was written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from workbench.base.element_types import ELEMENT_TYPES
from workbench.judge.description import Workspace
from workbench.ops.tensors.checks import dtype_name, element_name, extent
from workbench.ops.tensors.poison import BITS
from workbench.ops.tensors.run_tensors import RunTensors, place_of

GUARD = 1024
"""Size of the guard zone on either side of a buffer, in bytes."""

_ALIGNMENT = 512
ALIGNMENT = 16
"""Bytes modulo which a moved tensor keeps its address; no kernel needs a larger alignment."""


@dataclass
class _Guarded:
    """Memory inside a larger allocation, with the allocation's content before the launch and the tensors in it."""

    storage: torch.Tensor
    start: int
    size: int
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    before: torch.Tensor = field(init=False)

    @classmethod
    def empty(cls, size: int, beyond: int = 0) -> _Guarded:
        """Allocate memory that starts ``beyond`` bytes behind a multiple of 512; the bytes around it are noise."""
        storage = torch.empty(size + 2 * GUARD + 2 * _ALIGNMENT, dtype=torch.uint8)
        start = GUARD + -(storage.data_ptr() + GUARD) % _ALIGNMENT + beyond
        for part in (storage[:start], storage[start + size :]):
            part.copy_(_noise(part.numel()))
        return cls(storage, start, size)

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> _Guarded:
        """Move tensors that are parts of one allocation to memory of their own.

        Their elements, the distances between them and the bytes in between stay as they were.
        """
        several = list({id(one): one for one in tensors.values()}.values())
        low = min(one.data_ptr() for one in several)
        high = max(one.data_ptr() + (extent(one) if one.numel() else 0) for one in several)
        first = several[0].untyped_storage()
        moved = cls.empty(high - low, low % ALIGNMENT)
        offset = low - first.data_ptr()
        content = torch.empty(0, dtype=torch.uint8).set_(first, offset, (high - low,), (1,))
        moved.storage[moved.start : moved.start + moved.size] = content
        for one in several:
            place = (moved.start + one.data_ptr() - low) // one.element_size()
            one.set_(moved.storage.untyped_storage(), place, one.size(), one.stride())
        moved.tensors = dict(tensors)
        return moved

    @classmethod
    def contiguous(cls, name: str, shape: Sequence[int], dtype: torch.dtype) -> _Guarded:
        """Allocate the memory of one new tensor."""
        made = torch.empty(tuple(shape), dtype=dtype, device="meta")
        guarded = cls.empty(made.nbytes)
        guarded.storage[guarded.start : guarded.start + guarded.size] = _noise(guarded.size)
        tensor = torch.empty(made.shape if not made.numel() else 0, dtype=dtype)
        if made.numel():  # one without elements has no address
            place = guarded.start // made.element_size()
            tensor.set_(guarded.storage.untyped_storage(), place, made.size(), made.stride())
        guarded.tensors = {name: tensor}
        return guarded

    def keep(self) -> None:
        """Keep a copy of the present content."""
        self.before = self.storage.clone()

    def written_around(self) -> bool:
        """Return True if anything before or behind the memory has changed."""
        end, now, before = self.start + self.size, self.storage, self.before
        return not (torch.equal(now[: self.start], before[: self.start]) and torch.equal(now[end:], before[end:]))

    def changed(self, but: Iterable[torch.Tensor]) -> torch.Tensor | None:
        """Return the bytes of the storage that have changed, except the elements of ``but``; None if none has."""
        but = list(but)
        if any(one.is_contiguous() and one.nbytes == self.size for one in but):
            if not self.written_around():
                return None  # there is nothing else in it
        elif not but and torch.equal(self.storage, self.before):
            return None
        found = self.storage != self.before
        for one in but:
            _bytes_of(found, one).fill_(False)
        return found if bool(found.any()) else None


def _bytes_of(storage: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """View the bytes of a tensor's elements, ``[*shape, bytes]``, in a storage of one-byte elements laid out alike."""
    item = tensor.element_size()
    strides = (*(item * one for one in tensor.stride()), 1)
    return storage.as_strided((*tensor.shape, item), strides, tensor.storage_offset() * item)


def _bits(tensor: torch.Tensor, storage: torch.Tensor) -> torch.Tensor:
    """View a tensor's elements as integers in a storage that is laid out alike; a complex element is two of them."""
    shape, strides, item = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    place = tensor.storage_offset()
    if tensor.is_complex():
        shape, strides, item, place = (*shape, 2), (*(2 * one for one in strides), 1), item // 2, 2 * place
    return torch.empty(0, dtype=BITS[item]).set_(storage.untyped_storage(), place, shape, strides)


_random = torch.frombuffer(bytearray(os.urandom(1 << 16)), dtype=torch.uint8)


def _noise(size: int) -> torch.Tensor:
    return (_random if size <= _random.numel() else _random.repeat(-(-size // _random.numel())))[:size]


class Buffers:
    """Tensors of one run, which are moved, and its workspace; ``round`` chooses between two kinds of poison.

    Kernels get contiguous copies of the tensors ``copied`` that are not contiguous.
    """

    def __init__(self, run: RunTensors, workspace: Sequence[Workspace], round: int, copied: Collection[str] = ()):
        self.run, named = run, run.named()
        self.run_names = named.keys()
        self._judged = {name: one for name, one in run.judged().items() if one.numel()}
        memories: dict[int, dict[str, torch.Tensor]] = {}
        for name, one in named.items():
            if one.numel():
                memories.setdefault(place_of(one)[0], {})[name] = one
        self._memories = [_Guarded.of(tensors) for tensors in memories.values()]
        for name in run.fresh():
            if name in self._judged:
                _poison(self._judged[name], round)
        parts = [_part(one) for one in workspace]
        self._copies = {
            name: _Guarded.contiguous(name, one.shape, one.dtype)
            for name, one in named.items()
            if name in copied and not one.is_contiguous()
        }
        for name, guarded in self._copies.items():
            guarded.tensors[name].copy_(named[name])
        empty = [run.judged()[name] for name in run.fresh()]
        self.fresh = {name for name, one in named.items() if any(_inside(one, other) for other in empty)}
        """Names of the tensors that nothing has been written to yet, in the workspace too."""
        self.fresh |= {one.name for one in workspace if one.fill is None}
        self._all = [*self._memories, *parts, *self._copies.values()]
        self.tensors: dict[str, torch.Tensor] = dict(named)
        """Every tensor by name, as kernels get it."""
        for guarded in (*parts, *self._copies.values()):
            self.tensors |= guarded.tensors
        for guarded in self._all:
            guarded.keep()

    def not_passed(self, passed: Collection[str]) -> list[str]:
        """Return the outputs that a launch of these tensors cannot write: none of them lies in the same memory."""
        reached = {place_of(self.tensors[name])[0] for name in passed}
        outputs = {name: one for name, one in self._judged.items() if name in self.run.fresh()}
        return [name for name, one in outputs.items() if place_of(one)[0] not in reached]

    def copy_back(self) -> None:
        """Copy what was written to copies back to the tensors that are judged."""
        for name, guarded in self._copies.items():
            if name in self._judged:
                self._judged[name].copy_(guarded.tensors[name])

    def guards_written(self) -> list[str]:
        """Return the tensors whose surroundings were written, or, of a judged one, the bytes between its rows."""
        found = []
        for guarded in self._all:
            changed = None
            if judged := self._judged_in(guarded):
                changed = guarded.changed(judged.values())
            if guarded.written_around() or (changed is not None and _element(guarded, changed) is None):
                found.append(next(iter(judged or guarded.tensors)))
        return found

    def changed_inputs(self) -> tuple[str, int] | None:
        """Return (element, count) of the first tensor that was written and is not judged; None if there is none."""
        for guarded in self._memories:
            changed = guarded.changed(self._judged_in(guarded).values())
            if changed is not None:
                return _element(guarded, changed) or (f"{next(iter(guarded.tensors))}[between its rows]", 0)
        return None

    def unwritten(self) -> tuple[str, int, int] | None:
        """Return (element, count, elements) of the first output that still holds poison, or its whole old content.

        The result is None if there is none. ``count`` is the number of elements that are unchanged.
        """
        for guarded in self._memories:
            for name, one in self._judged_in(guarded).items():
                kept = _bits(one, guarded.storage) == _bits(one, guarded.before)
                poisoned = name in self.run.fresh() and _patterns(one) != ()
                if bool(kept.any()) and (poisoned or bool(kept.all())):  # a whole number may be right by chance
                    return _first(name, kept), int(kept.sum()), kept.numel()
        return None

    def _judged_in(self, guarded: _Guarded) -> dict[str, torch.Tensor]:
        memory = guarded.storage.untyped_storage()._cdata
        return {name: one for name, one in self._judged.items() if place_of(one)[0] == memory}


def _inside(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if a tensor is a part of another one."""
    (memory, start), (others, low) = place_of(tensor), place_of(other)
    return memory == others and low <= start and start + extent(tensor) <= low + extent(other)


def _part(part: Workspace) -> _Guarded:
    """Allocate a part of the workspace, and fill it."""
    guarded = _Guarded.contiguous(part.name, part.shape, getattr(torch, part.dtype))
    tensor = guarded.tensors[part.name]
    if isinstance(part.fill, bytes):
        guarded.storage[guarded.start : guarded.start + guarded.size] = torch.tensor(list(part.fill), dtype=torch.uint8)
    elif part.fill is not None:
        tensor.copy_(torch.full(part.shape, part.fill).to(tensor.dtype))
    return guarded


def _element(guarded: _Guarded, changed: torch.Tensor) -> tuple[str, int] | None:
    """Return (element, count) of the first tensor with elements among the changed bytes; None if there is none."""
    for name, one in guarded.tensors.items():
        elements = _bytes_of(changed, one).any(-1)
        if bool(elements.any()):
            return _first(name, elements), int(elements.sum())
    return None


def _first(name: str, mask: torch.Tensor) -> str:
    return element_name(name, mask.shape, int(mask.flatten().to(torch.uint8).argmax()))


def _patterns(tensor: torch.Tensor) -> tuple[int, ...]:
    kind = ELEMENT_TYPES.get(dtype_name(tensor.dtype))
    return () if kind is None else kind.poison


def _poison(tensor: torch.Tensor, round: int) -> None:
    patterns, bits = _patterns(tensor), _bits(tensor, torch.empty(0).set_(tensor.untyped_storage()))
    if patterns:
        bits.fill_(patterns[round])
    else:  # of whole numbers each is a value; what is left is wrong in one of the two rounds at least
        noise = _noise(bits.numel() * bits.itemsize).clone().view(bits.dtype).reshape(bits.shape)
        bits.copy_(noise ^ (-round if bits.dtype.is_signed else 255 * round))
