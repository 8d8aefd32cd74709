"""Files of recorded times come from others: what could mislead, hang or break a replay is refused, with its place."""

from __future__ import annotations

import copy
import json
import time

import pytest
from click.testing import CliRunner

from workbench.cli import main
from workbench.errors import StoreError
from workbench.tuning import tune
from workbench.tuning.recorded.replay import space_of
from workbench.tuning.recorded.sweep import load

CACHE = {
    "device_name": "NVIDIA A100-PCIE-40GB",
    "kernel_name": "scale",
    "problem_size": [4096],
    "tune_params_keys": ["A", "B"],
    "tune_params": {"A": [1, 2, 4], "B": ["x", "y"]},
    "objective": "time",
    "cache": {
        "1,x": {"A": 1, "B": "x", "time": 2.0, "times": [2.0, 2.1]},
        "2,y": {"A": 2, "B": "y", "time": 1.0, "times": [1.0]},
        "4,y": {"A": 4, "B": "y", "time": "RuntimeFailedConfig"},
    },
}
T4 = {
    "schema_version": "1.0.0",
    "results": [
        {
            "configuration": {"A": at},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 1.0 + at, "unit": "ms"}],
        }
        for at in range(3)
    ],
}


def with_(record: dict, path: tuple, value) -> dict:
    """The record with another value at a path of keys."""
    changed = copy.deepcopy(record)
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


def nested(levels: int):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def many(names: int, values: int) -> dict:
    parameters = {f"P{at}": list(range(values)) for at in range(names)}
    row = dict.fromkeys(parameters, 0) | {"time": 1.0}
    return CACHE | {"tune_params_keys": list(parameters), "tune_params": parameters, "cache": {"0": row}}


def renamed(name: str) -> dict:
    rows = {key: {name: row["A"], "B": row["B"], "time": 1.0} for key, row in CACHE["cache"].items()}
    parameters = {name: [1, 2, 4], "B": ["x", "y"]}
    return CACHE | {"tune_params_keys": [name, "B"], "tune_params": parameters, "cache": rows}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (with_(CACHE, ("cache", "2,y", "time"), float("nan")), r"cache\['2,y'\]: time is nan, not a positive number"),
        (with_(CACHE, ("cache", "2,y", "time"), -1.0), r"cache\['2,y'\]: time is -1\.0"),
        (with_(CACHE, ("cache", "2,y", "time"), [1.0]), r"cache\['2,y'\]: time is \[1\.0\] \(list\)"),
        (with_(CACHE, ("cache", "1,x", "times"), [2.0, float("inf")]), r"cache\['1,x'\]: times is inf"),
        (with_(CACHE, ("cache", "1,x", "times"), 7), r"cache\['1,x'\]: TypeError"),
        (with_(CACHE, ("cache", "1,x"), 7), r"cache\['1,x'\]: TypeError"),
        (with_(CACHE, ("cache", "1,x", "A"), [1]), r"cache\['1,x'\]: A is \[1\] \(list\)"),
        (with_(CACHE, ("cache", "1,x", "A"), 3), r"cache\['1,x'\]: A is 3 \(int\), which is not one of its values"),
        (with_(CACHE, ("cache", "4,y", "time"), {}), r"cache\['4,y'\]: time is \{\} \(dict\)"),
        (with_(CACHE, ("tune_params", "A"), [1, 2, [4]]), r"tune_params\['A'\] is \[4\] \(list\)"),
        (with_(CACHE, ("tune_params", "A"), [1, 2, 10**400]), r"tune_params\['A'\] is 1000"),
        (with_(CACHE, ("tune_params", "A"), [1, 2, 2]), r"tune_params\['A'\] has no values, or a value twice"),
        (with_(CACHE, ("tune_params", "B"), ["x", "\x1b[31m"]), r"tune_params\['B'\] holds control characters"),
        (with_(CACHE, ("device_name",), "GPU\x07"), "device holds control characters"),
        (with_(CACHE, ("kernel_name",), "[bold]scale[/bold]"), r"op holds markup: '\[bold\]'"),
        (with_(CACHE, ("kernel_name",), ""), "op has 0 characters"),
        (with_(CACHE, ("problem_size",), nested(40)), "case_label|case is nested deeper"),
        (renamed("[/red]"), r"tune_params: a name holds markup"),
        (renamed("a\nb"), r"tune_params: a name holds control characters"),
        (many(40, 50), r"tune_params have 2\^225 points and more, of at most 2\^40"),
        (with_(T4, ("results", 1, "measurements", 0, "value"), float("nan")), r"results\[1\]: time is nan"),
        (with_(T4, ("results", 2, "configuration", "A"), [1]), r"results\[2\]: A is \[1\] \(list\)"),
        (with_(T4, ("results", 0, "invalidity"), "never heard of"), r"results\[0\]: KeyError"),
    ],
)
def test_what_others_may_have_written_is_refused_with_its_place(tmp_path, record, told):
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(record))
    begun = time.process_time()
    with pytest.raises(StoreError, match=told):
        load(path)
    assert time.process_time() - begun < 2


def test_depth_beyond_python_is_refused_with_line_and_column(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text('{"tune_params_keys":\n ' + "[" * 200_000 + "]" * 200_000 + "}")
    with pytest.raises(StoreError, match="line 2, column 101: nested deeper than 100 levels"):
        load(path)


def test_our_own_format_is_checked_too(tmp_path):
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(CACHE))
    ours = load(path).save(tmp_path / "ours.json")
    record = json.loads(ours.read_text())
    assert len(load(ours).trials) == 3
    for column, value, told in [
        ("measured_seconds", [-1.0, 1.0, None], r"configs\[0\]: measured_seconds is -1\.0"),
        ("measured_seconds", [1.0], r"configs|not a sweep"),
        ("outcome", ["ok", "splendid", "ok"], r"configs\[1\]: ValueError: unknown outcome 'splendid'"),
    ]:
        ours.write_text(json.dumps(with_(record, ("columns", column), value)))
        with pytest.raises(StoreError, match=told):
            load(ours)
    ours.write_text(json.dumps(record | {"basis": "guessed"}))
    with pytest.raises(StoreError, match="basis is 'guessed'"):
        load(ours)


def test_a_large_space_of_few_configurations_is_replayed_without_a_walk_through_it(tmp_path):
    path = tmp_path / "sparse.json"
    path.write_text(json.dumps(many(12, 8)))
    begun = time.process_time()
    space = space_of(load(path))
    run = tune("scale", device=f"replay:{path}")
    assert time.process_time() - begun < 5
    assert (space.raw_size, len(space), space.rejected) == (8**12, 1, {"recorded": 8**12 - 1})
    assert run.best.config == dict.fromkeys(space.parameters, 0)


def test_a_replay_in_a_terminal_says_what_is_wrong(tmp_path):
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(with_(CACHE, ("cache", "2,y", "time"), float("nan"))))
    done = CliRunner().invoke(main, ["tune", "paged_attention", "--device", f"replay:{path}"])
    assert done.exit_code != 0
    assert "cache['2,y']: time is nan" in done.output.replace("\n", " ")
