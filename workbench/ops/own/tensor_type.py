"""A tensor as expressions see it: dtype, shape and strides, without its elements."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from workbench.ops.tensor_checks import dtype_name

ALIGNMENT = 16
"""Bytes; torch's allocations start on a multiple of at least so many."""


@dataclass(frozen=True)
class TensorType:
    """``dtype`` as ``"float16"``, ``shape``, ``strides`` in elements, and whether it starts on 16 bytes.

    It has the methods of a torch tensor that tell these: ``x.shape[0]``, ``x.stride(0)``, ``x.numel()``.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    aligned: bool = True

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorType:
        """That of a tensor; one without memory counts as aligned."""
        aligned = tensor.device.type == "meta" or tensor.data_ptr() % ALIGNMENT == 0
        return cls(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), aligned)

    @classmethod
    def contiguous(cls, dtype: str, shape: tuple[int, ...]) -> TensorType:
        """That of a new tensor."""
        strides: list[int] = []
        step = 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        return cls(dtype, shape, tuple(strides))

    def empty(self, device: str | torch.device) -> torch.Tensor:
        """A tensor of this type; its elements are anything."""
        return torch.empty_strided(self.shape, self.strides, dtype=getattr(torch, self.dtype), device=device)

    def size(self, dim: int | None = None) -> int | tuple[int, ...]:
        """Elements along a dimension, or of all."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> int | tuple[int, ...]:
        """Elements from one to the next along a dimension, or of all."""
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        """Elements altogether."""
        return math.prod(self.shape)

    def dim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    ndim = property(dim)

    def element_size(self) -> int:
        """Bytes of an element."""
        return getattr(torch, self.dtype).itemsize

    itemsize = property(element_size)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.numel() * self.element_size()

    def is_contiguous(self) -> bool:
        """Return whether its rows follow each other without gaps; as in torch, a single row's stride does not count."""
        dense = TensorType.contiguous(self.dtype, self.shape).strides
        if self.strides == dense or self.numel() == 0:
            return True
        return all(size == 1 or one == other for size, one, other in zip(self.shape, self.strides, dense, strict=True))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
