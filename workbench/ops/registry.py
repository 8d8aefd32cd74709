"""The ops by name: those of this process, and those of installed packages, including this one."""

from __future__ import annotations

from workbench.base import lazy
from workbench.base.argument_kinds import names_wrong_kinds
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.installed import ENTRY_POINTS, installed, offered
from workbench.ops.op import Op

OWN: dict[str, Op] = {}
"""Ops that this process has declared with `wb.op`, by name; the latest of each name."""


@names_wrong_kinds
def get(op: str | Op) -> Op:
    """Return the op of that name, of this process or of an installed package. An op itself is returned as it is.

    Raises:
        UnknownNameError: there is none; lists the known ones.
    """
    if isinstance(op, Op):
        return op
    found = OWN.get(op) or installed(op) if isinstance(op, str) else None
    if found is None:
        remedy = "Declare your own op with @workbench.op; from a terminal it is FILE.py:NAME."
        raise UnknownNameError("op", repr(op), ", ".join([*offered(), *OWN]), remedy)
    return found


def register(op: Op, declared_in: str = "") -> Op:
    """Register an op under its name, in place of an older one.

    Raises ArgumentError for the name of an installed package's op, unless the module ``declared_in`` is the one that
    the package names, or inside it.
    """
    offering = lazy.offered(ENTRY_POINTS).get(op.name)
    if offering is not None and f"{declared_in}.".startswith(f"{offering.module}."):
        return op  # the very op, which is imported now
    if offering is not None:
        allowed = "a name that no installed package's op has"
        raise ArgumentError("name", repr(op.name), allowed, 'Choose another: @wb.op(name="...").')
    OWN[op.name] = op
    return op
