"""One launch in the PTX machine with all checks, and its findings as the fields of a verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from workbench.base.architectures import plain_arch
from workbench.base.busy import OwnDeadline
from workbench.errors import ArgumentError, KernelFault, UnsupportedInstructionError
from workbench.judge.description import InvalidDescription
from workbench.judge.outcomes import further, of_finding
from workbench.ops.values import Check, Launch
from workbench.ptx import LaunchOptions, Program
from workbench.ptx.findings import ORDER
from workbench.ptx.options import AS_ON_A_GPU
from workbench.ptx.parse import ParsedModule, PtxSyntaxError, parse
from workbench.toolchain.kernel import CompiledKernel
from workbench.toolchain.occupancy import LIMITS, limits_of
from workbench.toolchain.shared_memory import static_shared_bytes

_MAX_FINDINGS = 32
_ADDRESS_ON_A_GPU = 0x7F00 << 32


@dataclass(frozen=True)
class RunOrder:
    """The order of warps in which a candidate's launches run: in words, and as options of the launches."""

    words: str
    options: Mapping[str, Any]

    @classmethod
    def scheduled(cls, seed: int) -> RunOrder:
        """Return the order of a schedule's seed; the checks look at the other two."""
        return cls(f"schedule {seed}", {"schedule": seed, "checks": False})

    def unchecked(self) -> RunOrder:
        """Return the same order without the checks, on one core as with them."""
        return RunOrder(self.words, {**self.options, "checks": False, "threads": 1})


USUAL = RunOrder("the usual order of warps", {})
OPPOSITE = RunOrder(
    "the last warp first",
    {
        "last_warp_first": True,
        "copies_early": True,  # a copy that is not waited for is wrong in one of the two runs
        # A kernel that recognises the machine by what it sees is wrong in one of the two as well.
        "first_address": _ADDRESS_ON_A_GPU,
        **AS_ON_A_GPU,
    },
)
ORDERS = (OPPOSITE, USUAL)
"""The orders in which each candidate runs for each seed."""


class Failed(Exception):
    """A candidate's failure: the fields of a verdict."""

    def __init__(self, outcome: str, message: str, **fields: Any):
        self.fields = {"outcome": outcome, "message": message, **fields}
        super().__init__(message)


def refuse(check: Check, when: str, unwritten: str, causes: Sequence[str]) -> NoReturn:
    """Raise Failed for an output of kernels that is wrong.

    ``unwritten`` says which part of it is as it was before the launch; it is empty if none is. ``causes`` explain the
    error.
    """
    fields = {"place": check.place, "max_error": check.max_error, "bound": check.bound}
    if unwritten:
        raise Failed("unwritten", f"{unwritten} ({when})", **fields)
    found = f"error {check.max_error:.3g}, bound {check.bound:.3g} ({when})"
    raise Failed("wrong_result", "; ".join(filter(None, (check.place, found, *causes))), **fields)


def valid(make: Callable, *content: Any) -> Any:
    """Return ``make(*content)`` of a candidate's data. Raises Failed for its errors, which are the candidate's."""
    try:
        return make(*content)
    except InvalidDescription as error:
        raise Failed("invalid", f"no description of launches: {error}") from error
    except (UnsupportedInstructionError, PtxSyntaxError) as error:
        raise Failed("unsupported", str(error)) from error
    except MemoryError:
        raise
    except Exception as error:
        raise Failed("invalid", f"PTX that cannot be read: {type(error).__name__}: {error}") from error


def kernel_of(text: str, entry: str, label: str, read: ParsedModule | None = None) -> CompiledKernel:
    """Return the kernel as far as the checks of a launch look at it, from its PTX, or what was ``read`` of that."""
    module = valid(parse, text) if read is None else read
    if entry not in module.entries:
        raise Failed("invalid", f"no kernel {entry[:60]!r} in its PTX: {', '.join(module.entries) or 'none'}")
    arch = plain_arch(module.arch)
    return CompiledKernel(
        entry, label, "cuda", arch if arch in LIMITS else "sm_80", text, f"{entry}\n{text}",
        valid(static_shared_bytes, module).get(entry, 0), None, 0, "", 0.0, False, module.entries[entry].parameters,
    )  # fmt: skip


def launch(
    program: Program,
    kernel: CompiledKernel,
    given: Launch,
    names: Sequence[str | None],
    unwritten: Collection[str],
    *,
    order: RunOrder,
    deadline: OwnDeadline,
) -> dict[object, str]:
    """Run one kernel, with all checks but in a schedule; return its notes, on sums and on the use of a proof.

    Raises Failed with what the machine found.

    ``names`` are those of the arguments that are tensors; nothing has been written to the ``unwritten`` ones.
    """
    checks = order.options.get("checks", True)
    try:
        options = LaunchOptions(
            names=[f"argument {i}" for i in range(len(names))],
            uninitialised=[
                place
                for place, (name, one) in enumerate(zip(names, given.arguments, strict=True))
                if checks and name in unwritten and isinstance(one, torch.Tensor) and one.numel()
            ],
            seconds_limit=max(deadline.left, 0.01),
            repeats=True,  # whoever compiled it: what reaches nothing is not a fault of the kernel's
            follow_addresses=False,  # a number that a candidate passes leads nowhere, not even to the answer
            **{"checks": True, **order.options},
        )
        bound = program[kernel.name].bind(
            given.grid, given.block, given.arguments, options, shared_bytes=given.shared_bytes,
            signature=kernel.signature, limits=limits_of(kernel.arch),
        )  # fmt: skip
        report = bound.run()
    except KernelFault as error:
        found = finding_record(error.finding, names)
        message = f"{found['message']} (with {order.words})"
        raise Failed(of_finding(found["kind"]), message, line=found["line"], findings=[found]) from error
    except (UnsupportedInstructionError, ArgumentError) as error:
        raise Failed("unsupported", str(error)) from error
    if report.findings:
        findings = [finding_record(finding, names) for finding in report.findings]
        first = findings[0]
        message = first["message"] + further(len(findings))
        raise Failed(of_finding(first["kind"]), message, line=first["line"], findings=findings[:_MAX_FINDINGS])
    sums = [note for note in report.notes if note.kind == ORDER]
    notes: dict[object, str] = {(note.kernel, note.sides): finding_record(note, names)["message"] for note in sums}
    if report.proof is not None:
        notes[kernel.name, str(report.proof)] = f"{kernel.name}, proof: {report.proof}"
    return notes


def finding_record(finding: Any, names: Sequence[str | None]) -> dict:
    """Return a finding as plain values, with tensors by their names and files without their folders."""
    message = finding.message
    for path in filter(
        None, (finding.source, finding.kernel_source, finding.other_source, finding.other_kernel_source)
    ):
        message = message.replace(path, Path(path).name)
    by_place = {str(i): name for i, name in enumerate(names) if name}
    message = re.sub(r"\bargument (\d+)", lambda match: by_place.get(match[1], match[0]), message)
    return {
        "kind": finding.kind,
        "message": message,
        "line": _line(finding),
        "block": list(finding.block),
        "thread": list(finding.thread),
        "count": finding.count,
    }


def _line(finding: Any) -> str:
    return f"{Path(finding.kernel_source).name}:{finding.kernel_line}" if finding.kernel_line else ""
