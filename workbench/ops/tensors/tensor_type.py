"""Types of tensors, as expressions see them: dtype, shape and strides, without elements."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from workbench.ops.tensors.checks import dtype_name

ALIGNMENT = 16
"""Alignment in bytes that every allocation of torch's has."""


@dataclass(frozen=True)
class TensorType:
    """Type of a tensor: dtype such as ``"float16"``, shape, strides in elements, and alignment to 16 bytes.

    It tells these by the methods of a torch tensor: ``x.shape[0]``, ``x.stride(0)``, ``x.numel()``.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    aligned: bool = True

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorType:
        """Return the type of a tensor; one without memory counts as aligned."""
        aligned = tensor.device.type == "meta" or tensor.data_ptr() % ALIGNMENT == 0
        return cls(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), aligned)

    @classmethod
    def contiguous(cls, dtype: str, shape: tuple[int, ...]) -> TensorType:
        """Return the type of a new, contiguous tensor."""
        strides: list[int] = []
        step = 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        return cls(dtype, shape, tuple(strides))

    def empty(self, device: str | torch.device) -> torch.Tensor:
        """Make a tensor of this type, with elements that are not initialised."""
        return torch.empty_strided(self.shape, self.strides, dtype=getattr(torch, self.dtype), device=device)

    def size(self, dim: int | None = None) -> int | tuple[int, ...]:
        """Return the number of elements along a dimension, or the shape."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> int | tuple[int, ...]:
        """Return the elements from one to the next along a dimension, or all strides."""
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    ndim = property(dim)

    def element_size(self) -> int:
        """Return the bytes of one element."""
        return getattr(torch, self.dtype).itemsize

    itemsize = property(element_size)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.element_size()

    def is_contiguous(self) -> bool:
        """Return True if rows follow each other without gaps; as in torch, a single row's stride does not count."""
        dense = TensorType.contiguous(self.dtype, self.shape).strides
        if self.strides == dense or self.numel() == 0:
            return True
        return all(size == 1 or one == other for size, one, other in zip(self.shape, self.strides, dense, strict=True))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
