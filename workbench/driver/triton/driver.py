"""Triton on the PTX machine: its own JIT, compiler and autotuner, with CPU tensors and without a GPU.

`simulated_triton` replaces Triton's active driver. Triton then compiles as it does for a GPU of that architecture, down
to the PTX. Its last stage, the assembler, runs when registers or machine code are first read.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.check_report import notes_on, said_by_ptxas
from workbench.analysis.device_models import DeviceModel, device_model, device_models, model_of_arch
from workbench.analysis.launches import Launches, prediction_of
from workbench.analysis.watching import watched
from workbench.base.architectures import MACHINE_ARCHS, plain_arch
from workbench.base.argument_kinds import names_wrong_kinds
from workbench.base.time_limit import Limit, seconds_of
from workbench.driver.observing import observed
from workbench.driver.triton.session import TritonSession
from workbench.driver.triton.sessions import running, start, stop
from workbench.errors import (
    ArgumentError,
    DeviceUnavailableError,
    MissingToolError,
)
from workbench.ptx.options import LaunchOptions

if TYPE_CHECKING:
    from workbench.driver.triton.rows import Rows
    from workbench.ptx import Finding, LaunchReport, PtxKernel

DEFAULT_ARCH = "sm_80"


@names_wrong_kinds
def simulated_triton(
    arch: str | None = None,
    model: str | DeviceModel | None = None,
    checks: bool = False,
    trace: bool = False,
    *,
    inductor: bool = False,
    store: str | Path | None = None,
    force: bool = False,
    seconds_limit: Limit = "auto",
) -> SimulatedTriton:
    """Run Triton's kernels on the PTX machine in this process: ``kernel[grid](...)`` on CPU tensors, without a GPU.

    It is active from the call on; as a context manager until its block ends, when Triton gets its driver back::

        with wb.simulated_triton("sm_80", checks=True) as triton_device:
            softmax_kernel[(rows,)](y, x, columns, BLOCK=1024)
        triton_device.findings

    ``arch`` is ``"sm_80"``, ``"sm_89"``, ``"sm_90"``, ``"sm_100"`` or ``"sm_120"`` (default: the model's, else sm_80);
    Triton compiles for sm_90a, sm_100a and sm_120a, and these names mean the same. ``model`` is the GPU whose
    properties are reported and for which times are predicted. With ``checks`` every launch is checked for races,
    illegal accesses and the like; it shows its findings at once and goes on. With ``trace`` the counts of each source
    line are kept. ``launches`` holds the launches that ran with either. A launch may take ``seconds_limit`` seconds
    (default: 60 in a notebook, else no limit; None for no limit).

    With ``inductor``, ``torch.compile`` writes Triton for tensors on the CPU too: the kernels of a compiled model run,
    and are checked and traced, like any others. Operations that torch computes with libraries (matrix products, mostly)
    stay on the CPU, unless ``mode="max-autotune"`` has templates for them.

    The times of ``@triton.autotune`` and ``triton.testing.do_bench`` are predicted, and one PredictedTimeWarning says
    so. With ``store``, the path of a tuning store, each time becomes a row in it
    (`workbench.base.trials.store.Store`).

    Raises ArgumentError for an unknown architecture, for one that is not the model's, if TRITON_INTERPRET is set, and
    for ``inductor`` within another session with it; UnknownNameError for an unknown model; DeviceUnavailableError if
    there is a real GPU, unless ``force``; MissingToolError without Triton, and for ``inductor`` without torch's
    Inductor.
    """
    try:
        from triton import knobs
    except ImportError as error:
        raise MissingToolError(f"Triton cannot be imported ({error}). python -m pip install triton") from error
    if not hasattr(knobs.runtime, "add_stages_inspection_hook"):
        raise MissingToolError("This version of Triton has no hook for its stages. python -m pip install 'triton>=3.7'")
    found = checked_model(arch, model)
    refuse_interpreter()
    seconds_limit = seconds_of(seconds_limit)
    if not force and (name := _real_gpu()) is not None:
        raise DeviceUnavailableError(
            f"simulated_triton() would replace a real GPU, {name}. Pass force=True to run on the PTX machine."
        )
    options = LaunchOptions(checks=checks, statistics=trace, seconds_limit=seconds_limit)
    return SimulatedTriton(found, options, inductor=inductor, store=store)


def refuse_interpreter() -> None:
    """Raise ArgumentError if Triton's own interpreter would run the kernels."""
    from triton import knobs

    if knobs.runtime.interpret:
        raise ArgumentError(
            "TRITON_INTERPRET", "set", "unset", "Its interpreter replaces the compiler; unset it before importing."
        )


def checked_model(arch: str | None, model: str | DeviceModel | None) -> DeviceModel:
    """Return the device model for an architecture, a model, or both.

    Raises ArgumentError for an architecture that no model has, or that is not the given model's.
    """
    found = device_model(model) if model is not None else None
    if arch is not None and plain_arch(arch) not in MACHINE_ARCHS:
        raise ArgumentError("arch", repr(arch), ", ".join(MACHINE_ARCHS), "The PTX machine runs code for these.")
    if arch is not None and found is not None and found.arch != plain_arch(arch):
        raise ArgumentError("arch", repr(arch), f"{found.arch}, that of {found.name}", "Leave one of the two out.")
    found = found or model_of_arch(arch or DEFAULT_ARCH)
    assert found is not None  # each of `MACHINE_ARCHS` has one
    return found


def active_model() -> DeviceModel | None:
    """Return the device model of the active session; None without one."""
    return running[-1].model if running else None


@functools.cache
def _real_gpu() -> str | None:
    from workbench.driver import simulated

    if (running := simulated.current()) is not None:
        return None if running.simulated else running.name
    return simulated.real_device()


class SimulatedTriton(TritonSession):
    """Triton's simulated device: ``launches`` holds its checked or traced launches, ``findings`` their findings.

    ``model`` is the GPU it stands for, ``arch`` its architecture, ``options`` are those of every launch,
    ``last_report`` is the machine's report of the latest one. Findings are shown at once, unless the caller passed
    ``launches`` of its own. ``close()`` gives Triton its driver back, as the end of a
    ``with`` block does.
    """

    def __init__(
        self,
        model: DeviceModel,
        options: LaunchOptions,
        *,
        inductor: bool = False,
        store: str | Path | None = None,
        launches: Launches | None = None,
        both_orders: bool = False,
        unwritten: Sequence[object] = (),
    ):
        from workbench.driver.triton.launcher import TritonDriver

        self.model, self.arch, self.options = model, model.arch, options
        self.launches = Launches() if launches is None else launches
        self._shows = launches is None
        self.last_report: LaunchReport | None = None
        self.cleared = 0  # number of requests for clean caches by benchmarks
        self._both_orders = both_orders
        self._unwritten = tuple(unwritten)  # tensors without content yet
        self._clock, self._timed = 0.0, False
        self._lock, self._thread = threading.Lock(), threading.local()
        self._looked_at: weakref.WeakSet[PtxKernel] = weakref.WeakSet()  # kernels whose masked loads are known
        self.previous: Any = None
        self.driver = TritonDriver(self)
        self._compiling = contextlib.ExitStack()
        self.inductor = inductor
        if inductor and any(session.inductor for session in running):
            raise ArgumentError("inductor", True, "one session with it at a time", "Close the other one first.")
        self._rows: Rows | None = None
        if store is not None:
            from workbench.driver.triton.rows import Rows

            self._rows = Rows(store)
        start(self)
        if inductor:
            self._start_inductor()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the checks, launch by launch."""
        return self.launches.findings

    @property
    def shipped_model(self) -> str:
        """Key of the shipped device model whose attributes complete a user's ``model``."""
        shipped = device_models().get(self.model.key) or model_of_arch(self.arch) or device_model()
        return shipped.key

    def close(self) -> None:
        """Give Triton its earlier driver back. A second call does nothing."""
        self._compiling.close()
        stop(self)
        if self._rows is not None:
            self._rows.close()

    def _start_inductor(self) -> None:
        from workbench.driver.triton.inductor import compiling

        try:
            self._compiling.enter_context(compiling(self))
        except BaseException:
            stop(self)
            raise

    def __enter__(self) -> SimulatedTriton:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        asked = ("checked", self.options.checks), ("traced", self.options.statistics)
        modes = "".join(f", {mode}" for mode, on in asked if on)
        state = "" if self in running else ", closed"
        return f"<Triton on the PTX machine as {self.model}{modes}, {len(self.launches)} launches kept{state}>"

    # -- what the driver calls ------------------------------------------------------------------------------------

    def launch(
        self, function: Any, launcher: Any, grid: Any, block: int, values: list[Any], shared: int, cluster: Any
    ) -> None:
        """Run one launch; check, trace, time and keep it as the session's options ask."""
        if getattr(self._thread, "unseen", False):
            beside = LaunchOptions(repeats=True, cluster=cluster, threads=1, follow_addresses=False)
            function.bind(grid, block, values, beside, shared_bytes=shared).run()
            return
        timing = getattr(self._thread, "timing", False)
        checks, trace = self.options.checks, self.options.statistics
        timed = trace or self._timed or timing
        unwritten = [at for at, value in enumerate(values) if any(value is one for one in self._unwritten)]
        options = replace(
            self.options, statistics=timed, names=launcher.names, repeats=True, cluster=cluster, uninitialised=unwritten
        )
        if launcher.programmatic and self.last_report is not None:
            options = replace(options, overlapped=self.last_report.footprint)
        watch = watched()
        if watch is not None and watch.launches is self.launches:
            watch = None  # the session of `workbench run` itself
        if watch is not None:
            options = watch.options(options)
        new = options.checks and not timing and function not in self._looked_at
        if new:
            self._looked_at.add(function)
        bound = function.bind(grid, block, values, options, shared_bytes=shared)
        if (process := watched()) is not None and not timing:
            process.see(launcher.compiled(function), bound)
        report, notes = observed(
            bound,
            masked_loads_of=launcher.compiled(function) if new else None,
            both_orders=self._both_orders,
            unwritten=unwritten,
            failed=[self.launches.failed, *([] if watch is None else [watch.failed])],
        )
        self.last_report = report
        if options.checks:
            notes += notes_on(launcher.names, values, launcher.configuration(()).values())
            notes += said_by_ptxas(launcher.compiled(function)) if new else ()
        findings = tuple(report.findings) if checks else ()
        if watch is not None:
            watch.keep(launcher.compiled(function), report, notes, self.model)
        if checks or trace:
            kept = self.launches.add(launcher.compiled(function), report, self.model, findings, notes if checks else ())
            seconds = kept.seconds
            if findings or kept.notes:
                self._show(kept.check)
        elif timed:
            seconds = prediction_of(launcher.compiled(function), report, self.model).seconds
        if timing and self._rows is not None:
            kernel = launcher.compiled(function)
            self._rows.keep(launcher, kernel, report, prediction_of(kernel, report, self.model), self.model, values)
        if timed:
            assert seconds is not None  # predicted from the statistics
            with self._lock:
                self._clock += seconds
            if timing:
                self._thread.seconds.append(seconds)

    @property
    def checked(self) -> bool:
        """True if launches run with checks, for this session or for the process."""
        watch = watched()
        return self.options.checks or (watch is not None and watch.checks)

    def note(self, label: str, text: str) -> None:
        """Add a note to the latest launch of a kernel, and show it."""
        watch = watched()
        if watch is not None and watch.launches is not self.launches:
            watch.note(label, [text])
        if self.options.checks and (kept := self.launches.note(label, [text])) is not None:
            self._show(kept.check)

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """Leave this thread's launches within the block unchecked, untimed and unrecorded."""
        outer, self._thread.unseen = getattr(self._thread, "unseen", False), True
        try:
            yield
        finally:
            self._thread.unseen = outer

    def now(self) -> float:
        """Return the predicted seconds of all launches since the first call."""
        self._say_predicted()
        self._timed = True
        return self._clock

    def predicted(self, work: Callable[[], Any]) -> float:
        """Return the predicted seconds of the launches of ``work`` in this thread; nan without a launch."""
        self._say_predicted()
        outer = getattr(self._thread, "timing", False), getattr(self._thread, "seconds", [])
        self._thread.timing, self._thread.seconds = True, []
        try:
            work()
            return sum(self._thread.seconds) if self._thread.seconds else math.nan
        finally:
            self._thread.timing, self._thread.seconds = outer

    def _show(self, report: Any) -> None:
        if self._shows:
            from workbench.analysis.check_report import show_report

            show_report(report)

    def _say_predicted(self) -> None:
        if not self._timed and not getattr(self, "_said", False):
            self._said = True
            from workbench.driver.triton.timing import warn_of_prediction

            warn_of_prediction(self.model, stacklevel=4)
