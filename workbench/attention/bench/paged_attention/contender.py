"""What takes part in the benchmark: the contract, and the variants of ours under it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from workbench.analysis.device_models import placed
from workbench.attention.bench.paged_attention.cells import Cell
from workbench.attention.bench.paged_attention.inputs import Inputs
from workbench.attention.ops.paged_attention import OP
from workbench.errors import WorkbenchError
from workbench.ops.tuned import lookup
from workbench.ops.variant import Variant

_NEAR = 1.0
"""Tuned entries of sizes further away (1 is a factor of two in one size) say little about how to split a sequence."""


@dataclass
class Prepared:
    """One way, ready for one cell. ``run`` computes the output anew; ``out`` is what the last run left, after one."""

    compute: Callable[[], torch.Tensor]
    """() -> ``[num_seqs, num_heads, head_size]``, up to dimensions of size 1."""
    config: Mapping[str, Any] = field(default_factory=dict)
    factor: float = 1.0
    """What the output has still to be multiplied by. It is not timed: a model has this factor in the weights that it
    multiplies the output with."""
    out: torch.Tensor = field(init=False)

    def run(self) -> None:
        """Compute the output anew, into ``out``."""
        self.out = self.compute()

    @property
    def result(self) -> torch.Tensor:
        """The output of the last run with its factor."""
        return self.out if self.factor == 1.0 else self.out.float() * self.factor


class Way(Protocol):
    """One way to compute a cell: a kernel, a layout of the pages, a choice of sizes."""

    @property
    def label(self) -> str:
        """Its name among the contender's ways; empty if there is no other."""
        ...

    @property
    def form(self) -> str:
        """The form of the cache that it reads (see `Inputs.caches`); any but "nhd" is a copy that must fit."""
        ...

    def refuses(self, cell: Cell, arch: str) -> str:
        """Why it cannot compute this cell; empty if it can."""
        ...

    def code(self, cell: Cell) -> Hashable:
        """What it compiles for a cell: ways of a contender with equal code share it."""
        ...

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        """Compile and allocate what is needed; ``device`` is the workbench's device, "cuda" or "sim"."""
        ...


class Contender(Protocol):
    """One who takes part; the fastest of its ways that is right counts."""

    @property
    def name(self) -> str:
        """What its rows are called."""
        ...

    @property
    def about(self) -> str:
        """What exactly is timed, in a few words."""
        ...

    @property
    def is_ours(self) -> bool:
        """Whether it is a variant of the workbench."""
        ...

    @property
    def tunes(self) -> bool:
        """Whether its ways differ in sizes only, so that all but the best so far can be left out when time is short."""
        ...

    @property
    def missing(self) -> str:
        """Why it cannot run on this machine at all; empty if it can."""
        ...

    def ways(self, cell: Cell) -> Sequence[Way]:
        """Its ways for a cell, the most promising first; at least one."""
        ...


@dataclass(frozen=True)
class Ours(Contender, Way):
    """A variant of the op, with its tuned configuration for this GPU where there is one, else its default."""

    variant: Variant
    is_ours = True
    tunes = False
    missing = ""
    label = ""

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def about(self) -> str:
        return self.variant.idea

    @property
    def form(self) -> str:
        return "nhd" if "nhd" in self.variant.layouts else self.variant.layouts[0]

    def ways(self, cell: Cell) -> Sequence[Way]:
        return (self,)

    def refuses(self, cell: Cell, arch: str) -> str:
        return "; ".join(rule.rule for rule in self.variant.unsupported(cell.problem(self.form, arch)))

    def code(self, cell: Cell) -> Hashable:
        return cell.num_heads, cell.num_kv_heads, cell.cache

    def config(self, cell: Cell, arch: str, table: str, multiprocessors: int | None = None) -> dict[str, Any]:
        """What the tuned table of that name has for a cell of about this size, else the untuned rule."""
        problem = replace(cell.problem(self.form, arch), multiprocessors=multiprocessors)
        found = lookup(OP, self.variant, problem, table)
        if found is not None and found.entry is not None and found.distance <= _NEAR:
            return dict(found.config)
        return self.variant.default_config(problem)

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        """Raises ConfigurationError where not even the default configuration is legal."""
        problem = inputs.cell.problem(self.form, device.arch)
        config = self.config(inputs.cell, device.arch, device.name, placed(problem, device).multiprocessors)
        self.variant.check(config, problem)
        tensors = inputs.tensors(self.form)

        def compute() -> torch.Tensor:
            self.variant.run(config, problem, tensors, device)
            return tensors.out

        return Prepared(compute, config)


def ours() -> tuple[Ours, ...]:
    """Every variant that has a kernel. The torch variant gathers in float32; the peers have a faster form of it."""
    return tuple(Ours(variant) for variant in OP.variants if variant.compiles)


class DeviceLostError(WorkbenchError):
    """A contender left the GPU's context unusable: nothing more can be measured in this process. ``rows``: its cell."""

    def __init__(self, contender: str, rows: tuple):
        self.rows = rows
        super().__init__(
            f"the CUDA context was lost while measuring {contender}. What was found is kept, and its row says so; "
            "start the same command with the same --out again to go on with the others."
        )
