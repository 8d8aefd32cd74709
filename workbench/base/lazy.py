"""Lazy imports: names of a package that are imported on first use, and entry points of installed packages."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def lazily(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; ``names`` maps each public name to the module with it."""

    def get(name: str) -> object:
        if name in names:
            value = getattr(importlib.import_module(names[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted(set(vars(sys.modules[package])) | set(names))

    return get, listed


_PLACES: dict[str, str] = {}


def hand_in(name: str, module: str) -> None:
    """Tell rooms below which module of a room above has the function ``name``, which they call but may not import."""
    _PLACES[name] = module


def handed_in(name: str) -> Callable[..., Any]:
    """Return the function that was handed in under that name; its module is imported now."""
    return getattr(importlib.import_module(_PLACES[name]), name)


@functools.cache
def offered(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group in all installed packages, by name, without loading them."""
    from importlib.metadata import entry_points  # 15 ms, which help and completion can do without

    return {point.name: point for point in entry_points(group=group)}
