"""The watch of ``workbench run``, which sees every launch of a process, however it reaches the PTX machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import device_model, model_of_arch
from workbench.analysis.launches import Launches
from workbench.analysis.seen_launches import SeenLaunches, seen
from workbench.base.architectures import plain_arch
from workbench.base.time_limit import IDLE_SECONDS
from workbench.errors import KernelFault
from workbench.ptx.options import AS_ON_A_GPU

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel
    from workbench.analysis.host_calls import HostCall
    from workbench.analysis.launches import RecordedLaunch
    from workbench.analysis.refused_launches import RefusedLaunch
    from workbench.ptx import Finding, LaunchReport
    from workbench.ptx.launch import MachineLaunch
    from workbench.ptx.numerics import NumericsLog
    from workbench.ptx.options import LaunchDebugger, LaunchOptions
    from workbench.toolchain import CompiledKernel

_watch: Watch | None = None


@dataclass(frozen=True, eq=False)
class Watch:
    """Options under which the launches of a process run, and the collection that keeps them.

    Launches run with the ``checks`` (``strict`` ones too) and the ``trace`` that are set, for at most
    ``seconds_limit``; without one, they end after `IDLE_SECONDS` without progress. ``launches`` keeps them.
    ``counts`` keeps launches even without checks or a trace. With a list as ``idle``, launches of the driver's clients
    do nothing, and their kernels' names are added to it. ``model`` is the GPU for which times are predicted, if the
    kernel is compiled for its architecture. ``fmad``, ``schedules`` and ``first_schedule`` are those of
    `LaunchOptions`. With ``last_warp_first`` the warps of a block take turns in the opposite order, asynchronous
    copies land at once, and the clocks are those of a GPU. ``seen`` keeps the launches for proofs.
    With ``exact`` launches compute on elements of a ring. ``numerics`` is the log in which they follow infinities and
    NaN. With ``late`` what the driver's clients enqueue runs when they wait for it; a ``first_schedule`` other than 0
    then chooses some that runs earlier. A ``debugger`` stops launches.
    """

    launches: Launches
    model: DeviceModel
    checks: bool = False
    trace: bool = False
    seconds_limit: float | None = None
    strict: bool = False
    counts: bool = False
    idle: list[str] | None = None
    fmad: bool = True
    schedules: int = 0
    first_schedule: int = 0
    last_warp_first: bool = False
    seen: SeenLaunches | None = None
    exact: bool = False
    numerics: NumericsLog | None = None
    late: bool = False
    debugger: LaunchDebugger | None = None
    _known: set[str] = field(default_factory=set, init=False, repr=False)

    def is_new(self, kernel: CompiledKernel) -> bool:
        """Return True at the first call for a kernel."""
        known = kernel.key in self._known
        self._known.add(kernel.key)
        return not known

    def options(self, options: LaunchOptions) -> LaunchOptions:
        """Return a launch's options with those of the watch added."""
        seconds = self.seconds_limit if options.seconds_limit is None else options.seconds_limit
        if self.last_warp_first:
            options = replace(options, last_warp_first=True, copies_early=True, **AS_ON_A_GPU)
        return replace(
            options,
            checks=options.checks or self.checks,
            strict=options.strict or self.strict,
            fmad=options.fmad and self.fmad,
            schedules=options.schedules or self.schedules,
            first_schedule=options.first_schedule or self.first_schedule,
            statistics=options.statistics or self.trace,
            exact=options.exact or self.exact,
            numerics=options.numerics or self.numerics or False,
            debugger=options.debugger or self.debugger,
            seconds_limit=seconds,
            idle_limit=IDLE_SECONDS if seconds is None and options.idle_limit is None else options.idle_limit,
        )

    @property
    def names_arrays(self) -> bool:
        """True if clients should name the tensors that they pass (`workbench.driver.passed_tensors`)."""
        return self.checks or self.seen is not None

    def see(
        self, kernel: CompiledKernel, launch: MachineLaunch, names: Sequence[str] = (),
        arrays: Mapping[int, Any] | None = None,
    ) -> None:  # fmt: skip
        """Keep a launch that is about to run, if launches are kept for proofs; see `seen`."""
        if self.seen is not None:
            self.seen.add(seen(kernel, launch, names, arrays))

    def keep(
        self, kernel: CompiledKernel, report: LaunchReport, notes: Sequence[str] = (), model: DeviceModel | None = None,
        findings: Sequence[Finding] | None = None,
    ) -> RecordedLaunch | None:  # fmt: skip
        """Keep a launch that has ended; return None if nothing that needs it was asked for.

        ``findings`` replace the report's own, where the caller knows more than the report.
        """
        if not (self.checks or self.trace or self.counts or self.numerics):
            return None
        if model is None:
            model = self.model
            if model.arch != plain_arch(kernel.arch):
                model = model_of_arch(kernel.arch) or model
        found = report.findings if findings is None else findings
        return self.launches.add(kernel, report, model, found if self.checks else (), notes)

    def note(self, label: str, notes: Sequence[str]) -> None:
        """Add notes to the latest launch of a kernel, if checks were asked for."""
        if self.checks:
            self.launches.note(label, notes)

    def called(self, call: HostCall) -> None:
        """Keep a call of a library that computes on the host."""
        if self.checks or self.trace or self.exact:
            self.launches.called(call)

    def refuse(self, launch: RefusedLaunch) -> RefusedLaunch:
        """Keep a launch that was refused, and return it, or an earlier one that is alike."""
        return self.launches.refuse(launch)

    def failed(self, fault: KernelFault) -> None:
        """Keep the fault that ended a launch early."""
        self.launches.failed(fault)


def watch(one: Watch | None) -> None:
    """Watch every launch of this process from here on; None ends the watch."""
    global _watch
    _watch = one


def watched() -> Watch | None:
    """Return the watch of this process, if there is one."""
    return _watch


@contextmanager
def seeing(launches: SeenLaunches) -> Iterator[None]:
    """Keep the launches within the block for proofs, in all threads, beside what the process is watched for."""
    before = watched()
    watch(Watch(Launches(), device_model(), seen=launches) if before is None else replace(before, seen=launches))
    try:
        yield
    finally:
        watch(before)


@contextmanager
def unwatched() -> Iterator[None]:
    """Leave the launches within the block unwatched, in all threads."""
    before = watched()
    watch(None)
    try:
        yield
    finally:
        watch(before)
