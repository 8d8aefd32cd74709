"""The record of how predicted times compared with measured ones, ``predictions.json``, and its table.

``workbench bench predict --measured FOLDER --record FILE`` writes it: an entry for each space, GPU, source of the
kernel and seed, which replaces an earlier one. The times were measured elsewhere; an entry says on what and when.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.analysis.prediction.confidence import FORMAT, OURS, clock_of, read, read_tables
from workbench.analysis.prediction.predict import VERSION
from workbench.base.files import replace_file
from workbench.base.tables import Table
from workbench.base.versions import versions
from workbench.toolchain import nvrtc
from workbench.tuning.bench.measured import PredictionJudgement

_KEY = ("space", "gpu", "source", "seed")
_HEADS = (
    "kernel", "GPU", "rows", "Spearman", "first", "best of ten", "predicted / measured", "fewest instructions",
    "own single runs",
)  # fmt: skip


def write(judgement: PredictionJudgement, path: str | Path) -> Path:
    """Write the results of a comparison into a record, beside its entries on other spaces and seeds."""
    path = Path(path)
    entries = {_key(entry): entry for entry in read(path)} if path.exists() else {}
    tables = read_tables(path) if path.exists() else []
    used = {"workbench": versions()["workbench"], "model": str(VERSION), "NVRTC": nvrtc.version()}
    for judged in judgement.spaces:
        entry = _short(asdict(judged)) | {"date": time.strftime("%Y-%m-%d", time.gmtime()), "versions": used}
        entries[_key(entry)] = entry
    record = {
        "format": FORMAT,
        "kind": "predicted against measured",
        "spaces": [entries[key] for key in sorted(entries)],
    }
    if tables:
        record["tables"] = tables
    replace_file(path, json.dumps(record, indent=1) + "\n")
    return path


def table(entries: list[dict]) -> Table:
    """Return a table of one row per entry."""
    return Table(_HEADS, [_row(entry) for entry in entries], "l" * len(_HEADS))


def _row(entry: Mapping) -> tuple[str, ...]:
    found, instructions = entry["rankings"]["prediction"], entry["rankings"]["fewest instructions"]
    runs = entry["rankings"].get("its own single runs")
    middle, low, high = entry["ratio"]
    ours = ", our kernel" if entry["source"] == OURS else ""
    return (
        f"{entry['space']}{ours}",
        entry["gpu"].removeprefix("NVIDIA ").removeprefix("GeForce ") + clock_of(entry),
        f"{entry['rows']} of {entry['valid']:,}, seed {entry['seed']}",
        f"{found['spearman']:.3f}",
        f"{found['first']:.2f}x",
        f"{found['best_of_ten']:.2f}x",
        f"{middle:.2f} ({low:.2f} to {high:.2f})",
        f"{instructions['spearman']:.3f}, {instructions['first']:.2f}x",
        f"{runs['spearman']:.3f}" if runs else "",
    )


def _key(entry: Mapping) -> tuple:
    return tuple(entry[name] for name in _KEY)


def _short(value: Any) -> Any:
    """Return a value with each number rounded to four digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: _short(one) for name, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list | tuple) else value
