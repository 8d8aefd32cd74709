"""The tuned tables: which entry a lookup takes, what it says about it, and that writing is safe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import toy

from workbench.errors import StaleTuningWarning, StoreError, StoreWarning, UnknownNameError
from workbench.ops import tuned
from workbench.ops.tuned import SIM_TABLE, TunedEntry, lookup, problem_record, user_folder
from workbench.tuning.result import table

VARIANT = toy.steps_variant(pages=(8, 16))
OTHER = toy.steps_variant(pages=(8, 16), name="other")
OP = toy.steps_op(VARIANT, OTHER)


@pytest.fixture(autouse=True)
def _nothing_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(tuned, "recorded_folders", lambda kind: (tmp_path / "shipped",))
    tuned.forget()
    yield
    tuned.forget()


def entry(steps: int, count: int = 64, page: int = 16, seconds: float = 1e-6, **changes) -> TunedEntry:
    problem = toy.ToyProblem(count, page=page, **changes.pop("problem", {}))
    found = TunedEntry(
        op="steps",
        variant="steps",
        problem=problem_record(problem),
        config={"STEPS": steps, "PAGE": page},
        seconds=seconds,
        basis="predicted",
        source_hash=VARIANT.source_hash,
        case="a case",
        default_config={"STEPS": 12, "PAGE": page},
        default_seconds=3e-6,
        recorded="2026-01-02",
    )
    return replace(found, **changes)


def write(*entries: TunedEntry, name: str = SIM_TABLE, arch: str = "sm_80", folder: Path | None = None):
    return table.record(entries, name=name, arch=arch, description="a device", folder=folder)


def find(count: int = 64, page: int | None = 16, variant="steps", device="sim", **options):
    return lookup(OP, variant, toy.ToyProblem(count, page=page), device, **options)


# -- which one --------------------------------------------------------------------------------------------------


def test_exact_then_nearest_then_architecture_then_default():
    assert (find().level, find().config) == ("default", {"STEPS": 12, "PAGE": 16})
    write(entry(1), name="another-gpu")
    assert (find().level, find().config["STEPS"]) == ("architecture", 1)
    write(entry(2, count=256), entry(3, count=4096))
    assert (find().level, find().config["STEPS"]) == ("nearest", 2)
    assert find(count=3000).config["STEPS"] == 3, "nearest in log space"
    write(entry(4))
    assert (find().level, find().config["STEPS"]) == ("exact", 4)


def test_another_architecture_is_no_help():
    write(entry(1), name="another-gpu", arch="sm_90")
    assert find().level == "default"


def test_the_running_page_size_restricts_the_choice_and_a_free_one_does_not():
    write(entry(1, page=8, seconds=1e-7), entry(2, page=16))
    assert find(page=16).config == {"STEPS": 2, "PAGE": 16}
    assert find(page=8).config == {"STEPS": 1, "PAGE": 8}
    assert find(page=None).config == {"STEPS": 1, "PAGE": 8}, "the faster one"
    assert find(page=None).level == "exact"


def test_another_dtype_or_layout_does_not_match():
    write(entry(1, problem={"dtype": "float16"}), entry(2, problem={"layout": "other"}))
    assert find().level == "default"


def test_among_variants_the_faster_one():
    write(entry(1, seconds=2e-6), replace(entry(2, seconds=1e-6), variant="other"))
    assert find(variant=None).variant == "other"
    assert find(variant="steps").variant == "steps"
    with pytest.raises(UnknownNameError, match="other"):
        find(variant="none such")


def test_an_entry_of_an_older_space_is_skipped():
    write(replace(entry(1), config={"STEPS": 1}), entry(2, count=128))
    assert find().config["STEPS"] == 2
    assert any("tunables" in line for line in find(explain=True).considered)


def test_a_stale_entry_is_used_only_if_there_is_no_better_and_says_so():
    write(replace(entry(1), source_hash="older"))
    with pytest.warns(StaleTuningWarning, match=r"wb\.tune\(steps\)"):
        assert find().stale
    assert "stale" in str(find(explain=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find().stale, "said once for a problem"
    write(replace(entry(2, seconds=9e-6), variant="other"))
    assert find(variant=None).variant == "other", "as near, and not stale"


def test_the_user_s_entry_replaces_the_shipped_one_of_the_same_problem():
    write(entry(1, seconds=1e-9), entry(5, count=128), folder=tuned.recorded_folders("tuned")[0])
    assert find().config["STEPS"] == 1
    write(entry(2))
    assert find().config["STEPS"] == 2
    assert find(count=128).config["STEPS"] == 5


def test_an_explanation_says_which_from_where_how_much_better_and_why_not_the_others():
    write(entry(1), entry(2, count=1024), entry(3, page=8))
    found = find(count=100, explain=True)
    text = str(found)
    assert "nearest match" in text
    assert "3.00 times the speed of the default" in text
    assert str(user_folder()) in text
    assert "predicted 1.00 µs" in text
    assert "page size: PAGE == page" in text
    assert "at distance" in text
    assert len(found.considered) == 2
    assert find(count=100).considered == ()


# -- writing ----------------------------------------------------------------------------------------------------


def test_a_slower_result_of_the_same_source_does_not_replace_a_faster_one():
    write(entry(1, seconds=1e-6))
    assert write(entry(2, seconds=2e-6))[1] == []
    assert find().config["STEPS"] == 1
    assert write(entry(1, seconds=1e-6))[1] == [], "nothing new"
    assert len(write(entry(1, seconds=2e-6))[1]) == 1, "the same configuration, measured again"
    assert len(write(replace(entry(2, seconds=3e-6), source_hash="newer"))[1]) == 1
    assert find(explain=True).config["STEPS"] == 2


@pytest.mark.long
def test_several_processes_lose_no_entry(tmp_path):
    code = "import sys, test_table as t\nfor i in range(10): t.write(t.entry(1, count=1000 * int(sys.argv[1]) + i))\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    processes = [subprocess.Popen([sys.executable, "-c", code, str(at)], env=environment) for at in (1, 2)]
    assert [process.wait() for process in processes] == [0, 0]
    path = user_folder() / f"{SIM_TABLE}.json"
    assert len(tuned.read_table(path).entries) == 20
    assert not list(user_folder().glob("*.tmp"))


HEAD = '{"format": 1, "device": "d", "arch": "sm_80", "description": "", "entries": [%s]}'
WRONG = {"problem": None, "config": [1], "seconds": "fast", "op": 3, "variant": None, "basis": {}, "source_hash": 1}
OUTSIDE = [{"seconds": 0}, {"seconds": -1e-6}, {"seconds": float("nan")}]


def altered(**fields: object) -> str:
    """The text of a table with one entry that has these values."""
    return HEAD % json.dumps(asdict(entry(1)) | fields, default=str)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"format": 1, "entries": 3}', '{"format": 99}', HEAD % "7", "\0" * 100),
        *(altered(**{name: value}) for name, value in WRONG.items()),
        *(altered(**fields) for fields in OUTSIDE),
    ],
)
def test_a_damaged_table_names_its_file_and_the_remedy(text):
    write(entry(1))
    path = user_folder() / f"{SIM_TABLE}.json"
    path.write_text(text)
    tuned.forget()
    with pytest.warns(StoreWarning, match=rf"{SIM_TABLE}\.json.*(Move it aside|Update).* defaults apply"):
        assert find().level == "default"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find()  # said once
    with pytest.raises(StoreError):
        write(entry(2))
    with pytest.raises(StoreError):
        table.check_usable(SIM_TABLE)
    assert path.read_text() == text, "it is left for its owner to look at"


def test_a_table_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="WORKBENCH_HOME"):
        write(entry(1))


# -- memory -----------------------------------------------------------------------------------------------------


def test_a_lookup_sees_what_another_process_wrote():
    write(entry(1))
    assert find().config["STEPS"] == 1
    path = user_folder() / f"{SIM_TABLE}.json"
    record = json.loads(path.read_text())
    record["entries"][0]["config"]["STEPS"] = 2
    time.sleep(tuned.LOOK_SECONDS)
    path.with_suffix(".new").write_text(json.dumps(record))
    os.replace(path.with_suffix(".new"), path)
    assert find().config["STEPS"] == 2
