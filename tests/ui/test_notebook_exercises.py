"""Every notebook ends with an exercise that checks itself, and its solution passes the check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason='no notebooks: python -m pip install -e ".[lab,test]"')

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
_SOLUTION = re.compile(r"<details>\s*<summary>A solution</summary>.*?```python\n(.*?)\n *```", re.DOTALL)

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def exercise(notebook) -> tuple[int, str]:
    """The place of the cell for the reader's answer, and the solution that is folded below its check."""
    cells = notebook.cells
    (at,) = [place for place, cell in enumerate(cells) if "answer" in cell.metadata.get("tags", ())]
    solution = _SOLUTION.search(cells[at + 2].source)
    assert solution, "a solution is folded below the check"
    lines = solution[1].splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return at, "\n".join(line[indent:] for line in lines)


def names_bound(source: str) -> set[str]:
    tree = ast.parse(source)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return defined | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_it_ends_with_an_exercise_that_checks_itself(path):
    notebook = nbformat.read(path, 4)
    at, solution = exercise(notebook)
    answer, check, folded = notebook.cells[at : at + 3]
    assert "## Exercise" in notebook.cells[at - 1].source
    assert len(notebook.cells) - at <= 4, "it is the end of the notebook"
    assert "# yours" in answer.source
    assert "assert" in check.source
    assert "not answered yet" in check.source
    assert "".join(output.text for output in check.outputs).endswith("not answered yet\n")
    assert folded.source.count("<details>") >= 2, "a hint and a solution"
    wanted = {ast.unparse(target) for node in ast.parse(answer.source).body for target in _targets(node)}
    assert wanted <= names_bound(solution), "the solution gives what the answer's cell asks for"


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.FunctionDef):
        return [ast.Name(node.name)]
    (target,) = node.targets
    return target.elts if isinstance(target, ast.Tuple) else [target]


@pytest.mark.long
def test_its_solution_passes_the_check(path):
    nbclient = pytest.importorskip("nbclient", reason='no notebooks: python -m pip install -e ".[lab,test]"')
    notebook = nbformat.read(path, 4)
    at, solution = exercise(notebook)
    notebook.cells[at].source = solution
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    said = "".join(output.text for output in notebook.cells[at + 1].outputs if output.output_type == "stream")
    assert "solved" in said
    assert "not answered yet" not in said
