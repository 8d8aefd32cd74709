"""Puzzles behind ids: the notebooks' solutions pass as candidates, and wrong answers fail."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from workbench.judge import Judge
from workbench.puzzles import NAMES, puzzle
from workbench.service.puzzle_ops import op_of

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks" / "puzzles").glob("*.ipynb"))
SERVED = [name for name in NAMES if name not in ("paged_read", "ragged_prompt")]


def solutions() -> dict[str, str]:
    """The solutions in CUDA C++ by puzzle, each under the name that a candidate has."""
    cells = [cell for path in NOTEBOOKS for cell in json.loads(path.read_text())["cells"]]
    texts = ("".join(cell["source"]) for cell in cells if "solution" in cell["metadata"].get("tags", ()))
    found = (re.match(r"%%cuda (\w+)_solution.*\n", text) for text in texts)
    return {one[1]: one.string[one.end() :].replace(f"{one[1]}_solution", one[1]) for one in found if one}


@pytest.mark.parametrize("name", SERVED)
def test_a_solution_passes_and_one_that_writes_nothing_fails(name):
    text = solutions()[name]
    with Judge(op_of(puzzle(name)), seeds=[1], elsewhere=False) as judge:
        assert judge.check(f"// {name}\n{text}").ok
        nothing = re.sub(r"\{.*\}", "{}", text[text.index("__global__") :], flags=re.DOTALL)
        assert judge.check(f'extern "C"\n{nothing}').outcome == "unwritten"
