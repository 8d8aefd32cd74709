"""A second run of a launch, with the warps in the opposite order and asynchronous copies that land at once.

It shows mistakes that the usual order, in which copies land as late as they may, hides.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.errors import KernelFault
from workbench.ptx import Finding, LaunchReport
from workbench.ptx.buffers import stored
from workbench.ptx.findings import UNDEFINED, widest_first
from workbench.ptx.launch import MachineLaunch
from workbench.ptx.options import UNDEFINED_BITS
from workbench.ptx.schedules import text_of
from workbench.ptx.tensor_map import TensorMap

DIFFERENCE = "results that copies' timing changes"
# Instructions whose results may rightly differ from order to order, or from run to run.
_OF_ORDER = re.compile(r"\b(atom|red|multimem|cp\.reduce)\.|%(clock|globaltimer)")
_OF_TIME = re.compile(r"%(clock|globaltimer)")


@dataclass(frozen=True)
class Rehearsal:
    """Result of a run in the opposite order of warps, with copies that land at once; memory is restored.

    ``fault`` is the fault that ended it, if any. ``results`` has the content of each argument at the end, for a kernel
    with copies whose results no order may change; else it is None. ``uses_undefined`` is True if memory depends on
    values that shuffles left undefined, None if they left none or if that cannot be told.
    """

    findings: Sequence[Finding]
    notes: Sequence[Finding]
    fault: KernelFault | None
    results: Sequence[tuple[str, Any, Any]] | None
    """(name, the array itself, its content)."""
    uses_undefined: bool | None

    def joined(self, report: LaunchReport) -> LaunchReport:
        """Return the usual order's report, with findings that only this run showed and the first differing result."""
        found, notes = _joined(report.findings, self.findings), _joined(report.notes, self.notes)
        if self.uses_undefined is not None:
            undefined = [one for one in (*found, *notes) if one.kind == UNDEFINED]
            found, notes = ([one for one in each if one.kind != UNDEFINED] for each in (found, notes))
            found += undefined if self.uses_undefined else []
        found = widest_first(found) or list(self._differences(report.kernel))[:1]
        return replace(report, findings=found, notes=notes)

    def _differences(self, kernel: str) -> Iterator[Finding]:
        for name, array, early in self.results or ():
            late, early = _bytes(array), _bytes(early)
            apart = np.flatnonzero(late != early)
            if not apart.size:
                continue
            message = (
                f"{kernel}: {DIFFERENCE}: {apart.size} bytes of {name}, the first at byte {apart[0]}, hold one value "
                "if copies land as late as they may and another if they land at once: a byte is read "
                "before the wait for the copy that writes it, or written before the wait for the copy that reads it"
            )
            origin = (0, 0, 0)
            yield Finding(
                DIFFERENCE, message, kernel, origin, origin, None, name, None, "", None, "", 0, None, int(apart.size)
            )


def _joined(these: Sequence[Finding], those: Sequence[Finding]) -> list[Finding]:
    known = {(finding.kind, finding.sides) for finding in these}
    return [*these, *(finding for finding in those if (finding.kind, finding.sides) not in known)]


def rehearse(launch: MachineLaunch) -> Rehearsal:
    """Run a launch in the opposite order of warps; arguments and variables are put back.

    If shuffles leave values undefined, a second run in that order gives them another value: the kernel uses them if
    memory then differs.
    """
    kernel, values = launch.runner, launch.values
    variables, text = kernel.program.variables, text_of(kernel)
    arrays = [value for value in (*values, *stored(values), *variables.values()) if _is_writable(value)]
    kept = [_copy(array) for array in arrays]
    plain = {"statistics": False, "record_block": None, "last_warp_first": True, "copies_early": True}
    findings, notes, fault, results, uses_undefined = [], [], None, None, None
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the kernel's printf is heard once
            report = launch.run(**plain)
            findings, notes = report.findings, report.notes
            if "cp.async." in text and not _OF_ORDER.search(text):
                results = [(name, array, _copy(array)) for name, array in _named(values, launch.names)]
            if any(one.kind == UNDEFINED for one in (*findings, *notes)) and not _OF_TIME.search(text):
                before = [_bytes(_copy(array)) for array in arrays]
                _put_back(arrays, kept)
                uses_undefined = _faults(launch, undefined=UNDEFINED_BITS[False], **plain) or any(
                    not np.array_equal(_bytes(array), old) for array, old in zip(arrays, before, strict=True)
                )
    except KernelFault as error:
        fault = error
    finally:
        _put_back(arrays, kept)
    return Rehearsal(findings, notes, fault, results, uses_undefined)


def _faults(launch: MachineLaunch, **options: Any) -> bool:
    try:
        launch.run(**options)
    except KernelFault:
        return True
    return False


def _put_back(arrays: Sequence[Any], kept: Sequence[Any]) -> None:
    for array, old in zip(arrays, kept, strict=True):
        array[...] = old


def _named(values: Sequence[object], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays among the arguments, and those that tensor maps among them describe."""
    for value, name in zip(values, names, strict=False):
        array = value.owner if isinstance(value, TensorMap) else value
        if _is_writable(array):
            yield name, array


def _is_writable(value: object) -> bool:
    flags = getattr(value, "flags", None)
    return hasattr(value, "shape") and hasattr(value, "__setitem__") and (flags is None or flags.writeable)


def _copy(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def _bytes(array: Any) -> np.ndarray:
    """Return the elements of a tensor or an array as bytes."""
    if hasattr(array, "untyped_storage"):
        import torch

        return array.contiguous().flatten().view(torch.uint8).numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
