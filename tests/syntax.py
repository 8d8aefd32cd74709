"""The syntax trees of modules, for tests that read the package: parsed once, and statements are found quickly."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


@functools.cache
def parsed(text: str) -> ast.Module:
    """Return the tree of a module, which nobody changes."""
    return ast.parse(text)


def within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a statement, with the handlers and cases that have more; expressions have none."""
    for name in _BODIES:
        yield from getattr(node, name, ())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all of them, those in functions and classes too."""
    for one in within(node):
        yield one
        yield from statements(one)
