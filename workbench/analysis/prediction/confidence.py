"""Trust in a predicted time: how far comparable predictions were from measured times.

Three things are known apart: the spread by what bounds the kernel, and for each architecture the level (predicted /
measured) and the ranking (Spearman's correlation). A ranking carries over to GPUs that were not compared, a level does
not: it depends on the clock, which is not known in advance.

The comparisons are those of the package's record (``predictions.json``, written by ``workbench bench predict
--measured FOLDER --record FILE``): kernels of published search spaces, measured elsewhere.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_model, device_models
from workbench.errors import StoreError

RECORD = Path(__file__).with_name("predictions.json")
FORMAT = 1

OURS = "our kernel"
"""The ``source`` of a record's entries on our own kernels, which are not the published ones."""

TIE = "to 1%"
"""Key of the pairs whose predicted times count as tied in `in_order`."""

LEAST_ROWS = 10
"""Least number of compared configurations from which a space says something of a kind of bound."""


@dataclass(frozen=True)
class Spread:
    """Ratios of measured to predicted time among ``rows`` comparisons with the same bound.

    ``low`` and ``high`` are the 10th and the 90th percentile; over several samples, the lowest and the highest of them.
    """

    bound_by: str
    rows: int
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"of {self.rows} comparisons with published times, bound by {self.bound_by}, most were measured at "
            f"{self.low:.2f} to {self.high:.2f} times the predicted"
        )


@functools.cache
def spreads() -> Mapping[str, Spread]:
    """Return the spreads of the published kernels in the record, by bound."""
    found: dict[str, Spread] = {}
    for entry in _entries():
        for bound_by, (rows, _, least, most) in entry["bounds"].items():
            if rows < LEAST_ROWS:
                continue
            low, high, before = 1 / most, 1 / least, found.get(bound_by)
            if before is not None:
                rows, low, high = rows + before.rows, min(low, before.low), max(high, before.high)
            found[bound_by] = Spread(bound_by, rows, low, high)
    return found


def spread_of(bound_by: str) -> Spread | None:
    """Return the spread of predictions with this bound, or None if too few have been compared."""
    return spreads().get(bound_by)


def trust(bound_by: str) -> str:
    """Return a phrase on how predictions with this bound compared with published times."""
    few = f"fewer than {LEAST_ROWS} predictions with the bound {bound_by!r} have been compared with published times"
    return str(spread_of(bound_by) or few)


@dataclass(frozen=True)
class ArchitectureComparison:
    """Comparison of the predictions for one architecture with published times.

    ``level`` is the range of predicted / measured, from the lowest 10th to the highest 90th percentile of the samples,
    ``ranking`` the lowest and the highest Spearman correlation. ``kernels`` and ``gpus`` name what was compared.
    """

    arch: str
    level: tuple[float, float]
    ranking: tuple[float, float]
    kernels: tuple[str, ...]
    gpus: tuple[str, ...]

    @property
    def of(self) -> str:
        """Short list of the kernels and GPUs, such as "convolution, pnpoly on RTX 3090"."""
        return f"{', '.join(self.kernels)} on {', '.join(self.gpus)}"


@functools.cache
def comparisons() -> Mapping[str, ArchitectureComparison]:
    """Return the comparisons of published kernels in the record, by architecture."""
    by_arch: dict[str, list[dict]] = {}
    for entry in [*_entries(), *read_tables(RECORD)]:
        by_arch.setdefault(device_models()[entry["model"]].arch, []).append(entry)
    found = {}
    for arch, entries in by_arch.items():
        ranks = [entry["rankings"]["prediction"]["spearman"] for entry in entries]
        kernels = dict.fromkeys(entry["space"] + clock_of(entry) for entry in entries)
        gpus = dict.fromkeys(entry["model"] for entry in entries)
        found[arch] = ArchitectureComparison(
            arch,
            (min(entry["ratio"][1] for entry in entries), max(entry["ratio"][2] for entry in entries)),
            (min(ranks), max(ranks)),
            tuple(kernels),
            tuple(device_models()[key].name for key in gpus),
        )
    return found


def clock_of(entry: Mapping[str, Any]) -> str:
    """Return the clock that an entry was compared at, such as " at 765 MHz"; "" if that was the device model's."""
    published = device_model(entry["model"]).clock_hz / 1e6
    clock = entry.get("clock_mhz", published)
    return "" if math.isclose(clock, published, rel_tol=1e-3) else f" at {clock:,.0f} MHz"


def level(model: DeviceModel) -> str:
    """Return a phrase on the level of predicted times for a device model: where it was compared, and the clock."""
    compared, clock = comparisons().get(model.arch), model.clock_hz / 1e6
    if compared is None:
        text = f"not compared with measured times on {model.arch}"
    else:
        low, high = compared.level
        text = f"predicted / measured was {low:.2f} to {high:.2f} on {model.arch} ({compared.of})"
    if model.base_clock_hz is None:
        return f"{text}; for {clock:,.0f} MHz, no base clock is published"
    slower = model.clock_hz / model.base_clock_hz
    return f"{text}; for {clock:,.0f} MHz, up to {slower:.2f} times as long at the base clock"


def ranking(model: DeviceModel) -> str:
    """Return a phrase on the ranking by predicted times for a device model, apart from their level."""
    compared = comparisons().get(model.arch)
    if compared is not None:
        low, high = compared.ranking
        return f"Spearman {low:.2f} to {high:.2f} on {model.arch} ({compared.of})"
    others = [one.ranking for one in comparisons().values()]
    if not others:
        return f"not compared with measured times on {model.arch}"
    low, high = min(low for low, _ in others), max(high for _, high in others)
    return f"not compared on {model.arch}; Spearman {low:.2f} to {high:.2f} on {', '.join(sorted(comparisons()))}"


@functools.cache
def in_order() -> Mapping[str, float]:
    """Return the fraction of pairs ranked correctly, by how far their predicted times differ ("to 1%", ...)."""
    pairs, right = Counter[str](), Counter[str]()
    for entry in _entries():
        for apart, (count, share) in entry["order"].items():
            pairs[apart] += count
            right[apart] += count * share
    return {apart: right[apart] / pairs[apart] for apart in pairs}


def read(path: str | Path = RECORD) -> list[dict]:
    """Return the entries of a record. Raises StoreError for a file that is none."""
    return _record(path)["spaces"]


def read_tables(path: str | Path = RECORD) -> list[dict]:
    """Return the entries of a record that stand for a table of measured times in the documentation, not for a space."""
    return _record(path).get("tables", [])


def _record(path: str | Path) -> dict[str, Any]:
    try:
        record = json.loads(Path(path).read_text())
        if record["format"] > FORMAT:
            raise StoreError(f"{path}: format {record['format']} is newer than {FORMAT}. Update the workbench.")
        return record | {"spaces": record["spaces"]}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StoreError(f"{path}: no record of predictions ({type(error).__name__}: {error}).") from error


def _entries() -> list[dict]:
    return [entry for entry in read(RECORD) if entry["source"] != OURS]
