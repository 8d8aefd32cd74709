"""The package's types are right where mypy can see them, and what has a public name says what it does."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from syntax import parsed, statements

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "workbench"

SAID_ELSEWHERE = {"setter", "overload", "jit"}
"""Decorators of what is documented where it is read, where it is implemented, by its module and steps."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@pytest.fixture(scope="module")
def names() -> list[tuple[str, str]]:
    """Modules, each with a public name that it offers."""
    packages = [path.parent for path in PACKAGE.rglob("__init__.py") if "__all__" in path.read_text()]
    modules = [".".join(package.relative_to(CHECKOUT).parts) for package in sorted(packages)]
    return [(module, name) for module in modules for name in importlib.import_module(module).__all__]


@pytest.fixture(scope="module")
def reported(names: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """Run mypy once: its errors in the package, and the types that it reveals of the public names."""
    pytest.importorskip("mypy")
    program = tmp_path_factory.mktemp("mypy") / "program.py"
    program.write_text(
        "".join(
            f"from {module} import {name} as name_{number}; reveal_type(name_{number})\n"
            for number, (module, name) in enumerate(names)
        )
    )
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", os.devnull, PACKAGE.name, program]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=600)
    revealed = re.compile(rf'{re.escape(program.name)}:(\d+): note: Revealed type is "(.*)"$')
    lines = [(line, revealed.search(line)) for line in done.stdout.splitlines()]
    types = {int(found[1]): found[2] for _, found in lines if found}
    findings = "\n".join([line for line, found in lines if not found]) + done.stderr
    assert done.returncode == 0 or findings
    return findings, [types[number] for number in sorted(types)]


def test_mypy_finds_nothing(reported):
    assert reported[0] == ""


def test_every_public_name_has_a_type(reported, names):
    """For who imports it from where it is offered: a type checker sees it there, and it is no Any."""
    types = reported[1]
    assert len(types) == len(names)
    pairs = zip(names, types, strict=True)
    untyped = [name for name, kind in pairs if kind == "Any" or kind.startswith("def (*Any, **Any)")]
    assert untyped == []


def bases(node: ast.ClassDef) -> list[str]:
    """The last words of the classes that it derives from: ``Tracer`` of ``sys.Tracer[int]``."""
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def public(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, Definition]]:
    """Functions, classes and their methods whose names, and their owners', have no underscore in front."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield f"{owner}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{owner}{node.name}.")


def undocumented(texts: dict[str, str]) -> list[str]:
    """Public names without a docstring, by module, but for methods that a class above documents."""
    trees = {name: parsed(text) for name, text in texts.items()}
    classes = {
        node.name: node for tree in trees.values() for node in statements(tree) if isinstance(node, ast.ClassDef)
    }

    def inherited(name: str, above: list[str]) -> bool:
        for base in above:
            if base not in classes:
                continue
            for node in classes[base].body:
                if isinstance(node, Definition) and node.name == name and ast.get_docstring(node, clean=False):
                    return True
            if inherited(name, bases(classes[base])):
                return True
        return False

    found = []
    for module, tree in trees.items():
        if any(part.startswith("_") for part in module.split(".")):
            continue
        for name, node in public(tree.body):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            owner, _, last = name.rpartition(".")
            above = bases(classes[owner.rpartition(".")[2]]) if owner else []
            if (
                not ast.get_docstring(node, clean=False)
                and not decorators & SAID_ELSEWHERE
                and not inherited(last, above)
            ):
                found.append(f"{module}.{name}")
    return found


def test_every_public_name_has_a_docstring():
    texts = {
        ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    found = undocumented(texts)
    assert not found, "\n".join(["without a docstring:", *found])


def test_planted_names_without_a_docstring_are_found():
    texts = {
        "package.a": (
            'class Base:\n    """..."""\n    def run(self):\n        """..."""\n    def stop(self): ...\n'
            "def alone(): ...\ndef _hidden(): ...\n@triton.jit\ndef kernel(): ...\n"
        ),
        "package.b": "class Derived(a.Base[int]):\n    def run(self): ...\n    def stop(self): ...\n",
        "package._c": "def alone(): ...\n",
    }
    assert undocumented(texts) == [
        "package.a.Base.stop", "package.a.alone", "package.b.Derived", "package.b.Derived.stop",
    ]  # fmt: skip
