"""JSON documents that the commands print with ``--json``, and their schemas.

Each document has ``schema``, such as ``"workbench-compare/1"``, ``workbench`` (the version that wrote it) and the
results of its command; `KINDS` lists them, and `schema` returns a JSON schema of each. A field may be added within a
version; a field that changes its meaning, or goes, makes the next version. Infinities and NaN, which JSON lacks, are
null.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench.base.files import replace_file
from workbench.base.home import PACKAGE
from workbench.base.versions import __version__, versions
from workbench.errors import UnknownNameError

_CHECK = PACKAGE / "judge" / "schema.json"


class Document:
    """A result that has a JSON document, which can be saved and compared with a later one."""

    def to_json(self) -> str:
        """Return the document as JSON."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write `to_json` to a file, for `workbench.diff` to compare with, and return its path."""
        path = Path(path)
        replace_file(path, self.to_json() + "\n")
        return path


def origin() -> dict[str, object]:
    """Return the time of the call and the versions in use, as fields of a document."""
    return {"written": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "versions": versions()}


def document(kind: str, **content: object) -> str:
    """Return an object as JSON. Raises KeyError for a kind that is not one of `KINDS`."""
    KINDS[kind]
    return json.dumps({"schema": f"workbench-{kind}/1", "workbench": __version__} | _plain(content), indent=2)


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a kind of document. Raises UnknownNameError for another kind."""
    if kind not in KINDS:
        raise UnknownNameError("kind", repr(kind), ", ".join(KINDS), "Name one of these.")
    if kind == "check":
        return json.loads(_CHECK.read_text())
    command, fields = KINDS[kind]
    head = {"schema": {"const": f"workbench-{kind}/1"}, "workbench": {"type": "string"}}
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"workbench-{kind}/1"}
    return about | {"title": f"Output of {command}", **_object(head | dict(fields))}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


# -- the fields -----------------------------------------------------------------------------------------------------


def _object(properties: Mapping[str, Any], later: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of an object; documents of older versions lack what came ``later``."""
    return {"type": "object", "required": list(properties), "properties": {**properties, **(later or {})}}


