"""Predicted times of ``cuda_wgmma`` beside published ones of FlashAttention-3: ``workbench bench flash-attention``.

For each shape, the PTX machine runs and records the middle block of a few parts of the grid; the time of the launch is
computed from theirs (:mod:`workbench.analysis.prediction.block_time`). The tensors are zeros, because the time of a
block does not depend on their values. Attention that is not causal is replaced by causal attention with the same work,
in which the queries of each block are the last tokens of a sequence and a head of their own.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.analysis.prediction import Prediction, counts_of, predict_counts
from workbench.attention.ops.causal_attention import CausalAttentionTensors
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT
from workbench.attention.ops.causal_attention.problem import CausalAttentionProblem
from workbench.errors import ArgumentError
from workbench.launch import devices
from workbench.ops import RECORDED_PARTS, cdiv
from workbench.ptx import middles_of, parts_of
from workbench.tuning import spearman
from workbench.tuning.bench import Benchmark

COLUMNS = ("batch", "seqlen", "heads", "head_size", "causal", "measured_us")
ARCH = "sm_90"


@dataclass(frozen=True)
class FlashAttentionShape:
    """Shape of an attention problem with its measured time in microseconds; ``causal`` is 1 or 0."""

    batch: int
    seqlen: int
    heads: int
    head_size: int
    causal: int
    measured_us: float

    @property
    def usable(self) -> bool:
        """True if all sizes are positive, ``causal`` is 0 or 1, and the time is positive and finite."""
        sizes = self.batch, self.seqlen, self.heads, self.head_size
        return min(sizes) > 0 and self.causal in (0, 1) and 0 < self.measured_us < math.inf

    def __str__(self) -> str:
        return f"{self.batch} x {self.seqlen}, {self.heads} heads of {self.head_size}{', causal' * self.causal}"


@dataclass(frozen=True)
class FlashAttentionRow:
    """A shape and the prediction for it."""

    shape: FlashAttentionShape
    prediction: Prediction

    @property
    def predicted_us(self) -> float:
        """Predicted time in microseconds."""
        return self.prediction.seconds * 1e6

    @property
    def ratio(self) -> float:
        """Predicted time divided by measured time."""
        return self.predicted_us / self.shape.measured_us


@dataclass(frozen=True)
class FlashAttentionBenchmark(Benchmark):
    """Predictions for ``model`` beside times from a file, measured elsewhere."""

    kind = "bench-flash-attention"

    source: str
    model: DeviceModel
    rows: tuple[FlashAttentionRow, ...]

    @property
    def spearman(self) -> float:
        """Spearman rank correlation of predicted and measured times."""
        times = [(row.predicted_us, row.shape.measured_us) for row in self.rows]
        return spearman(*np.array(times).T)

    @property
    def ratios(self) -> tuple[float, float]:
        """Smallest and largest ratio of predicted to measured time."""
        found = [row.ratio for row in self.rows]
        return min(found), max(found)

    def record(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        rows = [
            asdict(row.shape) | {"predicted_us": row.predicted_us, "bound_by": row.prediction.bound_by}
            for row in self.rows
        ]
        about = {"source": self.source, "model": self.model.key, "clock_hz": self.model.clock_hz, "rows": rows}
        return about | {"spearman": self.spearman, "ratios": self.ratios}

    def __str__(self) -> str:
        head = (
            f"cuda_wgmma predicted for {self.model.name} at {self.model.clock_hz / 1e6:,.0f} MHz, "
            f"beside times measured elsewhere ({self.source})"
        )
        lines = [head, f"  {'':36}{'measured':>11}{'predicted':>11}{'ratio':>7}  bound by"]
        for row in self.rows:
            times = f"{row.shape.measured_us:>8,.0f} µs{row.predicted_us:>8,.0f} µs{row.ratio:>7.2f}"
            lines.append(f"  {row.shape!s:36}{times}  {row.prediction.bound_by}")
        low, high = self.ratios
        lines.append(f"  rank correlation {self.spearman:.3f}, ratios {low:.2f} to {high:.2f}")
        return "\n".join(lines)


def shapes_of(path: str | Path) -> tuple[str, list[FlashAttentionShape]]:
    """Read the description and the shapes of a file: lines ``# ...``, then CSV with the columns `COLUMNS`.

    Raises:
        ArgumentError: if the file cannot be read, a column is missing, or a row is invalid.
    """
    path = Path(path)
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("measured", str(path), "a CSV file", f"It cannot be read: {error}.") from error
    notes = [line.lstrip("# ") for line in lines if line.startswith("#")]
    table = csv.DictReader(line for line in lines if line.strip() and not line.startswith("#"))
    if set(COLUMNS) - set(table.fieldnames or ()):
        raise ArgumentError(
            "measured", f"columns {', '.join(table.fieldnames or ('none',))}", ", ".join(COLUMNS), "Name the columns."
        )
    shapes = []
    for number, row in enumerate(table, 1):
        try:
            numbers = {name: int(row[name]) for name in COLUMNS[:-1]}
            shape = FlashAttentionShape(**numbers, measured_us=float(row["measured_us"]))
        except (TypeError, ValueError):
            shape = None
        if shape is None or not shape.usable:
            remedy = "All are whole numbers except measured_us; causal is 0 or 1."
            raise ArgumentError(f"measured, row {number}", dict(row), "numbers above 0", remedy)
        shapes.append(shape)
    if not shapes:
        raise ArgumentError("measured", "no rows", "one or more", "Add a row for each shape.")
    return " ".join(notes) or path.name, shapes


def problem_of(shape: FlashAttentionShape) -> CausalAttentionProblem:
    """Return the problem of a shape; one that is not causal becomes a causal problem with the same work.

    That problem has a head for each block of queries.
    """
    causal = CausalAttentionProblem(
        num_seqs=shape.batch, num_heads=shape.heads, num_kv_heads=shape.heads, num_queries=shape.seqlen,
        num_tokens=shape.seqlen, head_size=shape.head_size, dtype="float16", arch=ARCH,
    )  # fmt: skip
    if shape.causal:
        return causal
    block = min(VARIANT.default_config(causal)["BLOCK_M"], shape.seqlen)
    return replace(causal, num_heads=shape.heads * cdiv(shape.seqlen, block), num_queries=block)


def predicted(shape: FlashAttentionShape, model: DeviceModel) -> Prediction:
    """Predict the time of ``cuda_wgmma`` on a shape in fp16."""
    problem = problem_of(shape)
    config = VARIANT.default_config(problem)
    kernel, sim = VARIANT.compile(config, problem, ARCH), devices.simulator(ARCH)
    heads = problem.num_heads, problem.num_kv_heads, problem.num_kv_heads
    rows = problem.num_queries, problem.num_tokens, problem.num_tokens
    query, key, value = (
        torch.zeros(problem.num_seqs, each, count, problem.head_size, dtype=torch.float16)
        for each, count in zip(heads, rows, strict=True)
    )
    tensors = CausalAttentionTensors(query, key, value, problem.head_size**-0.5, torch.zeros_like(query), None)
    grid = VARIANT.launch(config, problem, tensors).grid
    neighbours = [(0, y, 0) for y in range(min(2, grid[1]))]  # blocks of one KV head: all of them do the same work
    blocks = middles_of(grid, parts_of(grid, RECORDED_PARTS)) if shape.causal else neighbours
    report = VARIANT.run(config, problem, tensors, sim, sample=blocks, statistics=True)
    parts = RECORDED_PARTS if shape.causal else 1
    report = VARIANT.with_parts(report, config, problem, tensors, sim, parts=parts)
    return predict_counts(counts_of(report, [kernel], model), model)


def run(
    measured: str | Path | Sequence[FlashAttentionShape],
    *,
    source: str = "",
    model: str | DeviceModel | None = None,
    clock_mhz: float | None = None,
    progress: Callable[[FlashAttentionRow], None] | None = None,
) -> FlashAttentionBenchmark:
    """Predict each shape of a file of measured times.

    Args:
        measured: the file, see `shapes_of`, or its shapes.
        source: origin of the times; default the description in the file.
        model: the GPU; default an H100.
        clock_mhz: clock of the multiprocessors in MHz; default the model's.
        progress: function called with each row.

    Raises:
        ArgumentError: if the file cannot be used, the GPU has another architecture, or the clock is not above 0.
        UnknownNameError: if there is no such model.
    """
    said, shapes = shapes_of(measured) if isinstance(measured, str | Path) else ("", list(measured))
    found = device_model(model or "h100-sxm")
    if found.arch != ARCH:
        raise ArgumentError("model", f"{found.key} ({found.arch})", f"a GPU of {ARCH}", "Other GPUs have no wgmma.")
    if clock_mhz is not None:
        if not clock_mhz > 0:
            raise ArgumentError("clock_mhz", clock_mhz, "a number above 0", "Leave it out for the model's own.")
        found = replace(found, clock_hz=clock_mhz * 1e6)
    rows = []
    for shape in shapes:
        rows.append(FlashAttentionRow(shape, predicted(shape, found)))
        if progress:
            progress(rows[-1])
    return FlashAttentionBenchmark(source or said, found, tuple(rows))
