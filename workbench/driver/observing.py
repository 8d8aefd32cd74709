"""The one way to run a launch on the PTX machine and collect its report, notes and fault, for every client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.driver.triton import masked_loads
from workbench.driver.unwritten import Outputs
from workbench.errors import KernelFault
from workbench.ptx.schedules import explored, with_orders
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
    """Run a launch on the PTX machine; return its report, and notes on defects that no single access shows.

    ``masked_loads_of`` is its kernel if Triton compiled it and its masked loads are to be examined. With
    ``both_orders`` a rehearsal runs the warps in the opposite order first, and a note names elements of the arguments
    at ``unwritten`` positions that the launch leaves unwritten. Each function of ``failed`` is called with the fault
    that ends the launch. A launch whose options have ``schedules`` runs in these orders first.
    """
    orders = explored(launch) if launch.options.checks and launch.options.schedules else []
    notes = masked_loads.notes_on(masked_loads_of, launch) if masked_loads_of is not None else ()
    try:
        if both_orders and launch.runner.same_in_every_order(launch):
            sampled = bool(launch.options.sample_proved)
            outputs = Outputs(launch.values, launch.names, () if sampled else unwritten)
            return with_orders(launch.run(), orders), notes + outputs.notes()
        if not both_orders:
            return with_orders(launch.run(), orders), notes
        outputs = Outputs(launch.values, launch.names, unwritten)
        rehearsal = rehearse(launch)
        report = launch.run()
        if rehearsal.fault is not None:
            raise rehearsal.fault
        return with_orders(rehearsal.joined(report), orders), notes + outputs.notes()
    except KernelFault as fault:
        for tell in failed:
            tell(fault)
        raise
