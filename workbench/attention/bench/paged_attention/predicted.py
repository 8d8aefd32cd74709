"""Prediction of one cell without a GPU, from counts of the PTX machine on a scaled-down copy of it.

A kernel here does the same work for every sequence and KV head, and its work grows linearly with the tokens (with the
partitions, where it splits the sequence). So two runs of a kernel are enough: one sequence, one KV head with its query
heads, at two contexts, in the configuration of the full cell. The line through the two gives every count at the full
context, multiplied by sequences and KV heads; `workbench.analysis.prediction.predict` converts the counts to a time for
a device model. All runs are checked against float64, like a measurement.

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
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel
from workbench.analysis.prediction.chain import Chain
from workbench.analysis.prediction.counting import launch_counts
from workbench.analysis.prediction.predict import Prediction, predict_counts
from workbench.attention.bench.paged_attention.cells import BenchmarkCell
from workbench.attention.bench.paged_attention.contender import Contender, Ours
from workbench.attention.bench.paged_attention.inputs import BenchmarkInputs
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP, LedgerRow
from workbench.errors import ConfigurationError, WrongResultError

if TYPE_CHECKING:
    from workbench.base.trials.values import Counts

_SHORT = 512
"""Least number of tokens of the shorter run, if the full cell has them; fewer would overweight code outside loops."""

_NOT_COUNTS = ("block_threads", "registers", "shared_bytes", "spill_bytes", "stack_bytes")
"""Entries of `launch_counts` that do not grow with the work."""


@dataclass
class Predictor:
    """Prediction of cells for one device model; counts are kept for all cells that share them."""

    model: DeviceModel
    device: Any
    """The simulator."""
    counted: dict[tuple, list[list[Counts]]] = field(default_factory=dict)
    """Counts of the two scaled-down runs, one per kernel, by what these runs depend on."""
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
            WrongResultError: if a scaled-down run missed its error bound.
        """
        return predict_counts(self.counts(cell, one, config), self.model)

    def counts(self, cell: BenchmarkCell, one: Ours, config: Mapping[str, Any]) -> Counts:
        """Return the counts of the full cell for `predict_counts`."""
        partition = config.get("PARTITION_SIZE", cell.context)
        if partition >= cell.context:
            shorter = min(_SHORT, cell.context // 2)  # within one partition the work grows with the tokens
        else:  # with several it grows with the partitions, and at least two are needed, so that they are combined
            shorter = partition * max(2, _SHORT // partition)
        launches = self._line(cell, one, config, shorter, cell.context)
        return {"parts": launches} if len(launches) > 1 else launches[0]

    def _line(
        self, cell: BenchmarkCell, one: Ours, config: Mapping[str, Any], shorter: int, tokens: int
    ) -> list[Counts]:
        """Return each kernel's counts for a context of ``tokens``, from runs at ``shorter`` and twice that."""
        key = (one.name, tuple(config.items()), shorter, cell.group, cell.head_size, cell.cache)
        if key not in self.counted:
            small = replace(cell, num_heads=cell.group, num_kv_heads=1, num_seqs=1)
            self.counted[key] = [self._count(replace(small, context=n), one, config) for n in (shorter, 2 * shorter)]
        share, copies = tokens / shorter - 1, cell.num_seqs * cell.num_kv_heads
        return [extrapolated(short, long, share, copies) for short, long in zip(*self.counted[key], strict=True)]

    def _count(self, cell: BenchmarkCell, one: Ours, config: Mapping[str, Any]) -> list[Counts]:
        """Run a small cell in the machine, check it, and count each of its kernels."""
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
            found.append(launch_counts(report, kernel))
        check = inputs.check(tensors.out)
        if not check.ok:
            raise WrongResultError(f"{one.name} on {cell.label}: {check}")
        return found


def extrapolated(short: Counts, long: Counts, share: float, copies: int) -> Counts:
    """Extrapolate one kernel's counts along the line through those of two runs, times ``copies``.

    ``share`` is the place on the line: 0 is the first run, 1 the second, more is beyond it.
    """

    def line(low: Any, high: Any) -> Any:
        if isinstance(low, Mapping):
            return {name: line(low.get(name, 0), high.get(name, 0)) for name in {**low, **high}}
        if isinstance(low, list):
            return [line(*pair) for pair in zip_longest(low, high, fillvalue=0)]
        return copies * max(0.0, low + (high - low) * share)

    warps = [-(-counts["block_threads"] // 32) * counts["grid_blocks"] for counts in (short, long)]
    total = line(*warps)

    def mean(low: Any, high: Any) -> Any:
        """Extrapolate an average over warps, by its sum, which grows along the line."""
        if isinstance(low, Mapping):
            return {name: mean(low[name], high[name]) for name in low}
        return line(low * warps[0], high * warps[1]) / total

    others: Mapping[str, Any] = long
    found: Any = {name: value if name in _NOT_COUNTS else line(value, others[name]) for name, value in short.items()}
    found["chain"] = Chain(**mean(short["chain"], long["chain"])).to_dict()
    if "machine" in found:
        found["machine"] |= {
            "clocks": mean(short["machine"]["clocks"], long["machine"]["clocks"]),
            "waits": mean(short["machine"]["waits"], long["machine"]["waits"]),
        }
    found["grid_blocks"] = max(1, round(found["grid_blocks"]))
    return found
