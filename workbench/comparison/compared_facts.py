"""Facts of compared trials as text: a column for each variant, or a row for each architecture; and their document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.base.documents import document, origin
from workbench.base.trials.trial import Trial
from workbench.ops.variant import MACHINE_ARCHS
from workbench.ptx.sample import Sampled

_NONE = "–"
ARCH_COLUMNS = (
    "variant", "architecture", "correct", "registers", "shared memory", "occupancy", "warp instructions", "time",
    "on", "bound by",
)  # fmt: skip
"""Columns of a table with a row for each variant and architecture."""


def arch_row(trial: Trial) -> tuple[str, ...]:
    """Return the cells of a trial in a table of `ARCH_COLUMNS`."""
    resources, counts = trial.resources, trial.counts
    held = resources.get("occupancy")
    return (
        trial.variant,
        trial.arch,
        "yes" if trial.ok else f"NO ({trial.outcome})",
        _text(resources.get("registers"), "{:,}") or _NONE,
        _text(resources.get("shared_bytes"), "{:,}") or _NONE,
        _text(held, "{:.0%}") or _NONE,
        _text(counts.get("warp_instructions"), "{:,}") or _NONE,
        _NONE if trial.seconds is None else f"{1e6 * trial.seconds:.2f} µs",
        trial.predicted_for or _NONE,
        trial.prediction.get("bound_by", _NONE),
    )


def unique_bytes(trial: Trial) -> int | None:
    """Return the bytes of distinct sectors that a trial read and wrote; None without counts."""
    return trial.counts["unique_bytes_read"] + trial.counts["unique_bytes_written"] if trial.counts else None


def remarks_of(trial: Trial) -> list[str]:
    """Return what ptxas says about the code of a trial's kernels."""
    return trial.resources.get("remarks", [])


def facts_of(trial: Trial, least: int, origin: str) -> dict[str, str | None]:
    """Return the text of each fact, in the order of the table; None for a fact that the trial does not have."""
    counts, resources, memory = trial.counts, trial.resources, trial.memory
    held = resources.get("occupancy")
    wavefronts = f"{memory.shared_wavefronts:,}, ideal {memory.shared_ideal_wavefronts:,}"
    return {
        "language": trial.language,
        "configuration": trial.config_text if trial.config else None,
        "configuration is": origin,
        "compiled for": trial.arch if trial.device == "sim" and trial.arch != MACHINE_ARCHS[0] else None,
        "correct": _verdict(trial),
        "registers per thread": _text(resources.get("registers"), "{:,}"),
        "spilled": _text(resources.get("spill_bytes"), "{:,} bytes"),
        "shared memory per block": _text(resources.get("shared_bytes"), "{:,} bytes"),
        "occupancy": None if held is None else f"{held:.0%}, limited by {resources['limited_by']}",
        "blocks that ran": Sampled(**counts["sample"]).brief if "sample" in counts else None,
        "warp instructions": _text(counts.get("warp_instructions"), "{:,}"),
        "global sectors per request": _text(memory.sectors_per_request, "{:.2f}"),
        "bytes moved": _beside(memory.bytes_moved, least) if counts else None,
        "distinct bytes touched": _beside(unique_bytes(trial), least),
        "shared-memory wavefronts": wavefronts if memory.shared_wavefronts else None,
        "time": _time(trial),
    }


def _text(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _beside(count: int | None, least: int) -> str | None:
    return None if count is None else f"{count:,} ({count / least:.2f}x the minimum)"


def _verdict(trial: Trial) -> str:
    if trial.max_error is None:
        return f"{trial.outcome}: {trial.message}"
    beyond = trial.ok and trial.error_bound is not None and not trial.max_error <= trial.error_bound
    sign = "not judged, the reference" if beyond else "yes" if trial.ok else f"NO ({trial.outcome})"
    return f"{sign}, error {trial.max_error:.1e}, bound {trial.error_bound:.1e}"


def _time(trial: Trial) -> str | None:
    if trial.seconds is None:
        return None
    text = f"{trial.basis} {trial.seconds * 1e6:.2f} µs"
    if trial.basis == "predicted":
        text += f" on {trial.predicted_for}, bound by {trial.prediction['bound_by']}"
    return text


def compare_document(comparisons: Sequence[Any]) -> str:
    """Return the rows of `Comparison`s, on one case or several, as one JSON document."""
    first = comparisons[0]
    rows = [
        row | {"message": trial.message} for one in comparisons for row, trial in zip(one.rows, one.trials, strict=True)
    ]
    return document(
        "compare",
        op=first.op,
        case=", ".join(one.case for one in comparisons),
        device=first.device,
        machine=first.machine,
        all_correct=all(one.all_correct for one in comparisons),
        **origin(),
        variants=rows,
    )
