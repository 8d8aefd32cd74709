"""Static stages, which cost milliseconds: if a Python candidate parses, and what it imports.

They save the judge's time and give a trainer a signal. They protect nothing: Python has many other ways to a module.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Sequence

from workbench.service.stages import FAILED, NOT_REACHED, PASSED, SKIPPED, VerdictStage

FORBIDDEN = (
    "ctypes", "cffi", "gc", "inspect", "multiprocessing", "pickle", "pty", "signal", "socket", "subprocess",
    "workbench.judge", "workbench.service",
)  # fmt: skip
"""Modules that a candidate must not import, with all that they contain, unless the server is given others."""

_IMPORTING = ("__import__", "import_module")


def static_stages(text: str, language: str, forbidden: Sequence[str]) -> tuple[VerdictStage, VerdictStage]:
    """Return the stages ``parses`` and ``imports`` of a candidate's text."""
    if language != "python":
        message = "CUDA C++ is parsed by its compiler"
        return VerdictStage("parses", SKIPPED, message=message), VerdictStage("imports", SKIPPED, message=message)
    began = time.perf_counter()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # also null bytes, deep nesting
        stage = VerdictStage("parses", FAILED, 0.0, time.perf_counter() - began, f"{type(error).__name__}: {error}")
        return stage, VerdictStage("imports", NOT_REACHED, 0.0)
    parsed = time.perf_counter()
    found = [f"line {line} imports {name}" for line, name in _imports(tree) if _is_among(name, forbidden)]
    seconds = time.perf_counter() - parsed
    imports = VerdictStage("imports", FAILED if found else PASSED, 0.0 if found else 1.0, seconds, "; ".join(found[:5]))
    return VerdictStage("parses", PASSED, 1.0, parsed - began), imports


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _IMPORTING:
                yield node.lineno, str(node.args[0].value)


def _is_among(name: str, forbidden: Sequence[str]) -> bool:
    return any(f"{name}.".startswith(f"{one}.") for one in forbidden)
