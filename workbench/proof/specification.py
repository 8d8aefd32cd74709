"""The launch that a proof is about: block, grid as terms, and each parameter's argument with its facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workbench.proof.conditions import Predicate
from workbench.proof.facts import DataFact
from workbench.proof.maps import TensorMapArgument
from workbench.proof.tensors import TensorArgument
from workbench.proof.terms import Arena, Term


@dataclass
class Specification:
    """A family of launches.

    ``arguments`` has the value of each parameter of the PTX: the address of a tensor, a number as a term, or None for
    any value; of a tensor map the address of the parameter. ``tensors`` and ``maps`` are known by the name of their
    address. ``facts`` hold for the sizes, in words in
    ``stated``; ``data`` for elements. ``sizes`` are the symbols. ``shared_bytes`` is dynamic shared memory.
    ``launches`` are the grid and the block in words, ``stand_ins`` values for a run of parameters without a term.
    ``repeats`` is True for Triton's kernels, in which threads that hold the same element store it to shared memory, all
    with one instruction.
    """

    arena: Arena
    block: tuple[int, int, int]
    grid: tuple[Term, Term, Term]
    arguments: tuple[Term | None, ...]
    tensors: dict[str, TensorArgument]
    shared_bytes: Term
    sizes: dict[str, Term]
    facts: list[Predicate] = field(default_factory=list)
    stated: list[str] = field(default_factory=list)
    data: dict[str, DataFact] = field(default_factory=dict)
    launches: str = ""
    repeats: bool = False
    maps: dict[str, TensorMapArgument] = field(default_factory=dict)
    stand_ins: tuple[Any, ...] = ()

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z
