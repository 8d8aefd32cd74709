"""``workbench bench my_ops.py:NAME``: an op's kernels beside torch and beside ``torch.compile`` of the reference.

Each variant is checked first; a wrong one gets no time. On a GPU times are measured with CUDA events, the L2 cache
flushed between runs. Elsewhere those of kernels are predicted from the simulator's counts, and torch has none. A kernel
runs with its tuned configuration for the case, or with its default one if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.base.documents import document
from workbench.base.progress import tracked
from workbench.base.tables import Table
from workbench.base.trials.trial import Trial
from workbench.comparison.configured import Try, able_variants, attempt
from workbench.launch import devices
from workbench.ops import registry
from workbench.ops.op import Op
from workbench.ops.variant import Case, Variant

if TYPE_CHECKING:
    from workbench.launch.devices import Device

COMPILED = "torch.compile"
"""Name of the row of the reference compiled by torch, which needs a GPU."""


@dataclass(frozen=True)
class OpBenchmarkRow:
    """Result of one variant on one case; ``tuned`` says where its configuration comes from."""

    case: str
    trial: Trial
    minimum_bytes: int
    tuned: str

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes that must cross memory once, divided by the time; None without a time."""
        return self.minimum_bytes / self.trial.seconds if self.trial.seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, times in microseconds."""
        trial = self.trial
        return {
            "case": self.case,
            "variant": trial.variant,
            "config": dict(trial.config),
            "configuration_is": self.tuned,
            "outcome": trial.outcome,
            "message": trial.message,
            "us": trial.seconds and trial.seconds * 1e6,
            "time_is": trial.basis or None,
            "gigabytes_per_second": self.bytes_per_second and self.bytes_per_second / 1e9,
            "minimum_bytes": self.minimum_bytes,
        }


@dataclass(frozen=True)
class OpBenchmark:
    """Results of all variants and cases; ``str()`` is a table by case."""

    op: str
    times: str
    rows: tuple[OpBenchmarkRow, ...]

    @property
    def all_correct(self) -> bool:
        """True if every variant that ran met its error bound."""
        return all(row.trial.ok for row in self.rows)

    def to_json(self) -> str:
        """Return the rows as JSON; see `workbench.base.documents`."""
        rows = [row.to_dict() for row in self.rows]
        return document("bench-op", op=self.op, times=self.times, all_correct=self.all_correct, rows=rows)

    def __str__(self) -> str:
        rows = [
            (row.case, row.trial.variant, row.tuned and f"{row.trial.config_text} ({row.tuned})", *self._figures(row))
            for row in self.rows
        ]
        heads = ("case", "variant", "configuration", "µs", "GB/s", "to torch")
        return Table(heads, rows, "lllrrr", title=f"{self.op}, {self.times}").text(140)

    def _figures(self, row: OpBenchmarkRow) -> tuple[str, str, str]:
        if not row.trial.ok:
            return row.trial.outcome, "–", "–"
        if row.trial.seconds is None or row.bytes_per_second is None:
            return "–", "–", "–"
        torch_row = next(one for one in self.rows if one.case == row.case)
        ratio = f"{torch_row.trial.seconds / row.trial.seconds:.2f}x" if torch_row.trial.seconds else "–"
        return f"{row.trial.seconds * 1e6:,.2f}", f"{row.bytes_per_second / 1e9:,.0f}", ratio


def run(
    op: str | Op,
    cases: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    device: str = "auto",
    *,
    model: str | DeviceModel | None = None,
) -> OpBenchmark:
    """Check and time the variants of an op on each of its cases.

    Args:
        op: name or value; one of your own also gets the row `COMPILED`, if there is a GPU.
        cases: names; default every case of a declared op, the quick one of a built-in op.
        variants: names; default every variant that reads the case.
        device: "auto", "sim" or "cuda".
        model: on the simulator, the GPU to predict for; default an A100.

    Raises:
        UnknownNameError: an op, case or variant that does not exist.
        DeviceUnavailableError: the device was asked for by name and cannot run here.
    """
    found, where, model = registry.get(op), devices.get(device), device_model(model)
    judged = [found.case(name) for name in cases or found.judged_cases or [found.quick_case.name]]
    rows = []
    tries = [(variant, case) for case in judged for variant in contenders(found, variants, [case], where)]
    for variant, case in tracked(tries, " runs", name=lambda run: f"{run[0].name} on {run[1].name}"):
        one = attempt(found, Try(case, variant, None, model), where, tuned=True)
        rows.append(OpBenchmarkRow(case.label, one.trial, one.minimum_bytes, one.origin))
    times = f"predicted for {model}" if where.counts else f"measured on {where.description}"
    return OpBenchmark(found.name, times, tuple(rows))


def contenders(op: Op, variants: Iterable[str] | None, cases: Sequence[Case], where: Device) -> list[Variant]:
    """Return the variants that read one or more of the cases, all or those of these names; on a GPU also `COMPILED`."""
    if variants is not None:
        return able_variants([op.variant(name) for name in variants], cases, where)
    able = able_variants(op.variants, cases, where)
    if not where.counts and (compiled := op.compiled_by_torch(COMPILED)) is not None:
        able.insert(1, compiled)
    return able
