"""Terms for the indices of threads and blocks, and names of variables' addresses."""

from __future__ import annotations

from workbench.proof.specification import Specification
from workbench.proof.terms import BLOCK, THREAD, Term, term


def variable_base(name: str) -> str:
    """Return the name of a variable's address; tensors of the same name have another."""
    return f"%{name}"


def thread_index(specification: Specification, axis: int) -> Term:
    """Return the index of the thread in its block along an axis."""
    size = specification.block[axis]
    return specification.arena.atom("tid", f"threadIdx.{'xyz'[axis]}", (), 0, size - 1, THREAD) if size > 1 else term(0)


def flat_index(specification: Specification) -> Term:
    """Return the number of the thread in its block."""
    x, y, _ = specification.block
    places = [thread_index(specification, axis) for axis in range(3)]
    return places[0] + places[1] * x + places[2] * (x * y)


def block_index(specification: Specification, axis: int) -> Term:
    """Return the index of the block in the grid along an axis."""
    size = specification.grid[axis]
    if size.constant == 1:
        return term(0)
    return specification.arena.atom("ctaid", f"blockIdx.{'xyz'[axis]}", (), 0, size - 1, BLOCK)
