"""``CheckReport``, the findings of the checks in one launch, with their source lines, as text and HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from workbench.analysis.places import source_text
from workbench.base.tables import Table, Tabular
from workbench.base.terminal import say
from workbench.errors import ArgumentError, HostCallFault, KernelFault, WorkbenchError
from workbench.ptx.decode import is_installed
from workbench.toolchain.remarks import has_remarks, messages

if TYPE_CHECKING:
    from workbench.ptx import Finding, LaunchReport
    from workbench.toolchain import CompiledKernel


class ReportedProof(Protocol):
    """Protocol of the verdict of a proof, as `workbench.proof.launches.LaunchProof` has it."""

    @property
    def kernel(self) -> str:
        """Name of the kernel."""

    @property
    def status(self) -> str:
        """``"proved"``, ``"refuted"`` or ``"unknown"``."""

    @property
    def line(self) -> str:
        """The verdict in one line."""


@dataclass(frozen=True, repr=False)
class CheckReport(Tabular):
    """Findings of the checks in one launch: races between blocks first, then in a block, then in a warp.

    ``launch`` is the machine's own report. ``notes`` name what no check can judge and a reader should know; ``proofs``
    has the verdicts of `check` with ``prove=True``. A finding
    names its kind, the kernel, block and thread of its first occurrence, the address with its buffer, the source line
    (of both sides for a race) and the number of occurrences.
    """

    kernel: str
    findings: tuple[Finding, ...]
    launch: LaunchReport
    notes: tuple[str, ...] = ()
    proofs: tuple[ReportedProof, ...] = ()

    def __post_init__(self) -> None:
        if not self.launch.has_checks:
            raise ArgumentError(
                "check", "a launch without checks", "a launch with checks", "Launch with checks=True, or --check."
            )

    @property
    def ok(self) -> bool:
        """True if nothing was found, and no proof refutes the kernel."""
        return not self.findings and all(one.status != "refuted" for one in self.proofs)

    @property
    def _all_notes(self) -> tuple[str, ...]:
        return (*self.notes, *(_short(note) for note in self.launch.notes))

    def __bool__(self) -> bool:
        """Return True if nothing was found."""
        return self.ok

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        shape = " x ".join("x".join(map(str, size)) for size in (self.launch.grid, self.launch.block))
        head = f"{self.kernel}, {shape} threads: "
        count = f"{len(self.findings)} finding{'s' if len(self.findings) > 1 else ''}"
        return "\n".join([head + (count if self.findings else "nothing found"), *self.lines()])

    __repr__ = __str__

    def lines(self) -> list[str]:
        """Return each finding with its source lines, then the notes, as the lines below the head."""
        out = []
        for finding in self.findings:
            out.append(f"  {_place(finding.kernel_source, finding.kernel_line, finding.ptx_line)}: {_short(finding)}")
            out += [f"      {text}" for text in _lines(finding)]
        return [
            *out,
            *(f"  note: {note}" for note in self._all_notes),
            *(f"  proof: {one}" for one in self._proof_lines),
        ]

    @property
    def _proof_lines(self) -> tuple[str, ...]:
        used = () if self.launch.proof is None else (str(self.launch.proof),)
        return (*used, *(one.line for one in self.proofs))

    def about(self) -> Mapping[str, str]:
        """Return what was launched."""
        shapes = (" x ".join(map(str, size)) for size in (self.launch.grid, self.launch.block))
        return {"kernel": self.kernel, **dict(zip(("grid", "block"), shapes, strict=True))}

    def tables(self) -> list[Table]:
        """Return a table of one row per finding; without findings a title alone."""
        heads = () if not self.findings else ("kind", "line", "other side", "block, thread", "where", "count")
        rows = [_cells(finding) for finding in self.findings]
        notes = "\n".join(
            [*(f"note: {note}" for note in self._all_notes), *(f"proof: {one}" for one in self._proof_lines)]
        )
        return [Table(heads, rows, "lcclll" if rows else "", title=str(self).splitlines()[0], note=notes)]


def notes_on(names: Sequence[str], args: Sequence[Any], compiled_in: Iterable[object] = ()) -> tuple[str, ...]:
    """Return notes on arguments that a launch allows but that are often a mistake: tensors with strides.

    A pointer carries no strides. A tensor gets no note if its strides are among the numbers that the kernel receives,
    as arguments or in ``compiled_in``.
    """
    views = [
        (name, value)
        for name, value in zip(names, args, strict=False)
        if hasattr(value, "is_contiguous") and not value.is_contiguous()
    ]
    given = {int(one) for one in (*args, *compiled_in) if _is_whole(one)} if views else set()
    return tuple(
        f"{name} is a tensor of shape {tuple(value.shape)} with strides {tuple(value.stride())}: the kernel gets its "
        "address, but not its strides"
        for name, value in views
        if not {step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1 and step != 1} <= given
    )


def said_by_ptxas(kernel: CompiledKernel) -> tuple[str, ...]:
    """Return ptxas' messages on a kernel with instructions that it may ignore or serialize, such as ``setmaxnreg``.

    Other kernels are not assembled for that. The result is empty without an assembler, or if it refuses the code.
    """
    try:
        return messages(kernel.remarks) if has_remarks(kernel.ptx) else ()
    except WorkbenchError:
        return ()


def _is_whole(value: object) -> bool:
    """Return True for a whole number, or for the text of one, as macros have it."""
    return isinstance(value, int | np.integer) or (isinstance(value, str) and value.isdecimal())


def _place(source: str, line: int | None, ptx_line: int | None) -> str:
    if line:
        return f"{Path(source).name}:{line}"
    return f"PTX line {ptx_line}" if ptx_line else "the kernel's end"


def fault_text(fault: KernelFault) -> str:
    """Return the fault that ended a launch in the form of a finding: place, message, and source lines below."""
    finding = fault.finding
    if finding is None or isinstance(fault, HostCallFault):
        return fault.told
    place = _place(finding.kernel_source, finding.kernel_line, finding.ptx_line)
    message = _short(replace(finding, message=str(fault)))
    return "\n".join([f"a launch ended early: {place}: {message}", *(f"      {text}" for text in _lines(finding))])


def _short(finding: Finding) -> str:
    """Return the message with file names instead of paths, as a source passed as text lies in a cache folder."""
    message = finding.message
    for (source, _), (header, _), _ in _sides(finding):
        for path in filter(None, (source, header)):
            message = message.replace(path, Path(path).name)
    return message


def _sides(finding: Finding) -> list[tuple[tuple[str, int | None], tuple[str, int | None], int | None]]:
    """Return each side's line in the kernel's own file that uses the code, the code's own line, and its PTX line."""
    return [
        ((finding.kernel_source, finding.kernel_line), (finding.source, finding.line), finding.ptx_line),
        (
            (finding.other_kernel_source, finding.other_kernel_line),
            (finding.other_source, finding.other_line),
            finding.other_ptx_line,
        ),
    ]


