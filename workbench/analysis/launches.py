"""Launches on the simulated devices of this process, each with its findings and its predicted time."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.analysis.seen_launches import SeenLaunches
from workbench.errors import ArgumentError, HostCallFault

if TYPE_CHECKING:
    from workbench.analysis.check_report import CheckReport
    from workbench.analysis.device_models import DeviceModel
    from workbench.analysis.host_calls import HostCall
    from workbench.analysis.prediction.predict import Prediction
    from workbench.analysis.refused_launches import RefusedLaunch
    from workbench.analysis.trace import Trace
    from workbench.errors import KernelFault
    from workbench.ptx import Finding, LaunchReport
    from workbench.toolchain import CompiledKernel


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch on a simulated device, the ``number``-th (from 1), with the machine's report and the GPU meant.

    Among launches that are alike (kernel, grid and block) the first keeps its counts line by line. The others keep
    ``seconds`` and a ``report`` without lines; ``like`` is the number of the first one.
    """

    number: int
    kernel: CompiledKernel
    report: LaunchReport
    model: DeviceModel
    findings: tuple[Finding, ...] = ()
    seconds: float | None = None
    bound_by: str = ""
    like: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def checked(self) -> bool:
        """True if the launch ran with checks."""
        return self.report.has_checks

    @property
    def check(self) -> CheckReport:
        """Findings of the checks in this launch. Raises ArgumentError if it was not checked."""
        from workbench.analysis.check_report import CheckReport

        return CheckReport(self.kernel.label, self.findings, self.report, self.notes)

    @property
    def trace(self) -> Trace:
        """The launch line by line. Raises ArgumentError if it was not traced, or if an earlier one has its counts."""
        if self.like is not None or not self.report.has_statistics:
            got, remedy = "a launch without counts", "Ask for trace=True."
            if self.like is not None:
                got = f"one like launch {self.like}, which has the counts"
                remedy = f"Take that one: launches[{self.like - 1}].trace."
            raise ArgumentError(f"launch {self.number}", got, "the first launch of its kind, traced", remedy)
        from workbench.analysis.trace import trace_of

        return trace_of(self.kernel, self.report, self.report.shared_bytes - self.kernel.static_shared_bytes)

    def __repr__(self) -> str:
        shape = ", ".join("x".join(map(str, size)) for size in (self.report.grid, self.report.block))
        count = len(self.findings)
        found = f", {count} finding{'s' if count > 1 else ''}" if count else "" if self.checked else ", not checked"
        time = "" if self.seconds is None else f", predicted {self.seconds * 1e6:.2f} µs"
        return f"<launch {self.number} of {self.kernel.label}, {shape}{time}{found}>"


class Launches:
    """Launches of a process or of a block of code, in order; several threads may add to it.

    With ``keep_all`` launches that are alike keep their counts too. ``seen`` has what proofs need, if a watch fills it.
    """

    def __init__(self, keep_all: bool = False) -> None:
        self._keep_all = keep_all
        self._lock = threading.Lock()
        self._rows: list[RecordedLaunch] = []
        self.faults: list[KernelFault] = []
        self.host_calls: list[HostCall] = []
        self.refused: list[RefusedLaunch] = []
        self.seen = SeenLaunches()
        self._first: dict[tuple[object, ...], int] = {}

    def add(
        self, kernel: CompiledKernel, report: LaunchReport, model: DeviceModel, findings: Any = (),
        notes: Sequence[str] = (),
    ) -> RecordedLaunch:  # fmt: skip
        """Keep a launch; if it has statistics, predict its time."""
        prediction = prediction_of(kernel, report, model) if report.has_statistics else None
        with self._lock:
            number = len(self._rows) + 1
            alike = (kernel.key, report.grid, report.block, self._keep_all and number)
            like = self._first.setdefault(alike, number)
            if like != number:
                report = replace(report, lines=[], buffers=())
            row = RecordedLaunch(
                number, kernel, report, model, tuple(findings),
                prediction.seconds if prediction else None, prediction.bound_by if prediction else "",
                None if like == number else like, tuple(notes),
            )  # fmt: skip
            self._rows.append(row)
        return row

    def note(self, label: str, notes: Sequence[str]) -> RecordedLaunch | None:
        """Add notes to the latest launch of a kernel with this label, and return it; return None if there is none."""
        with self._lock:
            at = next((at for at in range(len(self._rows) - 1, -1, -1) if self._rows[at].kernel.label == label), None)
            if at is None:
                return None
            row = self._rows[at] = replace(self._rows[at], notes=(*self._rows[at].notes, *notes))
        return row

    def called(self, call: HostCall) -> None:
        """Keep a call of a library that computes on the host."""
        with self._lock:
            self.host_calls.append(replace(call, after=len(self._rows)))

    def take(self) -> Launches:
        """Return the launches kept so far as a collection of their own, and start anew."""
        taken = Launches(self._keep_all)
        with self._lock:
            taken._rows, self._rows = self._rows, []
            taken.faults, self.faults = self.faults, []
            taken.host_calls, self.host_calls = self.host_calls, []
            self._first = {}
        taken.refused = self.take_refused()
        return taken

    def failed(self, fault: KernelFault) -> bool:
        """Keep the fault that ended a launch early; return False for a call of the host that has it already.

        A loop makes one finding of the reads at its line.
        """
        with self._lock:
            if isinstance(fault, HostCallFault) and any(_alike(fault, one) for one in self.faults):
                return False
            self.faults.append(fault)
        return True

    def take_refused(self) -> list[RefusedLaunch]:
        """Return the refused launches, and forget them."""
        with self._lock:
            taken, self.refused = self.refused, []
        return taken

    def refuse(self, launch: RefusedLaunch) -> RefusedLaunch:
        """Keep a launch that was refused, and return it; one like an earlier one adds to the count of that."""
        with self._lock:
            known = next((one for one in self.refused if one.key == launch.key), None)
            if known is None:
                self.refused.append(launch)
                return launch
            known.count += 1
            known.asked &= launch.asked
            return known

    @property
    def unasked(self) -> list[RefusedLaunch]:
        """Refused launches whose error the program did not read."""
        return [one for one in self.refused if not one.asked]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: launch by launch, the faults that ended launches early, refused launches not asked about."""
        found = [finding for row in self for finding in row.findings]
        found += [fault.finding for fault in self.faults if fault.finding is not None]
        return tuple(found + [one.finding for one in self.unasked])

    def __iter__(self) -> Iterator[RecordedLaunch]:
        return iter(tuple(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __repr__(self) -> str:
        kernels = ", ".join(dict.fromkeys(row.kernel.label for row in self)) or "none"
        return f"<{len(self)} launches: {kernels}>"


def _alike(one: KernelFault, other: KernelFault) -> bool:
    """Return True for findings of one kind at one line of the host; a finding without a line is like no other."""
    here, there = one.finding, other.finding
    if here is None or there is None or here.line is None:
        return False
    return (here.kind, here.kernel, here.buffer, here.sides) == (there.kind, there.kernel, there.buffer, there.sides)


def prediction_of(kernel: CompiledKernel, report: LaunchReport, model: DeviceModel) -> Prediction:
    """Predict the time of a launch that ran with statistics."""
    from workbench.analysis.prediction.predict import predict

    if kernel.language != "triton":  # Triton declares its shared memory when it compiles
        kernel = replace(kernel, dynamic_shared_bytes=max(report.shared_bytes - kernel.static_shared_bytes, 0))
    return predict(report, kernel, math.prod(report.block), math.prod(report.grid), model)
