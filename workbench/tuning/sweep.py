"""A recorded sweep: all tried configurations of one variant on one case, in one file, with machine, versions and day.

A sweep stands in for the machine elsewhere: it can be replayed (``tune(..., device="replay:FILE")``), used to compare
search strategies, exported to other tuners' formats, and used to measure the error of a device model. The file is JSON,
gzipped if its name ends in ``.gz``, with a column for each figure; sweeps that come with the package are in
``recorded/sweeps``. Times are in seconds.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.analysis.device_models import device_models, placed
from workbench.base.files import replace_file
from workbench.base.recorded import recorded_folders
from workbench.base.trials.trial import OUTCOMES, Trial, canonical
from workbench.base.trials.values import PredictionRecord
from workbench.errors import ArgumentError, StoreError, UnknownNameError
from workbench.tuning.sweep_checks import Refused, check_config, check_sweep, check_time, too_deep, within

if TYPE_CHECKING:
    from workbench.tuning.run import TuningRun

_Known = TypeVar("_Known")

FORMAT = 1
SUFFIXES = (".json.gz", ".json")
"""Endings of the names of sweep files."""

_DIGITS = 6
_HEADER = (
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
        record |= {name: getattr(self, name) for name in _HEADER}
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


def sweep_of(run: TuningRun, variant: str | None = None, case: str | None = None) -> Sweep:
    """Return the sweep of one variant on one case of a TuningRun; a name may be left out if the run has only one.

    Raises ArgumentError if a name is missing or unknown, or no trial has a time.
    """
    chosen = _one("variant", variant, {each.name: each for each in run.variants})
    judged = _one("case", case, {each.name: each for each in run.cases})
    trials = tuple(t for t in run.trials if (t.variant, t.case) == (chosen.name, judged.name))
    timed = [trial for trial in trials if trial.seconds is not None]
    if not timed:
        raise ArgumentError("run", f"no correct trial of {chosen.name}", "one with a time", "Tune it first.")
    recorded: Sweep | None = getattr(run.device, "sweep", None)
    if recorded is not None:
        return recorded
    from workbench.base.versions import versions

    finished = max(trial.finished or 0.0 for trial in trials)
    return Sweep(
        op=run.op.name,
        variant=chosen.name,
        language=chosen.language,
        case_name=judged.name,
        case_label=judged.label,
        case=judged.to_dict(),
        device=timed[0].device,
        machine=run.device.description,
        arch=run.device.arch,
        basis=timed[0].basis,
        predicted_for=timed[0].predicted_for,
        source_hash=chosen.source_hash,
        versions=dict(versions()),
        recorded=_day(finished),
        parameters=dict(run.spaces[chosen].parameters),
        default_config=chosen.default_config(placed(judged.problem(arch=run.device.arch), run.device, run.model)),
        trials=trials,
    )


def shipped() -> tuple[str, ...]:
    """Return the names of the sweeps that come with the package."""
    return tuple(sorted(_shipped_files()))


def _shipped_files() -> dict[str, Path]:
    files = (path for folder in recorded_folders("sweeps") for path in folder.glob("*.json.gz"))
    return {path.name.removesuffix(".json.gz"): path for path in files}


def load(name: str | Path) -> Sweep:
    """Load a sweep from a file (ours, a Kernel Tuner cache, T4 results), or a shipped one by its name.

    Raises UnknownNameError if there is neither; StoreError for a file that holds no sweep.
    """
    path = Path(name)
    if not path.exists():
        path = _shipped_files().get(str(name), path)
    if not path.exists():
        known = ", ".join(shipped()) or "none"
        raise UnknownNameError(
            "sweep", repr(str(name)), f"a file, or one of {known}", "workbench.tuning.sweep.shipped() lists them."
        )
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        from workbench.tuning import kernel_tuner_files

        if kernel_tuner_files.is_cache(text):
            return replace(kernel_tuner_files.from_cache(text), path=path)
        if kernel_tuner_files.is_t4(text):
            name = path.name.removesuffix(".gz").removesuffix(".json")
            return replace(kernel_tuner_files.from_t4(text, name), path=path)
        return _read(json.loads(text), path)
    except Refused as error:
        raise StoreError(f"sweep {path}: {error}. Nothing of it is used; correct the file.") from error
    except RecursionError:
        raise StoreError(f"sweep {path}: {too_deep(text)}. Nothing of it is used; correct the file.") from None
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, zlib.error) as error:
        raise StoreError(
            f"sweep {path}: no recorded sweep, Kernel Tuner cache or T4 results ({type(error).__name__}: {error}). "
            "Record one with `workbench tune --save FILE`."
        ) from error


def _read(record: Mapping, path: Path) -> Sweep:
    if record["kind"] != "workbench sweep":
        raise ValueError(f"its kind is {record['kind']!r}")
    if record["format"] > FORMAT:
        raise StoreError(f"sweep {path}: format {record['format']} is newer than {FORMAT}. Update the workbench.")
    header = {name: record[name] for name in _HEADER}
    parameters = {name: tuple(values) for name, values in record["parameters"].items()}
    common = {name: record[name] for name in ("op", "variant", "language", "device", "arch")}
    common |= {"case": record["case_name"], "predicted_for": record["predicted_for"], "reused": True}
    trials = []
    rows = _rows(record["columns"], len(record["configs"]))
    sweep = Sweep(**header, parameters=parameters, trials=(), path=path)
    check_sweep(sweep, "parameters")
    for at, (values, figures) in enumerate(zip(record["configs"], rows, strict=True)):
        with within(f"configs[{at}]"):
            config = dict(zip(parameters, values, strict=True))
            check_config(config, parameters)
            if figures["outcome"] not in OUTCOMES:
                raise ValueError(f"an outcome {figures['outcome']!r}")
            bound_by = figures.pop("bound_by", None)
            prediction: PredictionRecord = {"bound_by": bound_by} if bound_by else {}
            figures["samples"] = tuple(figures.get("samples", ()))
            for name in ("measured_seconds", "predicted_seconds"):
                if name in figures:
                    check_time(name, figures[name])
            for sample in figures["samples"]:
                check_time("samples", sample)
            trials.append(Trial(config=config, prediction=prediction, **common, **figures))
    return replace(sweep, trials=tuple(trials))


def _one(what: str, name: str | None, known: Mapping[str, _Known]) -> _Known:
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None or name not in known:
        raise ArgumentError(what, repr(name), f"one of {', '.join(known)}", "A sweep is of one variant on one case.")
    return known[name]


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds)) if seconds else ""


# -- columns ----------------------------------------------------------------------------------------------------


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


def _rows(columns: Mapping, count: int) -> Iterable[dict]:
    for at in range(count):
        row: dict = {}
        for name, values in columns.items():
            value = values["all"] if isinstance(values, Mapping) else values[at]
            if value is None:
                continue
            *outer, last = name.split(".")
            inside = row
            for key in outer:
                inside = inside.setdefault(key, {})
            inside[last] = value
        yield row