def _lines(finding: Finding) -> list[str]:
    places = dict.fromkeys(
        place
        for used, stands, _ in _sides(finding)
        for place in (stands, used)
        if place[1] and not is_installed(place[0])
    )
    shown = [(_place(*place, None), source_text(*place, nowhere="").strip()) for place in places]
    return [f"{place}  {text}" for place, text in shown if text]


def _cells(finding: Finding) -> list[str]:
    def side(used: tuple[str, int | None], stands: tuple[str, int | None], ptx_line: int | None, near: bool) -> str:
        if not used[1] and not ptx_line:
            return ""
        text = source_text(*used, nowhere="").strip()
        shown = stands != used and stands[1] and not is_installed(stands[0])
        header = f" ({_place(*stands, None)})" if shown else ""
        return "near " * near + _place(*used, ptx_line) + header + (f"\n{text}" if text else "")

    sides = zip(_sides(finding), (finding.near, finding.other_near), strict=True)
    here, there = (side(*place, near) for place, near in sides)
    where = "" if finding.address is None else f"0x{finding.address:x}"
    if finding.buffer:
        where += f" ({finding.buffer})"
    return [
        finding.kind,
        here,
        there,
        f"{finding.block}, {finding.thread}",
        where,
        f"{finding.count:,}",
    ]


def show_report(report: CheckReport) -> None:
    """Display a report in a notebook; elsewhere print it to stderr."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from IPython.display import display

        display(report)
    else:
        say(report, err=True)
