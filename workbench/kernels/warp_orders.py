"""A launch in both orders of the warps: mistakes that the usual order hides."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from workbench.errors import KernelFault
from workbench.ptx import Finding, Program
from workbench.ptx.arguments import stored


def rehearse(program: Program, values: Sequence[object], launch: Any) -> tuple[list[Finding], KernelFault | None]:
    """The findings of a run in the opposite order of warps, or what ended it; arguments and variables are put back.

    So is what addresses in the arguments lead to.
    """
    arrays = [value for value in (*values, *stored(values), *program.variables.values()) if _is_writable(value)]
    kept = [array.clone() if hasattr(array, "clone") else array.copy() for array in arrays]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the kernel's printf is heard once
            return launch(last_warp_first=True).findings, None
    except KernelFault as error:
        return [], error
    finally:
        for array, old in zip(arrays, kept, strict=True):
            array[...] = old


def _is_writable(value: object) -> bool:
    flags = getattr(value, "flags", None)
    return hasattr(value, "shape") and hasattr(value, "__setitem__") and (flags is None or flags.writeable)


def together(findings: Sequence[Finding], before: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of the usual order, and those that only the other order showed."""

    known = {(finding.kind, finding.sides) for finding in findings}
    return (*findings, *(finding for finding in before if (finding.kind, finding.sides) not in known))
