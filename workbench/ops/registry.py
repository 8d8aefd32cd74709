"""The ops that there are, by name: those of this process, and those of installed packages, this one's own among
them."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping

from workbench.argument_kinds import names_wrong_kinds
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.op import Op

OWN: dict[str, Op] = {}
"""Those that this process has declared with `wb.op`, by name; the latest of a name."""

ENTRY_POINTS = "workbench.ops"
"""The group of entry points by which an installed package offers its ops, ``softmax = "my_package.ops:softmax"``."""

_loaded: dict[str, Op] = {}


@functools.cache
def offered() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Return what installed packages offer, by the op's name; nothing of it is loaded."""
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def installed(name: str) -> Op | None:
    """Return the op of that name of an installed package, or None."""
    found = _loaded.get(name)
    if found is None and name in offered():
        found = _loaded[name] = offered()[name].load()
    return found


@names_wrong_kinds
def get(op: str | Op) -> Op:
    """Return the op of that name: of this process, or of an installed package; an op itself as it is.

    Raises:
        UnknownNameError: there is none; lists the ones there are.
    """
    if isinstance(op, Op):
        return op
    found = OWN.get(op) or installed(op) if isinstance(op, str) else None
    if found is None:
        remedy = "One of your own is declared with @workbench.op; from a terminal it is FILE.py:NAME."
        raise UnknownNameError("op", repr(op), ", ".join([*offered(), *OWN]), remedy)
    return found


def register(op: Op) -> Op:
    """Make an op known by its name, in place of an older one. ArgumentError for that of an installed package's op."""
    if op.name in offered():
        allowed = "a name that no installed package's op has"
        raise ArgumentError("name", repr(op.name), allowed, 'Choose another: @wb.op(name="...").')
    OWN[op.name] = op
    return op
