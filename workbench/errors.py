"""Errors and warnings that the workbench raises on purpose.

An error names what was wrong, the value received, what is allowed and the remedy, so that the message alone is enough
to go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


class WorkbenchError(Exception):
    """Base of every error that the workbench raises on purpose."""


class ArgumentError(WorkbenchError, ValueError):
    """Unusable argument of a public function.

    The message reads ``<argument>: got <got>; allowed: <allowed>. <remedy>``, or "missing" where None was received.
    """

    def __init__(self, argument: str, got: object, allowed: str, remedy: str):
        self.argument = argument
        self.got = got
        self.allowed = allowed
        self.remedy = remedy
        said = "missing" if str(got) == "None" else f"got {got}"
        super().__init__(f"{argument}: {said}; allowed: {allowed}. {remedy}")


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Return "Did you mean ...?" with the known name that is most like a misspelt one, or an empty text."""
    from difflib import get_close_matches  # for an error alone

    found = get_close_matches(got, list(known), 1, 0.7)
    return f"Did you mean {found[0]}?" if found else ""


class UnknownNameError(ArgumentError):
    """Unknown name of an op, a variant, a case, a device, a kernel and so on; lists the known ones.

    The remedy begins with the known name that is most like the misspelt one, if there is one.
    """

    def __init__(self, argument: str, got: object, allowed: str, remedy: str):
        word = re.match(r"'(?:[^']*:)?([^':]*)'", str(got))  # of 'my_ops.py:softmx' the name alone
        near = did_you_mean(word[1] if word else str(got), allowed.split(", "))
        super().__init__(argument, got, allowed, f"{near} {remedy}".strip())


class UserFileError(WorkbenchError):
    """Error that a user's file raised while it was run; the message has the file's line and the error itself."""


class UnknownKeyError(UnknownNameError, KeyError):
    """Unknown key of a mapping; a KeyError too, so that the mapping's ``get`` returns its default."""

    __str__ = Exception.__str__  # KeyError's own is the repr of the message


class ConfigurationError(ArgumentError):
    """Configuration of tunables that breaks a rule of its variant; names the rule."""


class CompileError(WorkbenchError):
    """Source that a compiler refused.

    ``log`` holds the compiler's own lines with file and line, ``advice`` the remedy. The message has the first error in
    full and one line for each further diagnostic.
    """

    def __init__(self, message: str, log: str = "", advice: str = ""):
        self.log = log
        self.advice = advice
        super().__init__("\n".join(part for part in (message, _folded(log), advice) if part))


class HostCodeError(CompileError):
    """Source that NVRTC refused because of its host code, which nvcc compiles."""


_DIAGNOSTIC = re.compile(r"^\S[^\n]*?\b(error|warning|remark)\b[ :#]", re.MULTILINE)
_MOST_LINES = 8


def _folded(log: str) -> str:
    """Return a compiler's log with the first error first and one line for each other diagnostic.

    A log without errors stays unchanged.
    """
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
    """Compilation that ran past its limit and was stopped."""


class CompilerCrash(CompileError):
    """Compiler that ended without accepting or refusing the source."""


class MissingToolError(WorkbenchError):
    """Compiler, library or package that is needed and not installed; says how to get it."""


class CaseTooLargeError(WorkbenchError):
    """Case whose tensors do not fit into the memory of its device."""


class HostMemoryError(WorkbenchError, MemoryError):
    """Allocation on the host that failed for a launch on the PTX machine; names its size and how to need less."""


class DeviceUnavailableError(WorkbenchError):
    """A device that was requested by name and cannot run here; the message has the reason and the remedy."""


class UnsupportedInstructionError(WorkbenchError):
    """PTX that the machine does not execute; names the instruction, the PTX line and the source line."""


class KernelFault(WorkbenchError):
    """Kernel that stopped on an illegal access, a trap or a deadlock; names block, thread, address and line.

    ``finding`` is the PTX machine's own report (a ``workbench.ptx.Finding``); None on a GPU. ``order`` is the order of
    blocks and warps of a launch with a schedule (a ``workbench.ptx.schedules.Order``).
    """

    def __init__(self, message: str, finding: Any = None):
        self.finding = finding
        self.order: Any = None
        super().__init__(message)

    @property
    def told(self) -> str:
        """The message for a report, after the name of the work that the error ended."""
        return f"a launch ended early: {self}"


class KernelTimeout(KernelFault):
    """Kernel that ran past its instruction or time limit and was stopped."""


class HostCallFault(KernelFault):
    """Memory error in a call of cuBLAS or cuRAND, or in a read by the host; names the argument and the bytes.

    The memory is in no allocation, which ends the call, or was never written.
    """

    @property
    def ended(self) -> bool:
        """True if the error ended the call."""
        return self.finding is not None and self.finding.kind == "out-of-bounds"

    @property
    def told(self) -> str:
        """The message for a report, with the words that a call ended if the error ended one."""
        return f"a call ended early: {self}" if self.ended else str(self)


class WrongResultError(WorkbenchError):
    """Output of a kernel that misses its error bound against the float64 reference."""


class MachineCodeError(WorkbenchError):
    """Cubin that cannot be read: it is damaged, or of an unknown kind."""


class StoreError(WorkbenchError):
    """Tuning store or tuned table that cannot be read or written."""


class DocumentError(WorkbenchError, ValueError):
    """Saved result that cannot be read: it is damaged, or of another program; names the file and the place in it."""


class FileError(WorkbenchError, OSError):
    """File that cannot be written, for lack of space or otherwise; names it and the reason. It is left unchanged."""

    def __init__(self, message: str, errno: int | None = None):
        super().__init__(message)
        self.errno = errno


class UnsafeFileError(WorkbenchError):
    """File or folder of a cache that another account owns or can write; names it, the account and the remedy."""


class UnknownDeviceWarning(UserWarning):
    """Warning that a result depends on the GPU, which is not known; the message names the assumed one.

    It comes if no GPU was named and no model of the kernel's architecture is recorded.
    """


class PredictedTimeWarning(UserWarning):
    """Warning that Triton's benchmarks ran on the PTX machine, so their times are predicted; names the GPU meant."""


class UncheckedTypeWarning(UserWarning):
    """Warning that an array goes to a parameter whose type the source's text does not tell; names the parameter."""


class StaleTuningWarning(UserWarning):
    """Warning that a tuned configuration is used whose variant has changed since it was tuned; tune again."""


class StoreWarning(UserWarning):
    """Warning that a tuning store was damaged and mended, or that a tuned table cannot be read; names the remedy."""


class DamagedFileWarning(UserWarning):
    """Warning that a file of a cache was damaged; it was removed and is made anew."""
