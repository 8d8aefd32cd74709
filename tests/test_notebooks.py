"""The walk as its pages are written: their questions, length and time, and the cells that are folded away."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))
MOST_CELLS = 25
"""Code cells that a reader sees."""
FOLDED = {"jupyter": {"source_hidden": True}, "tags": ["remove-input"]}
"""Metadata that folds a cell away in JupyterLab and leaves its source out of the site."""

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["cells"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in cells(path) if cell["cell_type"] == "code"]


def folded(cell: dict[str, Any]) -> bool:
    return bool(cell["metadata"].get("jupyter")) or any("input" in tag for tag in cell["metadata"].get("tags", []))


def test_the_table_of_the_readme_has_every_notebook_and_its_question():
    rows = dict(
        re.findall(
            r"^\| \[`(\d\d\w+)`\]\(notebooks/\1\.ipynb\) \| (.*\?) \|$", (CHECKOUT / "README.md").read_text(), re.M
        )
    )
    assert list(rows) == [path.stem for path in NOTEBOOKS]
    for path in NOTEBOOKS[1:]:
        number = path.stem.partition("_")[0]
        assert source(cells(path)[0]).startswith(f"# {number} · {rows[path.stem]}\n"), path.name


@each
def test_its_first_cell_says_how_long_it_takes(path):
    said = r"\bpage takes (about|less than) half a minute on a laptop with two cores\b"
    assert re.search(said, source(cells(path)[0]))


@each
def test_its_folded_cells_are_folded_everywhere_and_show_nothing(path):
    for cell in filter(folded, code(path)):
        assert cell["metadata"] == FOLDED, source(cell)
        assert cell["outputs"] == [], "the reader would see an output of nothing"


@each
def test_its_plumbing_is_folded(path):
    for cell in code(path):
        lines = source(cell).splitlines()
        assert "temporary_home" not in source(cell), "wb.fresh_notebook() is beside the imports"
        only_asserts = all(line.startswith(("assert", " ", ")")) for line in lines)
        if only_asserts:
            assert folded(cell), source(cell)


@each
def test_it_is_short_and_was_run_from_top_to_bottom(path):
    assert sum(not folded(cell) for cell in code(path)) <= MOST_CELLS
    assert [cell["execution_count"] for cell in code(path)] == list(range(1, len(code(path)) + 1))
    assert not any("execution" in cell["metadata"] for cell in code(path)), "times of a run are no part of a page"
