"""Trust in a predicted time: how far comparable predictions were from measured times, by what bounds the kernel.

The comparisons are those of the package's record (``predictions.json``, written by ``workbench bench predict
--measured FOLDER --record FILE``): kernels of published search spaces, measured elsewhere.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    try:
        record = json.loads(Path(path).read_text())
        if record["format"] > FORMAT:
            raise StoreError(f"{path}: format {record['format']} is newer than {FORMAT}. Update the workbench.")
        return record["spaces"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StoreError(f"{path}: no record of predictions ({type(error).__name__}: {error}).") from error


def _entries() -> list[dict]:
    return [entry for entry in read(RECORD) if entry["source"] != OURS]