def _list(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _map(value: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value}


def _each(kind: Mapping[str, Any], names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


_TEXT: Mapping[str, Any] = {"type": "string"}
_YES: Mapping[str, Any] = {"type": "boolean"}
_WHOLE: Mapping[str, Any] = {"type": "integer"}
_NUMBER: Mapping[str, Any] = {"type": ["number", "null"]}
_MAYBE: Mapping[str, Any] = {"type": ["string", "null"]}
_ANY: Mapping[str, Any] = {}
_CONFIG: Mapping[str, Any] = {"type": "object", "description": "One value per tunable."}
_NUMBERS = _list(_NUMBER)
_SAMPLE: Mapping[str, Any] = {"type": ["object", "null"], "description": "Blocks that ran, if not all did."}
_ORIGIN = {
    "written": {"type": "string", "description": "Time of writing, in UTC."},
    "versions": {"type": "object", "description": "Version of each package that takes part."},
}

_LINE = (
    _each(_TEXT, "path text")
    | _each(
        _NUMBER,
        "line instructions share active_lanes global_requests global_sectors global_ideal_sectors bytes_used "
        "shared_requests shared_wavefronts shared_ideal_wavefronts landed_bytes filled_bytes copied_bytes "
        "barrier_waits slow_paths",
    )
    | {"mix": _ANY}
)
_EXACT = {"exact": _MAYBE, "exact_difference": _list(_TEXT)}
_TRIAL = (
    _each(_TEXT, "op variant language case outcome message predicted_for")
    | {"config": _CONFIG, "bound_by": _MAYBE, "reused": _YES}
    | _EXACT
    | _each(
        _NUMBER,
        "predicted_us expected_low_us expected_high_us measured_us spread_us registers spill_bytes shared_bytes "
        "occupancy instructions sectors_per_request shared_conflicts max_error error_bound compile_seconds",
    )
)
_COUNTEREXAMPLE = _object(_each(_TEXT, "kind text threads remark") | {"sizes": _map(_WHOLE), "confirmed": _YES})
COMPARED = (
    "max_error error_bound registers spill_bytes shared_bytes occupancy warp_instructions sectors_per_request "
    "shared_conflicts bytes_moved unique_bytes minimum_bytes seconds"
)
"""Figures of a compared variant, in their order."""
_COMPARED = (
    _each(_TEXT, "variant language arch outcome message configuration_is")
    | _each(_MAYBE, "compiler time_is predicted_for")
    | _EXACT
    | {"config": _CONFIG, "sample": _SAMPLE, "remarks": _list(_TEXT)}
    | _each(_NUMBER, COMPARED)
)
_OF_CASE = {
    "case": {"type": "string", "description": "The case with what distinguishes it; rows are paired by it."},
    "case_name": _TEXT,
}
_OCCUPANCY = _each(_WHOLE, "block registers shared_bytes barriers blocks_per_sm warps_per_sm") | {
    "occupancy": _NUMBER,
    "limited_by": _TEXT,
}
_KERNEL_CODE = _object(_each(_TEXT, "title arch") | _each(_NUMBER, "registers spill_bytes") | {"shared_bytes": _WHOLE})
_CODE_DIFFERENCE = {
    "anyOf": [
        {"type": "null"},
        _object(
            {
                "alike": _WHOLE,
                "classes": _list(_object({"class": _TEXT} | _each(_WHOLE, "left right difference"))),
                "lines": _list(_object({"mark": _TEXT} | _each(_MAYBE, "left right"))),
            }
        ),
    ]
}
_AGREEMENT = _map(_ANY)
_CELL_ROW = (
    _each(_TEXT, "contender outcome note way")
    | _each(_YES, "is_ours unfinished")
    | _each(
        _NUMBER,
        "seconds spread_seconds samples minimum_bytes max_error error_bound ceiling bytes_in_flight prepare_seconds "
        "bytes_per_second",
    )
    | {"cell": _map(_ANY), "config": _CONFIG, "ways": _map(_NUMBER), "prediction": _map(_ANY)}
)

KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "doctor": (
            "workbench doctor --json",
            {
                "ok": {"type": "boolean", "description": "True if kernels compile and run here."},
                "summary": _TEXT,
                "checks": _list(_object(_each(_TEXT, "name detail remedy") | _each(_YES, "ok needed"))),
            },
        ),
        "compare": (
            "workbench compare OP --json",
            _each(_TEXT, "op case device machine")
            | _ORIGIN
            | {"all_correct": _YES, "variants": _list(_object(_COMPARED, _OF_CASE))},
        ),
        "compare-code": (
            "workbench compare-code OP --json",
            _each(_KERNEL_CODE, "left right") | _each(_CODE_DIFFERENCE, "sass ptx") | _EXACT,
        ),
        "check": ("workbench check OP --json", {}),
        "prove": (
            "workbench prove OP|PROGRAM --json",
            {
                "proofs": _list(
                    _object(
                        _each(_TEXT, "kernel status grid overflow")
                        | _each(_list(_TEXT), "preconditions reasons")
                        | {"properties": _map(_TEXT), "questions": _WHOLE, "counterexamples": _list(_COUNTEREXAMPLE)},
                        later=_each(_TEXT, "scope reading remark") | {"launches": _WHOLE},
                    )
                ),
            },
        ),
        "diff": (
            "workbench diff BEFORE NOW --json",
            {
                **_each(_TEXT, "title of"),
                "ok": {"type": "boolean", "description": "False if a condition of --fail-if fails."},
                "notes": _list(_TEXT),
                "changes": _list(_object(_each(_TEXT, "case variant figure") | _each(_NUMBER, "before now ratio"))),
                "lines": _list(_object({"file": _TEXT, "before": _ANY, "now": _ANY})),
                "conditions": _list(
                    _object({"condition": _TEXT, "ok": _YES} | _each(_list(_TEXT), "checked failures"))
                ),
            },
        ),
        "trace": (
            "workbench trace OP --json",
            {
                **_each(_TEXT, "title op case variant arch compiler predicted_for"),
                "config": _CONFIG,
                **_ORIGIN,
                "facts": _list(_object(_each(_TEXT, "fact meaning") | _each(_NUMBER, "value at_best"))),
                "lines": _list(_object(_LINE)),
                "hints": _list(_object(_each(_TEXT, "what evidence to_try") | {"line": _NUMBER})),
            },
        ),
        "tune": (
            "workbench tune OP --json",
            {
                "op": _TEXT,
                "cases": _list(_TEXT),
                "times": {"type": "string", "description": "Basis of the times: measured or predicted, and the GPU."},
                "best": {
                    "anyOf": [
                        {"type": "null"},
                        _object({"variant": _TEXT, "config": _CONFIG, "seconds": _NUMBER}),
                    ]
                },
                "by_case": _list(
                    _object(
                        _each(_TEXT, "case variant")
                        | {"config": _CONFIG}
                        | _each(_NUMBER, "seconds best_seconds best_cost")
                    )
                ),
                "outcomes": _map(_WHOLE),
                **_each(_WHOLE, "new reused"),
                "interrupted": _YES,
                "notes": _list(_TEXT),
                "trials": _list(_object(_TRIAL)),
            },
        ),
        "occupancy": (
            "workbench occupancy OP --json",
            _each(_TEXT, "title arch")
            | _OCCUPANCY
            | _each(_WHOLE, "most_registers most_shared_bytes")
            | {
                "fits": {**_map(_WHOLE), "description": "Blocks that each resource allows."},
                "steps": _list(_object({"change": _TEXT} | _OCCUPANCY)),
                "rows": _list(_object(_OCCUPANCY)),
                "notes": _list(_TEXT),
            },
        ),
        "bench-attention": (
            "workbench bench attention --json",
            {"head": _map(_ANY), "rows": _list(_object(_CELL_ROW))},
        ),
        "bench-op": (
            "workbench bench FILE.py:OP --json",
            _each(_TEXT, "op times")
            | {
                "all_correct": _YES,
                "rows": _list(
                    _object(
                        _each(_TEXT, "case variant outcome message configuration_is")
                        | {"config": _CONFIG, "time_is": _MAYBE}
                        | _each(_NUMBER, "us gigabytes_per_second minimum_bytes")
                    )
                ),
            },
        ),
        "bench-over": (
            "workbench bench FILE.py:OP --over SIZE=... --json",
            _each(_TEXT, "op case figure times")
            | {
                "names": _list(_TEXT),
                "bytes_per_second": _NUMBER,
                "all_correct": _YES,
                "without_line": _list(_TEXT),
                "rows": _list(
                    _object(
                        _each(_TEXT, "case variant outcome message configuration_is")
                        | {"sizes": _map(_ANY), "config": _CONFIG, "time_is": _MAYBE}
                        | _each(
                            _NUMBER,
                            "time bandwidth throughput instructions sectors bytes sectors_per_request conflicts "
                            "minimum_bytes operations",
                        )
                    )
                ),
            },
        ),
        "bench-kvcache": (
            "workbench bench kvcache --json",
            _each(_NUMBER, "block_size filled rounds")
            | {
                "rows": _list(
                    _object(_each(_TEXT, "operation what") | {"nanoseconds": _map(_NUMBER), "ratio": _NUMBER})
                )
            },
        ),
        "bench-tune": (
            "workbench bench tune --json",
            {
                "labels": _map(_TEXT),
                "searches": _list(
                    _object(_each(_TEXT, "sweep strategy") | _each(_NUMBER, "size share") | {"evaluations": _NUMBERS})
                ),
            },
        ),
        "bench-predict": (
            "workbench bench predict --json",
            {
                "calibrations": _list(
                    _object(
                        _each(_TEXT, "model origin")
                        | {"rows": _WHOLE, "factors": _map(_NUMBER)}
                        | _each(_AGREEMENT, "published calibrated")
                    )
                ),
                "stabilities": _list(
                    _object(
                        _each(_TEXT, "sweep label")
                        | _each(_NUMBER, "rows ties")
                        | _each(_NUMBERS, "spearman kendall regret")
                    )
                ),
                "notes": _list(_TEXT),
            },
        ),
        "bench-measured": (
            "workbench bench predict --measured FOLDER --json",
            {
                "spaces": _list(
                    _object(
                        _each(_TEXT, "space gpu model source measured")
                        | _each(_WHOLE, "seed rows valid unconfirmed")
                        | {"clock_mhz": _NUMBER}
                        | _each(_map(_ANY), "refused rankings bounds order")
                        | {"ratio": _NUMBERS}
                    )
                ),
                "notes": _list(_TEXT),
                **_each(_WHOLE, "limit seed"),
            },
        ),
        "bench-flash-attention": (
            "workbench bench flash-attention MEASURED.csv --json",
            _each(_TEXT, "source model")
            | _each(_NUMBER, "clock_hz spearman")
            | {
                "ratios": _NUMBERS,
                "rows": _list(
                    _object(
                        _each(_NUMBER, "batch seqlen heads head_size causal measured_us predicted_us")
                        | {"bound_by": _TEXT}
                    )
                ),
            },
        ),
        "bench-generate": (
            "workbench bench generate --json",
            {
                "prompt_tokens": _list(_WHOLE),
                **_each(_WHOLE, "new_tokens context_length"),
                "rows": _list(
                    _object(
                        {"cache": _TEXT, "memory": _map(_NUMBER)}
                        | _each(_NUMBER, "prompt_seconds same_tokens")
                        | _each(_NUMBERS, "step_seconds reserved_bytes")
                    )
                ),
                "serving": _list(
                    _object(
                        _each(_list(_WHOLE), "prompt_tokens new_tokens")
                        | _each(_NUMBER, "engine_seconds peer_seconds same_tokens")
                    )
                ),
            },
        ),
        "bench-perplexity": (
            "workbench bench perplexity --json",
            _each(_WHOLE, "num_windows length calibration_windows")
            | {"rows": _list(_object({"name": _TEXT} | _each(_NUMBER, "value low high ratio ratio_low ratio_high")))},
        ),
    }
)
"""For each kind, the command that prints it and its fields; unknown values are null."""
