"""Names of the package: a class name means one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "workbench"

SHARED = {
    "PagedCache": "`models.PagedCache` serves this package's model, `models.hf.PagedCache` those of transformers; "
    "each is the only one that its module's readers meet",
}
"""Class names of several classes, with the reason."""


def texts() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE.parent)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def classes(files: Mapping[str, str]) -> dict[str, list[str]]:
    """The files of every public class at the top of a module, by the class's name."""
    found = defaultdict(list)
    for file, text in files.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(file)
    return found


def test_a_class_name_means_one_class():
    several = {name: files for name, files in classes(texts()).items() if len(files) > 1}
    assert several.keys() == SHARED.keys(), several


def test_planted_names_are_found():
    files = {
        "a.py": 'class Row:\n    """What a row is."""\n',
        "b.py": 'class Row:\n    """A row."""\n',
        "c.py": 'class _Row:\n    """Whatever."""\n',
    }
    assert classes(files) == {"Row": ["a.py", "b.py"]}
