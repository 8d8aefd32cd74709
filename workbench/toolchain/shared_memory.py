"""Static shared memory of kernels, from their PTX: a launch needs it before there is machine code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.ptx.parse import ParsedModule, PtxVariable

_DECLARATION = re.compile(r"(?<![\w.])\.shared\b[^;]*")
_WITH_NAMES = re.compile(rf"{_DECLARATION.pattern}|[\w$]+")


def static_shared_bytes(module: ParsedModule) -> dict[str, int]:
    """Return the static shared memory per block, in bytes, of each ``.entry`` that has any, laid out as by ptxas.

    A kernel has the variables declared in its body and in the functions it calls, and the module's variables that they
    name, one after the other at their alignments. Dynamic shared memory follows, so the sum is rounded up to the
    largest alignment of the module's ``.extern`` arrays, whether the kernel names them or not.
    """
    if ".shared" not in module.text:
        return {}
    shared = [variable for variable in module.variables.values() if variable.space == "shared"]
    outside = {variable.name: variable for variable in shared if not variable.external}
    unit = max((variable.align for variable in shared if variable.external), default=1)
    sizes = {}
    for name, entry in module.entries.items():
        end = 0
        for variable in _declared(module, outside, (entry.body_start, entry.body_end), set()):
            end = -(-end // variable.align) * variable.align + variable.size
        if end:
            sizes[name] = -(-end // unit) * unit
    return sizes


def _declared(
    module: ParsedModule, outside: Mapping[str, PtxVariable], body: tuple[int, int], seen: set[str]
) -> Iterator[PtxVariable]:
    """Yield the variables of a kernel or function in the order of its text, then those of the functions that it calls.

    ``outside`` holds the module's own variables, ``seen`` the names of variables and functions met before.
    """
    from workbench.ptx.parse import parse_variable

    called = list[tuple[int, int]]()
    pattern = _WITH_NAMES if outside or module.functions else _DECLARATION
    for match in pattern.finditer(module.text, *body):
        name = match[0]
        if name[0] == ".":
            variable = parse_variable(name)
            if variable is not None and not variable.external:
                yield variable
        elif name not in seen and (name in outside or name in module.functions):
            seen.add(name)
            if name in outside:
                yield outside[name]
            elif (start := module.functions[name].body_start) is not None:
                called.append((start, module.functions[name].body_end))
    for other in called:
        yield from _declared(module, outside, other, seen)
