"""Run a launch and collect what can be told about it: the one way, whoever launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.driver import masked_loads
from workbench.driver.unwritten import Outputs
from workbench.errors import KernelFault
from workbench.ptx.warp_orders import rehearse

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport
    from workbench.ptx.launch import MachineLaunch
    from workbench.toolchain import CompiledKernel


def observed(
    launch: MachineLaunch,
    *,
    masked_loads_of: CompiledKernel | None = None,
    both_orders: bool = False,
    unwritten: Sequence[int] = (),
    failed: Sequence[Callable[[KernelFault], object]] = (),
) -> tuple[LaunchReport, tuple[str, ...]]:
    """Run a launch on the PTX machine; return its report, and notes on what no access shows.

    ``masked_loads_of`` is its kernel, where Triton compiled it and its masked loads are to be looked at. With
    ``both_orders`` it is rehearsed in the opposite order of warps, and elements of the arguments at ``unwritten``
    positions that it leaves as they were are a note. Each function of ``failed`` is called with the fault that ends it.
    """
    notes = masked_loads.notes_on(masked_loads_of, launch) if masked_loads_of is not None else ()
    try:
        if not both_orders:
            return launch.run(), notes
        outputs = Outputs(launch.values, launch.names, unwritten)
        rehearsal = rehearse(launch)
        report = launch.run()
        if rehearsal.fault is not None:
            raise rehearsal.fault
        return rehearsal.joined(report), notes + outputs.notes()
    except KernelFault as fault:
        for tell in failed:
            tell(fault)
        raise
