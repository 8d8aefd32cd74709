"""A recorded sweep: all tried configurations of one variant on one case, in one file, with machine, versions and day.

A sweep stands in for the machine elsewhere: it can be replayed (``tune(..., device="replay:FILE")``), used to compare
search strategies, exported to other tuners' formats, and used to measure the error of a device model. The file is JSON,
gzipped if its name ends in ``.gz``, with a column for each figure; sweeps that come with the package are in
``recorded/sweeps``. Times are in seconds.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.analysis.device_models import device_models
from workbench.base.files import replace_file
from workbench.base.trials.trial import Trial, canonical
from workbench.errors import ArgumentError

FORMAT = 1
SUFFIXES = (".json.gz", ".json")
"""Endings of the names of sweep files."""

_DIGITS = 6
HEADER = (
    "op", "variant", "language", "case_name", "case_label", "case", "device", "machine", "arch", "basis",
    "predicted_for", "source_hash", "versions", "recorded", "origin", "default_config",
)  # fmt: skip
_FIGURES = (
    "outcome", "message", "compile_seconds", "resources", "counts", "samples", "timing", "measured_seconds",
    "predicted_seconds", "max_error", "error_bound", "finished",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Sweep:
    """The trials of one variant on one case, in the order of the space.

    ``machine`` names the hardware that measured or counted. ``basis`` is "measured" or "predicted", the latter for the
    device model ``predicted_for``. ``recorded`` is the day of the newest trial. ``origin`` names the program that wrote
    the sweep.
    """

    op: str
    variant: str
    language: str
    case_name: str
    case_label: str
    case: Mapping[str, object]
    device: str
    machine: str
    arch: str
    basis: str
    predicted_for: str | None
    source_hash: str
    versions: Mapping[str, str]
    recorded: str
    parameters: Mapping[str, tuple]
    default_config: Mapping[str, object] | None
    trials: tuple[Trial, ...]
    origin: str = "workbench"
    path: Path | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Name of the sweep: op, variant, case and device, joined by hyphens."""
        where = f"sim-{self.predicted_for}" if self.basis == "predicted" else self.device
        return "-".join(part.replace(" ", "_") for part in (self.op, self.variant, self.case_name, where))

    @property
    def label(self) -> str:
        """The origin of the times: the machine measured on or the GPU predicted for, the day, and the versions used."""
        if self.basis == "predicted":
            model = device_models().get(self.predicted_for or "")
            what = f"simulator sweep, predicted for {model or self.predicted_for} from counts of the {self.machine}"
        else:
            what = f"measured on {self.machine}"
        used = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{what}; recorded {self.recorded or 'on an unknown day'} with {used or self.origin}"

    @cached_property
    def by_config(self) -> dict[str, Trial]:
        """The trials by the canonical text of their configuration."""
        return {canonical(dict(trial.config)): trial for trial in self.trials}

    def __repr__(self) -> str:
        return f"<sweep {self.name}: {len(self.trials)} configurations, {self.label}>"

    def save(self, path: str | Path) -> Path:
        """Write the sweep to a .json or .json.gz file and return its path.

        Raises ArgumentError for another kind of file.
        """
        path = check_path(path)
        record = {"format": FORMAT, "kind": "workbench sweep", "label": self.label}
        record |= {name: getattr(self, name) for name in HEADER}
        record["parameters"] = {name: list(values) for name, values in self.parameters.items()}
        record["configs"] = [list(trial.config.values()) for trial in self.trials]
        record["columns"] = _columns([_figures(trial) for trial in self.trials])
        text = json.dumps(record, separators=(",", ":"), default=str) + "\n"
        # Leave the time out of the gzip header, so that equal sweeps give equal bytes.
        data = gzip.compress(text.encode(), 9, mtime=0) if path.suffix == ".gz" else text.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        return path


def check_path(path: str | Path) -> Path:
    """Return the path if a sweep can be written under this name. Raises ArgumentError for another kind of file."""
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise ArgumentError("path", str(path), f"a file ending in {' or '.join(SUFFIXES)}", "Rename it.")
    return path


def _figures(trial: Trial) -> dict:
    figures = {name: getattr(trial, name) for name in _FIGURES}
    figures["samples"] = list(trial.samples)
    figures["finished"] = round(trial.finished) if trial.finished else None
    figures["bound_by"] = trial.prediction.get("bound_by")
    resources = {name: value for name, value in trial.resources.items() if name != "kernel_key"}
    return _flat({**figures, "resources": resources})


def _flat(record: Mapping, prefix: str = "") -> dict:
    """Flatten nested figures to dotted names such as ``counts.mix.integer``; leave out empty and unknown values."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif value not in (None, "", [], ()):
            flat[prefix + name] = _short(value)
    return flat


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value


def _columns(rows: Sequence[Mapping]) -> dict:
    """Turn rows into one list for each figure, null where a row lacks it, or one value if all rows have the same."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        same = all(value == values[0] and type(value) is type(values[0]) for value in values)
        columns[name] = {"all": values[0]} if same else values
    return columns
