"""One cell without a GPU: a time predicted from what the PTX machine counts on a scaled-down copy of it.

A kernel here does the same work for every sequence and KV head, and its work grows linearly with the tokens (with the
partitions, where it splits the sequence). So two runs are enough: one sequence, one KV head with its query heads, at
two contexts, in the configuration that the full cell would have. The line through the two gives every count at the full
context, times sequences and KV heads; :mod:`workbench.tuning.predict` turns the counts into a time for a device model.
Both runs are checked against float64, like a measurement.

What this cannot know: how close to its published bandwidth the memory gets; clocks under load; what ptxas makes of the
code for the GPU's own architecture (the machine runs that for sm_80, or sm_89 for fp8); the order in which blocks
finish; and nothing at all of the peers, whose kernels are not PTX that it runs. It ranks, and it says what binds; a
share of the published bandwidth near 100 % only says that nothing else was found to bind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.bench.attention.cells import Cell
from workbench.bench.attention.contender import Contender, Ours
from workbench.bench.attention.inputs import Inputs
from workbench.bench.attention.ledger import TIME_IS_UP, Row
from workbench.errors import ConfigurationError, WrongResultError
from workbench.ptx.joined import joined
from workbench.tuning.chain import Chain
from workbench.tuning.device_models import DeviceModel
from workbench.tuning.predict import Prediction, counts_of, predict_counts

_SHORT = 512
"""Tokens of the shorter run, at least if the full cell has them: what precedes and follows a loop weighs less then."""

_NOT_COUNTS = ("block_threads", "registers", "shared_bytes", "spill_bytes")
"""What `launch_counts` holds that is the same however much there is to do."""


@dataclass
class Predictor:
    """Predicts cells for one device model; what was counted once serves every cell that shares it."""

    model: DeviceModel
    device: Any
    """The simulator."""
    counted: dict[tuple, list[tuple[int, Mapping]]] = field(default_factory=dict)
    """What a scaled-down run depends on -> (tokens, counts) of the two runs."""
    now: Callable[[], float] = time.monotonic
    deadline: float = math.inf

    def __call__(self, cell: Cell, contenders: Sequence[Contender]) -> list[Row]:
        """One row per contender, in their order."""
        return [self._row(cell, one) for one in contenders]

    def _row(self, cell: Cell, one: Contender) -> Row:
        row = Row(cell, one.name, one.is_ours, "blank", minimum_bytes=cell.minimum_bytes)
        if not isinstance(one, Ours):
            return replace(row, note="a peer: nothing of it runs without a GPU")
        reason = one.refuses(cell, self.model.arch)
        if reason or self.now() >= self.deadline:
            return replace(row, note=reason or TIME_IS_UP)
        try:
            config = one.config(cell, self.model.arch, self.model.key)
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

    def predict(self, cell: Cell, one: Ours, config: Mapping[str, Any]) -> Prediction:
        """The predicted time of a variant in a configuration.

        Raises:
            WrongResultError: a scaled-down run missed its error bound.
        """
        return predict_counts(self.counts(cell, one, config), self.model)

    def counts(self, cell: Cell, one: Ours, config: Mapping[str, Any]) -> Mapping:
        """What `predict_counts` needs of the full cell."""
        # Within one partition its work grows with the tokens, beyond it with the partitions.
        partition = config.get("PARTITION_SIZE", cell.context)
        whole = partition * max(1, _SHORT // partition)
        shorter = whole if partition < cell.context else min(_SHORT, cell.context // 2)
        key = (one.name, tuple(config.items()), shorter, cell.group, cell.head_size, cell.cache)
        if key not in self.counted:
            small = replace(cell, num_heads=cell.group, num_kv_heads=1, num_seqs=1)
            self.counted[key] = [
                (tokens, self._count(replace(small, context=tokens), one, config)) for tokens in (shorter, 2 * shorter)
            ]
        return extrapolated(self.counted[key], cell.context, cell.num_seqs * cell.num_kv_heads)

    def _count(self, cell: Cell, one: Ours, config: Mapping[str, Any]) -> Mapping:
        """Run a small cell in the machine, check it and count."""
        arch = "sm_89" if cell.cache == "fp8" else self.device.arch
        problem, inputs = cell.problem(one.form, arch), Inputs.draw(cell, "cpu")
        tensors = inputs.tensors(one.form)
        kernels = one.variant.kernels(config, problem, arch)
        reports = [
            self.device.launch(kernel, launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes,
                               statistics=True)
            for kernel, launch in zip(kernels, one.variant.launches(config, problem, tensors), strict=True)
        ]  # fmt: skip
        check = inputs.check(tensors.out)
        if not check.ok:
            raise WrongResultError(f"{one.name} on {cell.label}: {check}")
        return counts_of(reports[0] if len(reports) == 1 else joined(reports), kernels)


def extrapolated(runs: Sequence[tuple[int, Mapping]], tokens: int, copies: int) -> dict:
    """Counts at ``tokens`` on the line through two runs ``(tokens, counts)``, for ``copies`` of what they computed."""
    (short, at_short), (long, at_long) = runs
    share = (tokens - short) / (long - short)

    def line(low: float, high: float) -> float:
        return copies * max(0.0, low + (high - low) * share)

    def of(low: Mapping, high: Mapping) -> dict:
        found: dict[str, Any] = {}
        for name, value in low.items():
            if name in _NOT_COUNTS:
                found[name] = value
            elif name == "parts":
                found[name] = [of(*pair) for pair in zip(value, high[name], strict=True)]
            elif name == "mix":
                kinds = {**value, **high[name]}
                found[name] = {kind: line(value.get(kind, 0), high[name].get(kind, 0)) for kind in kinds}
            elif name != "chain":
                found[name] = line(value, high[name])
        # A chain is an average over warps: what grows along the line is its sum.
        warps = [-(-counts["block_threads"] // 32) * counts["grid_blocks"] for counts in (low, high)]
        total = line(*warps)
        chains = [counts["chain"] for counts in (low, high)]
        found["chain"] = Chain(
            *(line(chains[0][name] * warps[0], chains[1][name] * warps[1]) / total for name in chains[0])
        ).to_dict()
        found["grid_blocks"] = max(1, round(found["grid_blocks"]))
        return found

    return of(at_short, at_long)
