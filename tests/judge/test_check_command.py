"""``workbench check FILE.py:NAME``: what it prints and the status of each outcome."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest
from candidates import CHEATS, RIGHT
from click.testing import CliRunner, Result

from workbench.cli import main
from workbench.judge import OUTCOMES, SCHEMA_FILE

OP = f"{Path(__file__).with_name('judged_ops.py')}:row_softmax"


@pytest.fixture(autouse=True)
def _same_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def workbench(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def test_an_op_in_words_and_a_candidate_as_json(tmp_path: Path):
    done = workbench(OP, "--case", "odd", "--seeds", 1)
    assert done.exit_code == 0, done.output
    assert "row_softmax: 1 of 1 passed" in done.output
    path = tmp_path / "candidate.cu"
    path.write_text(RIGHT)
    done = workbench(OP, "--candidate", path, "--json", "--seed", 5, "--seed", 6)
    found = json.loads(done.output)
    jsonschema.validate(found, json.loads(SCHEMA_FILE.read_text()))
    assert (done.exit_code, found["outcome"], found["candidate"]) == (0, "ok", str(path))
    assert [one["seeds"] for one in found["verdicts"]] == [[5, 6], [5, 6]]


@pytest.mark.parametrize("name", ["constants", "writes past the output", "a missing barrier"])
def test_the_status_says_what_failed(tmp_path: Path, name: str):
    outcome, source = CHEATS[name]
    path = tmp_path / "candidate.cu"
    path.write_text(source)
    done = workbench(OP, "--candidate", path, "--case", "first", "--seeds", 1, "--json")
    found = json.loads(done.output)
    jsonschema.validate(found, json.loads(SCHEMA_FILE.read_text()))
    assert found["outcome"] == outcome
    assert done.exit_code == found["exit_status"] == OUTCOMES[outcome][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.py:f",), "There is no /"),
        ((f"{OP}s",), "row_softmax, shift_in_place, counted"),
        (("softmax_of_nobody",), "FILE.py:NAME"),
        ((OP, "--case", "large"), "first, odd"),
        ((OP, "--candidate", "nowhere.cu"), "There is no /"),
        ((OP, "--seeds", 0), "1 to 1000"),
        ((OP, "--seconds", "soon"), "not a valid float"),
    ],
)
def test_wrong_arguments_have_status_2(arguments: tuple, message: str):
    done = workbench(*arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_a_file_that_raises_has_status_2(tmp_path: Path):
    path = tmp_path / "broken_ops.py"
    path.write_text("raise SystemExit(0)\n")
    done = workbench(f"{path}:f")
    assert done.exit_code == 2
    assert "SystemExit" in done.output


def test_the_help_lists_every_outcome():
    text = workbench("--help").output
    assert all(f"{status:>4}  {name}: " in text for name, (status, _) in OUTCOMES.items())
