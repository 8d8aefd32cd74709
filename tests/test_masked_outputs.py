"""Masked comparison of notebook cells whose outputs differ from run to run."""

from __future__ import annotations

import json
import types
from collections import defaultdict
from pathlib import Path

import pytest
from masked_outputs import IGNORED, VARIES, masked, pytest_itemcollected

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize(
    ("stored", "run", "same"),
    [
        ("ok, error 9.60e-04 of 5.25e-03", "ok, error 1.2e-3 of 0.5", True),
        ("5 new, 0 from /tmp/tmpes3tjntm/tuning.sqlite", "12 new, 3 from /home/me/.cache/x/tuning.sqlite", True),
        ("SHA-256 9b5cf0808a557374", "SHA-256 00cf0808a5573aff", True),
        ("greedy      0.4% of  the space", "greedy 1,234.5% of the space", True),
        ("none  91   1.0x\n────────", "none 9,100 1x\n──────────────", True),
        ("2 of 2 passed", "2 of 2 passed, also negative", False),
        ("race: at source.cu:12", "barrier: at source.cu:12", False),
        ("<td>torch</td><td>cuda</td>", "<td>torch</td><td>triton</td>", False),
        ("bound by latency", "bound by memory", False),
        ("", "3", False),
    ],
)
def test_numbers_paths_and_hashes_differ_words_do_not(stored: str, run: str, same: bool):
    assert (masked(stored) == masked(run)) is same


@pytest.mark.parametrize(
    ("tags", "checked", "text"), [((), False, "a 3"), ((IGNORED,), True, "a N"), ((IGNORED, VARIES), True, "")]
)
def test_a_tagged_cell_is_compared(tags: tuple[str, ...], checked: bool, text: str):
    cell = types.SimpleNamespace(metadata={"tags": list(tags)})
    item = types.SimpleNamespace(cell=cell, options=defaultdict(bool), sanitize=lambda given: given)
    pytest_itemcollected(item)
    assert (item.options["check"], item.sanitize("a 3"), item.sanitize(3)) == (checked, text, 3)


def test_what_is_no_cell_is_left_alone():
    pytest_itemcollected(types.SimpleNamespace())


def test_only_cells_that_are_compared_with_masks_have_words_that_vary():
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            tags = cell["metadata"].get("tags", [])
            assert VARIES not in tags or IGNORED in tags, path
            assert "nbval" not in "".join(cell["source"]), f"{path}: a comment would leave a cell out of the comparison"
