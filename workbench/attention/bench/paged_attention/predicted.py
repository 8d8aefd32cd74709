"""Prediction of one cell without a GPU, from counts of the PTX machine for a part of it.

A kernel here does the same work for every sequence and KV head. So the machine runs one sequence with one KV head and
its query heads, in the configuration of the full cell, and `workbench.analysis.prediction.counting.launch_counts` takes
the cell as copies of it; `workbench.analysis.prediction.predict` converts the counts to a time for a device model. All
runs are checked against float64, like a measurement.

A prediction ranks variants and names what binds them. It does not model:

* how close to its published bandwidth the memory gets, and clocks under load;
* the machine code that ptxas makes for the GPU's own architecture (the machine runs the PTX for sm_80, for sm_89 with
  fp8, and for sm_90 where the variant needs it);
* the order in which blocks finish, and the wait for the last one, which combines the partitions of a sequence: only a
  block's own share of that is counted;
* peers, whose kernels are not PTX that the machine runs.

A fraction of the published bandwidth near 100 % only means that no other limit was found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel
from workbench.analysis.prediction import Prediction, launch_counts, predict_counts
from workbench.attention.bench.paged_attention.cells import BenchmarkCell
from workbench.attention.bench.paged_attention.contender import Contender, Ours
from workbench.attention.bench.paged_attention.inputs import BenchmarkInputs
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP, LedgerRow
from workbench.errors import ConfigurationError, WrongResultError

if TYPE_CHECKING:
    from workbench.analysis.prediction import Counts
    from workbench.ptx import LaunchReport
    from workbench.toolchain import CompiledKernel

    Launched = tuple[CompiledKernel, LaunchReport]


@dataclass
class Predictor:
    """Prediction of cells for one device model; a run is kept for all cells that are copies of it."""

    model: DeviceModel
    device: Any
    """The simulator."""
    ran: dict[tuple, list[Launched]] = field(default_factory=dict)
    """Kernels and reports of one sequence with one KV head, by what they depend on."""
    now: Callable[[], float] = time.monotonic
    deadline: float = math.inf

    def __call__(self, cell: BenchmarkCell, contenders: Sequence[Contender]) -> list[LedgerRow]:
        """Predict a cell and return one row per contender, in their order."""
        return [self._row(cell, one) for one in contenders]

    def _row(self, cell: BenchmarkCell, one: Contender) -> LedgerRow:
        row = LedgerRow(cell, one.name, one.is_ours, "blank", minimum_bytes=cell.minimum_bytes)
        if not isinstance(one, Ours):
            return replace(row, note="a peer: it does not run without a GPU")
        reason = one.refuses(cell, self.model.arch)
        if reason or self.now() >= self.deadline:
            return replace(row, note=reason or TIME_IS_UP)
        try:
            config = one.config(cell, self.model.arch, self.model.key, int(self.model.multiprocessors))
            row = replace(row, config=config)
            prediction = self.predict(cell, one, config)
        except ConfigurationError as error:
            return replace(row, note=str(error))
        except WrongResultError as error:
            return replace(row, outcome="wrong", note=str(error))
        except Exception as error:
            return replace(row, outcome="failed", note=f"{type(error).__name__}: {error}".splitlines()[0])
        if math.isinf(prediction.seconds):
            return replace(row, note=f"not one block fits on a multiprocessor of {self.model}")
        return replace(row, outcome="predicted", seconds=prediction.seconds, prediction=prediction.to_dict())

    def predict(self, cell: BenchmarkCell, one: Ours, config: Mapping[str, Any]) -> Prediction:
        """Predict the time of a variant in a configuration.

        Raises:
            WrongResultError: if the run missed its error bound.
        """
        return predict_counts(self.counts(cell, one, config), self.model)

    def counts(self, cell: BenchmarkCell, one: Ours, config: Mapping[str, Any]) -> Counts:
        """Return the counts of the full cell for `predict_counts`."""
        key = (one.name, tuple(config.items()), cell.context, cell.group, cell.head_size, cell.cache)
        if key not in self.ran:
            part = replace(cell, num_heads=cell.group, num_kv_heads=1, num_seqs=1)
            self.ran[key] = self.run(part, one, config)
        copies = cell.num_seqs * cell.num_kv_heads
        launches = [launch_counts(report, kernel, copies=copies) for kernel, report in self.ran[key]]
        return {"parts": launches} if len(launches) > 1 else launches[0]

    def run(self, cell: BenchmarkCell, one: Ours, config: Mapping[str, Any]) -> list[Launched]:
        """Run a cell in the machine, check it, and return each of its kernels with what it did."""
        arch = one.variant.machine_arch(cell.problem(one.form, self.device.arch))
        if cell.cache == "fp8":
            arch = max(arch, "sm_89")  # the first architecture with instructions that convert fp8
        problem, inputs = cell.problem(one.form, arch), BenchmarkInputs.draw(cell, "cpu")
        tensors = inputs.tensors(one.form)
        kernels = one.variant.kernels(config, problem, arch)
        found = []
        for kernel, launch in zip(kernels, one.variant.launches(config, problem, tensors, kernels), strict=True):
            report = self.device.launch(
                kernel, launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, statistics=True
            )
            found.append((kernel, report))
        check = inputs.check(tensors.out)
        if not check.ok:
            raise WrongResultError(f"{one.name} on {cell.label}: {check}")
        return found
