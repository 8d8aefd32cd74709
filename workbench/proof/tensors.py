"""Tensors of a launch whose sizes are symbols."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.proof.terms import Term


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
