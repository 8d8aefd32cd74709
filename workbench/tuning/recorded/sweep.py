"""Sweeps made from a tuning run, and read from files, also from other tuners' files."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from workbench.analysis.device_models import placed
from workbench.base.recorded import recorded_folders
from workbench.base.trials.trial import OUTCOMES, Trial
from workbench.base.trials.values import PredictionRecord
from workbench.errors import ArgumentError, StoreError, UnknownNameError
from workbench.tuning.recorded import kernel_tuner_files
from workbench.tuning.recorded.sweep_checks import RefusedSweep, check_config, check_sweep, check_time, too_deep, within
from workbench.tuning.recorded.sweep_record import FORMAT, HEADER, Sweep
from workbench.tuning.result.tuning_result import TuningResult

_Known = TypeVar("_Known")


def sweep_of(run: TuningResult, variant: str | None = None, case: str | None = None) -> Sweep:
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
            "sweep",
            repr(str(name)),
            f"a file, or one of {known}",
            "workbench.tuning.recorded.sweep.shipped() lists them.",
        )
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        if kernel_tuner_files.is_cache(text):
            return replace(kernel_tuner_files.from_cache(text), path=path)
        if kernel_tuner_files.is_t4(text):
            name = path.name.removesuffix(".gz").removesuffix(".json")
            return replace(kernel_tuner_files.from_t4(text, name), path=path)
        return _read(json.loads(text), path)
    except RefusedSweep as error:
        raise StoreError(f"sweep {path}: {error}. Nothing of it is used; correct the file.") from error
    except RecursionError:
        raise StoreError(f"sweep {path}: {too_deep(text)}. Nothing of it is used; correct the file.") from None
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, zlib.error) as error:
        raise StoreError(
            f"sweep {path}: not a sweep, a Kernel Tuner cache or T4 results ({type(error).__name__}: {error}). "
            "Record one with `workbench tune --save FILE`."
        ) from error


def _read(record: Mapping, path: Path) -> Sweep:
    if record["kind"] != "workbench sweep":
        raise ValueError(f"its kind is {record['kind']!r}")
    if record["format"] > FORMAT:
        raise StoreError(f"sweep {path}: format {record['format']} is newer than {FORMAT}. Update the workbench.")
    header = {name: record[name] for name in HEADER}
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
                raise ValueError(f"unknown outcome {figures['outcome']!r}")
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
