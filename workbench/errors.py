"""Every error that the workbench raises on purpose.

An error names what was wrong, what came, what is allowed and the remedy, so that the message alone is
enough to go on.
"""

from __future__ import annotations

import re
from typing import Any


class WorkbenchError(Exception):
    """Base of every error that the workbench raises on purpose."""


class ArgumentError(WorkbenchError, ValueError):
    """An argument of a public function that cannot be used.

    The message reads: ``<argument>: got <got>; allowed: <allowed>. <remedy>``.
    """

    def __init__(self, argument: str, got: object, allowed: str, remedy: str):
        self.argument = argument
        self.got = got
        self.allowed = allowed
        self.remedy = remedy
        super().__init__(f"{argument}: got {got}; allowed: {allowed}. {remedy}")


class UnknownNameError(ArgumentError):
    """A name (of an op, a variant, a case, a device, a kernel …) that does not exist; lists the ones that do."""


class UnknownKeyError(UnknownNameError, KeyError):
    """A name that a mapping does not have; a KeyError too, so that the mapping's ``get`` answers with its default."""

    __str__ = Exception.__str__  # KeyError's own is the repr of the message


class ConfigurationError(ArgumentError):
    """A configuration of tunables that breaks a rule of its variant; names the rule."""


class CompileError(WorkbenchError):
    """A compiler refused the source. ``log`` holds the compiler's own lines with file and line, ``advice`` what to do.

    The message has the first error in full and of what else the compiler said a line each.
    """

    def __init__(self, message: str, log: str = "", advice: str = ""):
        self.log = log
        self.advice = advice
        super().__init__("\n".join(part for part in (message, _folded(log), advice) if part))


class HostCodeError(CompileError):
    """NVRTC refused a source because of its host code, which nvcc compiles."""


_DIAGNOSTIC = re.compile(r"^\S[^\n]*?\b(error|warning|remark)\b[ :#]", re.MULTILINE)
_MOST_LINES = 8


def _folded(log: str) -> str:
    """A compiler's log, the first error first, the rest as one line each; unchanged where it has no errors."""
    found = [*_DIAGNOSTIC.finditer(log)]
    if not found:
        return log.rstrip()
    starts = [mark.start() for mark in found]
    parts = [log[start:end].strip() for start, end in zip(starts, [*starts[1:], len(log)], strict=True)]
    first = next((part for part, mark in zip(parts, found, strict=True) if mark[1] == "error"), None)
    if first is None or len(parts) == 1:
        return log.rstrip()
    heads = [part.splitlines()[0] for part in parts if part is not first]
    lines = [log[: starts[0]].strip(), first, "also:", *(f"  {head}" for head in heads[:_MOST_LINES])]
    lines += [f"  and {len(heads) - _MOST_LINES} more, in .log"] * (len(heads) > _MOST_LINES)
    return "\n".join(filter(None, lines))


class CompileTimeout(CompileError):
    """A compiler ran past its limit and was stopped."""


class CompilerCrash(CompileError):
    """A compiler ended before it had said whether it takes the source."""


class MissingToolError(WorkbenchError):
    """A compiler, library or package that is needed and not installed; says how to get it."""


class CaseTooLargeError(WorkbenchError):
    """The tensors of a case do not fit into the memory of its device."""


class HostMemoryError(WorkbenchError, MemoryError):
    """The PTX machine gets no memory for a launch; names what it asked for and how to need less."""


class DeviceUnavailableError(WorkbenchError):
    """A device that was asked for by name and cannot run here; says why and what to do."""


class UnsupportedInstructionError(WorkbenchError):
    """PTX that the machine does not execute: names the instruction, the PTX line and the source line."""


class KernelFault(WorkbenchError):
    """A kernel stopped on an illegal access, a trap or a deadlock; names block, thread, address and line.

    ``finding`` is the PTX machine's own account of it (a ``workbench.ptx.Finding``); None on a GPU.
    """

    def __init__(self, message: str, finding: Any = None):
        self.finding = finding
        super().__init__(message)


class KernelTimeout(KernelFault):
    """A kernel ran past its instruction or time limit and was stopped."""


class HostCallFault(KernelFault):
    """A call of cuBLAS or cuRAND was given memory that is in no allocation, which ends it, or that nobody wrote; names
    the argument and the bytes."""

    @property
    def ended(self) -> bool:
        """True where the call did not come to its end."""
        return self.finding is not None and self.finding.kind == "out-of-bounds"


class WrongResultError(WorkbenchError):
    """A kernel's output misses its error bound against the float64 reference."""


class MachineCodeError(WorkbenchError):
    """A cubin whose content cannot be read: it is damaged, or of a kind that is not known."""


class StoreError(WorkbenchError):
    """A tuning store or a tuned table that cannot be read or written."""


class FileError(WorkbenchError, OSError):
    """A file that cannot be written, for lack of space or otherwise; names it and the reason. It is as it was."""

    def __init__(self, message: str, errno: int | None = None):
        super().__init__(message)
        self.errno = errno


class UnknownDeviceWarning(UserWarning):
    """Something depends on the GPU, none is named and none of its architecture is recorded; says what was assumed."""


class PredictedTimeWarning(UserWarning):
    """Times that look measured are predicted: Triton's benchmarks ran on the PTX machine; names the GPU meant."""


class UncheckedTypeWarning(UserWarning):
    """An array is passed for a parameter whose type the source's text does not tell; names the parameter."""


class StaleTuningWarning(UserWarning):
    """A tuned configuration is used whose variant has changed since it was tuned; tune again."""


class StoreWarning(UserWarning):
    """A tuning store was damaged, and mended, or a tuned table cannot be read; says what holds now, and the remedy."""
