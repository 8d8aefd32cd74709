"""The error by which a proof gives up, and the names of places in the kernel."""

from __future__ import annotations

import re

from workbench.errors import WorkbenchError
from workbench.ptx.parse import Statement


def line_of(statement: Statement) -> str:
    """Return the source line of a statement in the kernel's own file, or its line in the PTX."""
    _, line = statement.body.module.place_of(statement.location, in_kernel_file=True)
    return f"line {line}" if line else f"PTX line {statement.line}"


_CALLED = re.compile(r"(?:\([^)]*\)\s*,\s*)?([\w$%]+)")


def called(statement: Statement) -> str:
    """Return why a call is not followed, with the name of the function."""
    found = _CALLED.match(statement.operands)
    name = "" if found is None else found[1]
    if not name or name[0] == "%":
        return "a call through a pointer is not modelled"
    function = statement.body.module.functions.get(name)
    if function is not None and function.body_start is not None:
        return f"the call is not modelled: {name} was not inlined, which __forceinline__ asks for"
    return f"the call is not modelled: the code of {name} is not in the PTX"


class Unknown(WorkbenchError):
    """Something that the proofs do not model; names the statement."""

    def __init__(self, statement: Statement | None, reason: str):
        self.statement, self.reason = statement, reason
        place = "" if statement is None else f"{line_of(statement)}: "
        super().__init__(f"{place}{reason}" + ("" if statement is None else f" ({statement.text[:70]})"))
