"""Ops of installed packages, including this one, by name; each is loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from workbench.base import lazy

ENTRY_POINTS = "workbench.ops"
"""Group of entry points by which an installed package offers its ops, ``softmax = "my_package.ops:softmax"``."""

_loaded: dict[str, Any] = {}


def offered() -> Collection[str]:
    """Return the names of the ops that installed packages offer; none is loaded."""
    return lazy.offered(ENTRY_POINTS).keys()


def installed(name: str) -> Any:
    """Return the op of that name of an installed package, or None."""
    found = _loaded.get(name)
    if found is None and (point := lazy.offered(ENTRY_POINTS).get(name)) is not None:
        found = _loaded[name] = point.load()
    return found
