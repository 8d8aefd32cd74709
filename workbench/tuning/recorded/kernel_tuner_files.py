"""Reader and writer of Kernel Tuner's cache files and of the auto-tuning community's T4 results and metadata.

A cache is JSON with the tunable parameters and one object per configuration, times in milliseconds; Kernel Tuner
replays it with ``kernel_tuner.tune_cache``. During a run the file lacks its closing brackets. T4:
https://github.com/odgaard/TuningSchema; Kernel Tuner ships the schemas of version 1.0.0.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.base.files import replace_file
from workbench.base.trials.trial import Trial
from workbench.tuning.recorded.sweep_checks import check_config, check_sweep, check_time, check_value, within
from workbench.tuning.recorded.sweep_record import Sweep

T4_VERSION = "1.0.0"

# Fields of a sweep that a cache has no place for; Kernel Tuner ignores the key that holds them.
_OURS = (
    "op", "language", "case", "case_name", "case_label", "machine", "arch", "basis", "predicted_for", "source_hash",
    "versions", "recorded", "default_config",
)  # fmt: skip

# Kernel Tuner knows three ways to fail; T4 five.
_ERRORS = {"restricted": "InvalidConfig", "compile_error": "CompilationFailedConfig"}
_OUTCOMES = {
    "InvalidConfig": "restricted",
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "launch_error",
    "ErrorConfig": "crash",
}
_INVALIDITY = {
    "ok": "correct",
    "restricted": "constraints",
    "compile_error": "compile",
    "launch_error": "runtime",
    "crash": "runtime",
    "wrong_result": "correctness",
    "timeout": "timeout",
    "refuted": "correctness",
}


def is_cache(text: str) -> bool:
    """Return True if a file's text is that of a Kernel Tuner cache."""
    return '"tune_params_keys"' in text


def to_cache(sweep: Sweep) -> dict:
    """Return a sweep as the content of a Kernel Tuner cache; ``device_name`` says if the times are predicted."""
    device = sweep.device if sweep.basis == "measured" else f"predicted for {sweep.predicted_for}"
    names = list(sweep.parameters)
    return {
        "device_name": device,
        "kernel_name": sweep.variant,
        "problem_size": [1],  # Kernel Tuner wants one; the case says what was solved
        "tune_params_keys": names,
        "tune_params": {name: list(values) for name, values in sweep.parameters.items()},
        "objective": "time",
        "workbench": {"label": sweep.label} | {name: getattr(sweep, name) for name in _OURS},
        "cache": {",".join(str(value) for value in trial.config.values()): _cached(trial) for trial in sweep.trials},
    }


def _cached(trial: Trial) -> dict:
    row = dict(trial.config)
    if trial.seconds is None:
        row["__error__"] = _ERRORS.get(trial.outcome, "RuntimeFailedConfig")
    else:
        row["time"] = _ms(trial.seconds)
        row["times"] = [_ms(sample) for sample in trial.samples] or [_ms(trial.seconds)]
    times = {"compile_time": _ms(trial.compile_seconds or 0.0), "benchmark_time": _ms(sum(trial.samples))}
    # Kernel Tuner adds these up, so they must be there; unknown times are zero.
    times |= {"verification_time": 0.0, "strategy_time": 0.0, "framework_time": 0.0}
    return row | times | {"timestamp": _stamp(trial.finished)}


def from_cache(text: str) -> Sweep:
    """Return the sweep in a Kernel Tuner cache, finished or not. Raises ValueError for a damaged one."""
    try:
        record = json.loads(text)
    except ValueError:
        # The cache of a run that is going on, or was ended early, has a last comma and no closing brackets.
        record = json.loads(text.rstrip().removesuffix(",") + "}}")
    names, kernel = record["tune_params_keys"], record["kernel_name"]
    size = "problem size " + " x ".join(map(str, _listed(record["problem_size"])))
    stamps = _stamps(record["cache"].values())
    foreign = {"op": kernel, "language": "", "case": {"problem_size": record["problem_size"]}, "case_name": size}
    foreign |= {"case_label": size, "machine": record["device_name"], "arch": "", "basis": "measured"}
    foreign |= {"predicted_for": None, "source_hash": "", "versions": {}, "default_config": None}
    foreign |= {"recorded": stamps[-1][:10] if stamps else "", "origin": "Kernel Tuner"}
    ours = record.get("workbench", {})
    header = foreign | {name: ours[name] for name in _OURS if name in ours}
    header |= {"variant": kernel, "device": "sim" if header["basis"] == "predicted" else record["device_name"]}
    common = {name: header[name] for name in ("op", "variant", "language", "device", "arch", "predicted_for")}
    common |= {"case": header["case_name"], "reused": True}
    objective = _listed(record.get("objective", "time"))[0]
    seconds = "predicted_seconds" if header["basis"] == "predicted" else "measured_seconds"
    parameters = {name: tuple(record["tune_params"][name]) for name in names}
    sweep = Sweep(**header, parameters=parameters, trials=())
    check_sweep(sweep, "tune_params")
    trials = []
    for key, row in record["cache"].items():
        with within(f"cache[{key!r:.80}]"):
            trials.append(_trial(row, parameters, objective, seconds, common))
    return replace(sweep, trials=tuple(trials))


