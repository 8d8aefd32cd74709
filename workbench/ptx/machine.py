"""The build of the compiled core that suits this processor, and its instruction table."""

from __future__ import annotations

import os
from types import ModuleType
from typing import NamedTuple

from workbench.errors import DeviceUnavailableError
from workbench.ptx import _core as _first  # type: ignore[attr-defined]  # compiled


class Opcode(NamedTuple):
    """One row of the core's table; ``kind`` is one of ``core.Kind``."""

    number: int
    name: str
    kind: int
    group: str
    destinations: tuple[str, ...]
    sources: tuple[str, ...]


def _choose() -> ModuleType:
    """Return the x86-64-v3 build if the processor supports it; WORKBENCH_PTX_CORE=baseline or v3 overrides.

    An editable install has one build, for the processor that it was compiled on.
    """
    wanted = os.environ.get("WORKBENCH_PTX_CORE", "")
    if wanted not in ("", "baseline", "v3"):
        raise DeviceUnavailableError(
            f"WORKBENCH_PTX_CORE={wanted!r}: allowed are 'baseline' and 'v3'; unset it to choose by CPU."
        )
    if _first.TARGET != "baseline":
        if wanted == "baseline":
            raise DeviceUnavailableError(
                "WORKBENCH_PTX_CORE=baseline, but an editable install has a core for its own processor only, here "
                f"{_first.TARGET}: unset the variable, or install without -e."
            )
        return _first
    if wanted == "baseline" or (not wanted and not _first.supports_v3()):
        return _first
    if not _first.supports_v3():
        raise DeviceUnavailableError(
            "WORKBENCH_PTX_CORE=v3, but this processor lacks AVX2, FMA or BMI2: unset the variable."
        )
    from workbench.ptx import _core_v3  # type: ignore[attr-defined]  # compiled

    return _core_v3


core: ModuleType = _choose()
TARGET: str = core.TARGET


def _split(types: str) -> tuple[str, ...]:
    return tuple(types.split(",")) if types else ()


OPCODES: dict[str, Opcode] = {
    name: Opcode(index, name, kind, group, _split(destinations), _split(sources))
    for index, (name, kind, group, destinations, sources) in enumerate(core.instruction_table())
}
BRANCH, EXIT, CALL, RETURN = core.Kind.branch, core.Kind.exit, core.Kind.call, core.Kind.ret
NO_SLOT, TRUE_SLOT = core.NO_SLOT, core.TRUE_SLOT  # TRUE_SLOT always holds: the guard of steps that have none
# Columns of a row of code that hold an operand, or flags of an access to memory, whatever the instruction; core.Access
# and its like have those of the others.
_COLUMNS = core.ROW["names"]
ADDRESS: int
ADDRESS, MEMBER, FLAGS, NEGATED = map(_COLUMNS.index, ("address", "member", "flags", "negated"))
FRAGMENT = core.ROW["itemsize"] // 4  # from here on: results too many for a row
STRONG, RELEASE, UNORDERED, ASYNC_PROXY = core.STRONG, core.RELEASE, core.UNORDERED, core.ASYNC_PROXY
ACQUIRE, VOLATILE, BLOCK_SCOPE = core.ACQUIRE, core.VOLATILE, core.BLOCK_SCOPE
WORD_OF_ELEMENT, USES_OLD = core.WORD_OF_ELEMENT, core.USES_OLD
NARROW_BASE, WIDE_BASE, CLUSTER_BASE = core.NARROW_BASE, core.WIDE_BASE, core.CLUSTER_BASE
WIDTHS = {"pred": 0, "b8": 2, "b16": 2, "b32": 4, "b64": 8}
SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW = core.SHARED_WINDOW, core.LOCAL_WINDOW, core.PARAM_WINDOW
