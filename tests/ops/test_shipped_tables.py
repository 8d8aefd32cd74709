"""Tuned tables that come with the package: each of their entries answers a lookup of its own problem."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import pytest

from workbench import ops
from workbench.base.recorded import recorded_folders
from workbench.ops import tuned

TABLES = sorted(path for folder in recorded_folders("tuned") for path in folder.glob("*.json"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_each_entry_is_found_for_its_own_problem(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))  # no table of the user's own
    table = tuned.read_table(path)
    assert table.device == path.stem, "a lookup finds a table by the name of its file"
    if not path.stem.startswith("sim-"):
        assert path.stem == tuned.slug(table.description.split(" (")[0])
    assert table.entries
    for entry in table.entries:
        assert entry.basis == ("predicted" if path.stem.startswith("sim-") else "measured")
        op = ops.get(entry.op)
        case = op.case(entry.case)
        problem = dataclasses.replace(
            case.problem(op.variant(entry.variant).default_config(case.problem(arch=table.arch)), arch=table.arch),
            **{name: tuple(value) if isinstance(value, list) else value for name, value in entry.problem.items()},
        )
        assert tuned.problem_record(problem) == entry.problem
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a stale entry
            found = tuned.lookup(entry.op, entry.variant, problem, path.stem)
        assert (found.level, found.config) == ("exact", entry.config)
