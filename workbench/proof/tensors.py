"""Tensors of a launch whose sizes are symbols."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.errors import ArgumentError
from workbench.proof.terms import Term

_BYTES = {"bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}
_BYTES |= {f"{kind}{bits}": bits // 8 for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_BYTES |= {f"float{bits}": bits // 8 for bits in (16, 32, 64)}


def bytes_of(where: str, dtype: str) -> int:
    """Return the bytes of an element. Raises ArgumentError for a name that is no dtype."""
    if dtype not in _BYTES:
        raise ArgumentError(where, repr(dtype), ", ".join(_BYTES), 'Write a dtype: "float32[rows, cols]".')
    return _BYTES[dtype]


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of a launch: its shape as terms, its dtype, and the bytes of an element."""

    name: str
    dtype: str
    shape: tuple[Term, ...]
    element: int

    @property
    def count(self) -> Term:
        """Number of elements."""
        total = Term({(): 1})
        for size in self.shape:
            total = total * size
        return total
