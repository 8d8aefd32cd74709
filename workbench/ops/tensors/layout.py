"""Checks of how the tensors of a call lie in memory, against the assumptions of a declaration.

A pointer carries no strides. A kernel whose declaration names no stride of a tensor takes the tensor for contiguous. A
kernel that is given ``x.stride(0)`` alone takes each row for contiguous. On a view, such a kernel would compute with
other elements than torch; in place, it would overwrite elements that lie between those of the view.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.expressions import Expression
from workbench.ops.tensors.tensor_type import TensorType


class WatchedType(TensorType):
    """A `TensorType` that notes in ``read`` the dimensions whose strides are read."""

    read: set[int]

    @classmethod
    def watching(cls, kind: TensorType) -> WatchedType:
        """Return a copy of a type that watches its strides."""
        made = cls(kind.dtype, kind.shape, kind.strides, kind.aligned)
        object.__setattr__(made, "read", set())  # the dataclass is frozen
        return made

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _Strides(found, self.read) if name == "strides" else found


class _Strides(tuple):
    """Strides that note which of them are read; a comparison of all, as ``is_contiguous()`` makes, reads none."""

    _read: set[int]

    def __new__(cls, strides: tuple[int, ...], read: set[int]) -> _Strides:
        made = super().__new__(cls, strides)
        made._read = read
        return made

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        self._read.update(places if isinstance(places, range) else [places])
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        self._read.update(range(len(self)))
        return super().__iter__()


def strides_read(
    known: Mapping[str, Any], names: Any, expressions: Iterable[Expression]
) -> Mapping[str, frozenset[int]]:
    """Return for each tensor of a problem the dimensions whose strides a declaration reads.

    ``names`` is a function that takes the problem's names, with watched tensors in place of the ``known`` ones, and
    returns the names of the launch.
    """
    watched = {name: WatchedType.watching(one) if isinstance(one, TensorType) else one for name, one in known.items()}
    with contextlib.suppress(ArgumentError):  # the launch itself raises it
        found = names(watched)
        for expression in expressions:
            with contextlib.suppress(ArgumentError):
                expression(found)
    return {name: frozenset(one.read) for name, one in watched.items() if isinstance(one, WatchedType)}


def first_gap(
    shape: tuple[int, ...], strides: tuple[int, ...], known: frozenset[int] | tuple[int, ...]
) -> tuple[int, int] | None:
    """Return the innermost dimension with a gap, and the stride that it would have without; None if there is no gap.

    Without gaps, a stride is that of the next inner dimension times its size, whatever that stride is. Dimensions of
    size 1, and those whose stride is ``known``, have no gap.
    """
    dense = 1
    for dim in reversed(range(len(shape))):
        if shape[dim] != 1:
            if dim not in known and strides[dim] != dense and 0 not in shape:
                return dim, dense
            dense = shape[dim] * strides[dim]
    return None


def repeats(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if several elements may share an address, as in an expanded tensor."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return 0 not in shape
            reach += (size - 1) * stride
    return False


def lies_otherwise(name: str, kind: TensorType, read: frozenset[int], where: str) -> ArgumentError | None:
    """Return the error for a tensor that a kernel would misread although it knows the strides ``read``, or None."""
    found = first_gap(kind.shape, kind.strides, read)
    if found is None:
        return None
    dim, dense = found
    known = f" beside {', '.join(f'{name}.stride({one})' for one in sorted(read))}" if read else ""
    allowed = f"a stride of {dense} in dimension {dim}: {where} names no other stride{known}"
    remedy = (
        f'Pass {name}.contiguous(), declare contiguous=("{name}",), which copies it, '
        f'or give the kernel "{name}.stride({dim})".'
    )
    return ArgumentError(name, f"strides {kind.strides} of {kind}", allowed, remedy)


def meets_itself(name: str, kind: TensorType) -> ArgumentError | None:
    """Return the error for a written tensor that has several elements at one address, or None."""
    if not repeats(kind.shape, kind.strides):
        return None
    allowed = "memory of its own for each element: it is written"
    return ArgumentError(name, f"strides {kind.strides} of {kind}", allowed, f"Pass {name}.clone().")


def placed(tensor: torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """Return a tensor on a device with the strides that it has; torch's ``to`` alone would close gaps."""
    moved = tensor.to(device)
    if moved.stride() == tensor.stride():
        return moved
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach,), (1,)).to(device).as_strided(tensor.shape, tensor.stride())
