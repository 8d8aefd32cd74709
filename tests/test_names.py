"""Names and docstrings of the package: a class name means one class, a docstring opens with a verb or a noun."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from syntax import parsed, statements

PACKAGE = Path(__file__).parents[1] / "workbench"

SHARED = {
    "PagedCache": "`models.PagedCache` serves this package's model, `models.hf.PagedCache` those of transformers; "
    "each is the only one that its module's readers meet",
}
"""Class names of several classes, with the reason."""

OPENERS = "What|Of|Who|Whether|Those|The same|Likewise|Where|How|Which|Why|That of"
"""Words that no docstring opens with: such a sentence leans on the name above it, and says nothing in a tooltip."""


def texts() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE.parent)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def classes(files: Mapping[str, str]) -> dict[str, list[str]]:
    """The files of every public class at the top of a module, by the class's name."""
    found = defaultdict(list)
    for file, text in files.items():
        for node in parsed(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(file)
    return found


def docstrings(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every string that stands as a statement."""
    for file, text in files.items():
        for node in statements(parsed(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield f"{file}:{node.lineno}", node.value.value.strip()


def leaning(files: Mapping[str, str]) -> list[str]:
    return [f"{at}: {text[:60]}" for at, text in docstrings(files) if re.match(rf"({OPENERS})\b", text)]


def test_a_class_name_means_one_class():
    several = {name: files for name, files in classes(texts()).items() if len(files) > 1}
    assert several.keys() == SHARED.keys(), several


def test_docstrings_open_with_a_verb_or_a_noun():
    found = leaning(texts())
    assert not found, "\n".join(found)


def test_planted_names_and_openers_are_found():
    files = {
        "a.py": 'class Row:\n    """What a row is."""\n',
        "b.py": 'class Row:\n    """A row."""\n    at = 1\n    """Of the row."""\n',
        "c.py": 'class _Row:\n    """Whatever."""\n',
    }
    assert classes(files) == {"Row": ["a.py", "b.py"]}
    assert leaning(files) == ["a.py:2: What a row is.", "b.py:4: Of the row."]