def _trial(row: Mapping, parameters: Mapping, objective: str, seconds: str, common: Mapping) -> Trial:
    config = {name: row[name] for name in parameters}
    check_config(config, parameters)
    value: Any = row.get(objective)
    # Older versions of Kernel Tuner write the error in the place of the time.
    error = row.get("__error__") or (value if isinstance(value, str) else None)
    if error is not None:
        return Trial(config=config, outcome=_OUTCOMES.get(error, "crash"), message=error, **common)
    if objective != "time":
        raise ValueError(f"its objective is {objective!r}; only times can be replayed")
    for what, one in [("time", value), *(("times", sample) for sample in row.get("times", ()))]:
        check_time(what, one)
    samples = tuple(sample / 1e3 for sample in row.get("times", ())) if seconds == "measured_seconds" else ()
    times: dict[str, Any] = {seconds: value / 1e3}
    return Trial(config=config, outcome="ok", samples=samples, **times, **common)


def is_t4(text: str) -> bool:
    """Return True if a file's text is that of T4 results."""
    return '"schema_version"' in text and '"configuration"' in text


def from_t4(text: str, name: str) -> Sweep:
    """Return the sweep in T4 results, which name no GPU and no kernel: ``name``, that of the file, stands for both.

    Raises ValueError for a damaged file.
    """
    record = json.loads(text)
    rows, gpu = record["results"], name.removesuffix("_T4").replace("_", " ")
    parameters: dict[str, dict] = {}
    for at, row in enumerate(rows):
        with within(f"results[{at}]"):
            for parameter, value in row["configuration"].items():
                check_value(parameter, value)
                parameters.setdefault(parameter, {})[value] = None
    stamps = _stamps(rows)
    common: dict[str, Any] = {"op": name, "variant": name, "language": "", "device": gpu, "arch": ""}
    common["predicted_for"] = None
    sweep = Sweep(
        **common,
        case={},
        case_name=name,
        case_label=name,
        machine=gpu,
        basis="measured",
        source_hash="",
        versions={},
        default_config=None,
        recorded=stamps[-1][:10] if stamps else "",
        origin="T4",
        parameters={parameter: tuple(values) for parameter, values in parameters.items()},
        trials=(),
    )
    check_sweep(sweep, "configuration")
    trials = []
    for at, row in enumerate(rows):
        with within(f"results[{at}]"):
            trials.append(_trial_of_t4(row, {**common, "case": name, "reused": True}))
    return replace(sweep, trials=tuple(trials))


_SECONDS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}


def _trial_of_t4(row: Mapping, common: Mapping) -> Trial:
    config = dict(row["configuration"])
    times = {one["name"]: one for one in row["measurements"] if one["name"] in ("time", "predicted_time")}
    if row["invalidity"] != "correct":
        outcomes = {theirs: ours for ours, theirs in reversed(_INVALIDITY.items())}
        return Trial(config=config, outcome=outcomes[row["invalidity"]], message=row["invalidity"], **common)
    if "time" not in times:
        raise ValueError("its results hold no measured time")
    check_time("time", times["time"]["value"])
    seconds = times["time"]["value"] * _SECONDS[times["time"].get("unit") or "ms"]
    return Trial(config=config, outcome="ok", measured_seconds=seconds, **common)


def to_t4_results(sweep: Sweep) -> dict:
    """Return a sweep as T4 results; every time in it is in milliseconds."""
    return {
        "schema_version": T4_VERSION,
        "metadata": {"timeunit": "milliseconds", "label": sweep.label},
        "results": [_t4(trial) for trial in sweep.trials],
    }


def _t4(trial: Trial) -> dict:
    measurements = []
    if trial.seconds is not None:
        name = "time" if trial.basis == "measured" else "predicted_time"
        measurements.append({"name": name, "value": _ms(trial.seconds), "unit": "ms"})
    units = {"registers": "", "spill_bytes": "B", "shared_bytes": "B", "occupancy": ""}
    resources: Mapping[str, Any] = trial.resources
    measurements += [
        {"name": name, "value": resources[name], "unit": unit} for name, unit in units.items() if name in resources
    ]
    return {
        "timestamp": _stamp(trial.finished),
        "configuration": dict(trial.config),
        "objectives": [measurements[0]["name"]] if trial.seconds is not None else [],
        "times": {
            "compilation_time": _ms(trial.compile_seconds or 0.0),
            "runtimes": [_ms(sample) for sample in trial.samples],
        },
        "invalidity": _INVALIDITY[trial.outcome],
        "correctness": float(trial.ok),
        "measurements": measurements,
    }


def to_t4_metadata(sweep: Sweep) -> dict:
    """Return the T4 metadata of a sweep: the machine and the versions."""
    machine = {"device": sweep.device, "description": sweep.machine, "arch": sweep.arch, "label": sweep.label}
    return {
        "schema_version": T4_VERSION,
        "metadata": {
            "hardware": {"hardware_description": [machine], "operating_system": platform.system()},
            "environment": {
                "device_query": {},
                "requirements": [f"{name}=={version}" for name, version in sweep.versions.items()],
            },
        },
    }


def export(sweep: Sweep, path: str | Path, kind: str) -> Path:
    """Write a sweep as "kernel-tuner" (a cache), "t4" (results), "t4-metadata" or "sweep" (our own format)."""
    if kind == "sweep":
        return sweep.save(path)
    content = {"kernel-tuner": to_cache, "t4": to_t4_results, "t4-metadata": to_t4_metadata}[kind](sweep)
    # Kernel Tuner recognises a finished cache by its last three characters.
    text = json.dumps(content, indent=None if kind == "kernel-tuner" else 1)
    path = Path(path)
    replace_file(path, text)
    return path


def _ms(seconds: float) -> float:
    return seconds * 1e3


def _stamps(rows: Iterable) -> list[str]:
    """Return the time stamps of the rows that have one, in order."""
    said = (row.get("timestamp") for row in rows if isinstance(row, Mapping))
    return sorted(stamp for stamp in said if isinstance(stamp, str))


def _stamp(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds)) if seconds else ""


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
