"""Tensors of a launch whose sizes are symbols."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.base.element_types import ELEMENT_TYPES
from workbench.errors import ArgumentError
from workbench.proof.terms import Term

ALIGNMENT = 16
"""Bytes at a multiple of which a tensor begins, unless a launch shows that it does not."""


def bytes_of(where: str, dtype: str) -> int:
    """Return the bytes of an element. Raises ArgumentError for a name that is not a dtype."""
    if dtype not in ELEMENT_TYPES:
        raise ArgumentError(where, repr(dtype), ", ".join(ELEMENT_TYPES), 'Write a dtype: "float32[rows, cols]".')
    return ELEMENT_TYPES[dtype].bytes


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of a launch: its shape as terms, its dtype, and the bytes of an element.

    It begins at a multiple of ``align`` bytes.
    """

    name: str
    dtype: str
    shape: tuple[Term, ...]
    element: int
    align: int = ALIGNMENT

    @property
    def is_whole(self) -> bool:
        """True for a tensor of whole numbers."""
        return self.dtype.startswith(("int", "uint", "bool"))

    @property
    def count(self) -> Term:
        """Number of elements."""
        total = Term({(): 1})
        for size in self.shape:
            total = total * size
        return total
