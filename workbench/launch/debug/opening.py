"""``debug_kernel``: stop inside a launch of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.base.argument_kinds import checked_kinds
from workbench.driver.triton.calls import KernelCall, is_jit, run_call
from workbench.errors import ArgumentError
from workbench.launch.checking import bound_call
from workbench.launch.debug.control import LaunchControl
from workbench.launch.debug.session import DebugSession, StopLike
from workbench.ptx import LaunchOptions

BUDGET = 256 << 20
"""Bytes of memory that the way back of a session may take."""


def open_session(
    run: Callable[[LaunchOptions], Any], options: LaunchOptions, *, launch: int = 0, budget: int = BUDGET,
    stop: StopLike | Sequence[StopLike] = (),
) -> DebugSession:  # fmt: skip
    """Return a session over launch number ``launch`` of what ``run`` runs with the options that it gets.

    Raises ArgumentError if it makes no such launch, and what it raises before.
    """
    if budget < 1:
        raise ArgumentError("budget", budget, "bytes, 1 or more", "The default is 256 MB.")
    stops = [stop] if isinstance(stop, StopLike) else list(stop)
    fields = vars(options)
    control = LaunchControl(lambda debugger: run(LaunchOptions(**{**fields, "debugger": debugger})), launch, budget)
    return DebugSession(control, stops)


@checked_kinds
def debug_kernel(
    kernel: Any,
    *,
    grid: Any,
    block: int | Sequence[int] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    arch: str | None = None,
    shared_bytes: int = 0,
    cluster: int | Sequence[int] | None = None,
    stop: Any = (),
    checks: bool = False,
    last_warp_first: bool = False,
    copies_early: bool = False,
    fmad: bool = True,
    launch: int = 0,
    budget: int = BUDGET,
) -> DebugSession:
    """Launch ``kernel`` and stop it: before its first instruction, or at the first of the stops.

    ``kernel`` and its launch are those of `wb.check_kernel`. ``stop`` is a stop or a list of them, as
    `DebugSession.stop` takes them: a line, ``"12 if lane == 3"``, ``"write out[3, 5]"``, ``"nan"``. With ``checks``
    the launch also stops at findings (``"finding"``); going back then repeats it from its beginning.
    ``last_warp_first`` and ``copies_early`` are the orders of the two runs of `wb.check_kernel`. ``launch`` counts the
    launches of a call of Triton, whose autotuner makes several. ``budget`` bounds the bytes that the way back takes.

    Raises ArgumentError for arguments that the kernel cannot take and for a stop that is none, and, before anything
    runs, UnsupportedInstructionError.
    """
    options = LaunchOptions(
        cluster=cluster, checks=checks, fmad=fmad, threads=1, last_warp_first=last_warp_first,
        copies_early=copies_early,
    )  # fmt: skip
    call = KernelCall(kernel, grid, block, args, kwargs, shared_bytes, arch)

    def run(options: LaunchOptions) -> Any:
        return run_call(call, options) if is_jit(kernel) else bound_call(call, options)[1].run()

    return open_session(run, options, launch=launch, budget=budget, stop=stop)
