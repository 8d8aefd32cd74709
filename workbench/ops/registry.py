"""The ops that there are, by name: the workbench's, those of this process, those of installed packages."""

from __future__ import annotations

import importlib.metadata

from workbench.argument_kinds import names_wrong_kinds
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.op import Op

BUILT_IN: dict[str, Op] = {}
"""Filled by ``workbench.ops``, which imports each."""

OWN: dict[str, Op] = {}
"""Those that this process has declared with `wb.op`, by name; the latest of a name."""

ENTRY_POINTS = "workbench.ops"
"""The group of entry points by which an installed package offers its ops, ``softmax = "my_package.ops:softmax"``."""


@names_wrong_kinds
def get(op: str | Op) -> Op:
    """The op of that name: of the workbench, of this process, or of an installed package; an op itself as it is.

    Raises:
        UnknownNameError: there is none; lists the ones there are.
    """
    if isinstance(op, Op):
        return op
    found = BUILT_IN.get(op) or OWN.get(op) if isinstance(op, str) else None
    if found is None:
        offered = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
        if op not in offered:
            remedy = "One of your own is declared with @workbench.op; from a terminal it is FILE.py:NAME."
            raise UnknownNameError("op", repr(op), ", ".join([*BUILT_IN, *OWN, *offered]), remedy)
        found = offered[op].load()
    return found


def register(op: Op) -> Op:
    """Make an op known by its name, in place of an older one. ArgumentError for that of a built-in op."""
    if op.name in BUILT_IN:
        raise ArgumentError(
            "name", repr(op.name), "a name that no built-in op has", 'Choose another: @wb.op(name="...").'
        )
    OWN[op.name] = op
    return op
