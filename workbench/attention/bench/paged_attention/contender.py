"""Contenders of the benchmark: their interface, and the op's own variants behind it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from workbench.analysis.device_models import placed
from workbench.attention.bench.paged_attention.cells import BenchmarkCell
from workbench.attention.bench.paged_attention.inputs import BenchmarkInputs
from workbench.attention.ops.paged_attention import OP
from workbench.errors import WorkbenchError
from workbench.ops import Variant, lookup

_NEAR = 1.0
"""Largest distance of a tuned entry that is used; 1 is a factor of two in one size.

Entries further away say little about how to split a sequence.
"""


@dataclass
class Prepared:
    """A way, ready to run one cell; ``out`` is the output of the last ``run``."""

    compute: Callable[[], torch.Tensor]
    """Function that returns the output ``[num_seqs, num_heads, head_size]``, up to dimensions of size 1."""
    config: Mapping[str, Any] = field(default_factory=dict)
    factor: float = 1.0
    """Factor that the output still lacks; not timed, because a model folds it into the weights that come next."""
    out: torch.Tensor = field(init=False)

    def run(self) -> None:
        """Compute the output and keep it in ``out``."""
        self.out = self.compute()

    @property
    def result(self) -> torch.Tensor:
        """Output of the last run, multiplied by ``factor``."""
        return self.out if self.factor == 1.0 else self.out.float() * self.factor


class Way(Protocol):
    """One way to compute a cell: a kernel, a layout of the pages, a choice of sizes."""

    @property
    def label(self) -> str:
        """Name among the contender's ways; empty if there is only one."""
        ...

    @property
    def form(self) -> str:
        """Form of the cache that it reads (see `Inputs.caches`); any but "nhd" is a copy that must fit in memory."""
        ...

    def refuses(self, cell: BenchmarkCell, arch: str) -> str:
        """Return the reason why it cannot compute a cell; empty if it can."""
        ...

    def code(self, cell: BenchmarkCell) -> Hashable:
        """Return a key of the code that it compiles for a cell; ways of a contender with equal keys share code."""
        ...

    def prepare(self, inputs: BenchmarkInputs, device: Any) -> Prepared:
        """Compile the code and allocate memory for a cell; ``device`` is the workbench's device, "cuda" or "sim"."""
        ...


class Contender(Protocol):
    """A participant of the benchmark; its result is that of its fastest correct way."""

    @property
    def name(self) -> str:
        """Name in the rows."""
        ...

    @property
    def about(self) -> str:
        """Short description of exactly what is timed."""
        ...

    @property
    def is_ours(self) -> bool:
        """True for a variant of the workbench."""
        ...

    @property
    def tunes(self) -> bool:
        """True if its ways differ in sizes only, so that only the best so far runs when time is short."""
        ...

    @property
    def missing(self) -> str:
        """Reason why it cannot run on this machine; empty if it can."""
        ...

    def ways(self, cell: BenchmarkCell) -> Sequence[Way]:
        """Return its ways for a cell, at least one, the most promising first."""
        ...


@dataclass(frozen=True)
class Ours(Contender, Way):
    """A variant of the op, with its tuned configuration for this GPU if there is one, else its default."""

    variant: Variant
    is_ours = True
    tunes = False
    missing = ""
    label = ""

    @property
    def name(self) -> str:
        """Name of the variant."""
        return self.variant.name

    @property
    def about(self) -> str:
        """Idea of the variant."""
        return self.variant.idea

    @property
    def form(self) -> str:
        """Layout that the variant reads: "nhd" if it can."""
        return "nhd" if "nhd" in self.variant.layouts else self.variant.layouts[0]

    def ways(self, cell: BenchmarkCell) -> Sequence[Way]:
        """Return the variant as the only way."""
        return (self,)

    def refuses(self, cell: BenchmarkCell, arch: str) -> str:
        """Return the variant's rules that the cell breaks; empty if it can compute the cell."""
        return "; ".join(rule.rule for rule in self.variant.unsupported(cell.problem(self.form, arch)))

    def code(self, cell: BenchmarkCell) -> Hashable:
        """Return a key of the code that it compiles for a cell."""
        return cell.num_heads, cell.num_kv_heads, cell.cache

    def config(self, cell: BenchmarkCell, arch: str, table: str, multiprocessors: int | None = None) -> dict[str, Any]:
        """Return the configuration that a tuned table has for a cell of about this size, else the default one."""
        problem = replace(cell.problem(self.form, arch), multiprocessors=multiprocessors)
        found = lookup(OP, self.variant, problem, table)
        if found is not None and found.entry is not None and found.distance <= _NEAR:
            return dict(found.config)
        return self.variant.default_config(problem)

    def prepare(self, inputs: BenchmarkInputs, device: Any) -> Prepared:
        """Return the variant, ready to run; ConfigurationError if not even the default configuration is legal."""
        problem = inputs.cell.problem(self.form, device.arch)
        config = self.config(inputs.cell, device.arch, device.name, placed(problem, device).multiprocessors)
        self.variant.check(config, problem)
        tensors = inputs.tensors(self.form)

        def compute() -> torch.Tensor:
            self.variant.run(config, problem, tensors, device)
            return tensors.out

        return Prepared(compute, config)


def ours() -> tuple[Ours, ...]:
    """Return every variant that has a kernel.

    The torch variant, which gathers in float32, is left out: the peers have a faster form of it.
    """
    return tuple(Ours(variant) for variant in OP.variants if variant.compiles and not variant.needs)


class GpuLostError(WorkbenchError):
    """A CUDA context that a contender left unusable, so that this process can measure no more; ``rows``: the cell's."""

    def __init__(self, contender: str, rows: tuple):
        self.rows = rows
        super().__init__(
            f"the CUDA context was lost while measuring {contender}. The results so far are kept, and its row has the "
            "error; run the same command with the same --out again to measure the others."
        )
