"""``debug``: stop inside a kernel of an op, or of its own, and go forward and back."""

from __future__ import annotations

from typing import Any

from workbench.base.argument_kinds import checked_kinds
from workbench.errors import ArgumentError
from workbench.launch.checking import is_kernel, refuse_for_a_kernel, refuse_for_an_op
from workbench.launch.debug import DebugSession, debug_kernel
from workbench.launch.debug.opening import BUDGET, open_session
from workbench.ops import registry
from workbench.ops.op import Op
from workbench.ops.sampled_case import simulator_of
from workbench.ops.selection import only_variant
from workbench.ops.variant import Case, Config, Variant
from workbench.ptx import LaunchOptions


@checked_kinds
def debug(
    op: str | Op | Any,
    case: str | Case | None = None,
    *,
    variant: str | Variant | None = None,
    config: Config | None = None,
    arch: str | None = None,
    stop: Any = (),
    checks: bool = False,
    launch: int = 0,
    budget: int = BUDGET,
    **call: Any,
) -> DebugSession:
    """Stop inside a launch, without a GPU, and go forward or back; return the session.

    A kernel is launched as `debug_kernel` does, which says what else it takes::

        session = wb.debug(module.softmax, grid=4, block=256, args=(y, x, 1024), stop="12 if lane == 3")
        session.to_end().last_write("y[3, 5]")  # back to the instruction that wrote the element
        session["s"]  # 32 lanes of a variable

    Args:
        op: its name, or the op; or a kernel.
        case: name or value of a case; default: the op's quick one.
        variant: a variant in CUDA C++ or Triton; default: that of an op which has only one.
        config: one value per tunable; default: the untuned rule.
        arch: the architecture to compile for; default: the first of `MACHINE_ARCHS` that has what the variant needs.
        stop: the stops, as `DebugSession.stop` takes them; without any the launch stops before its first instruction.
        checks: look for races and the like, so that ``"finding"`` is a stop; going back repeats the launch from its
            beginning.
        launch: the number of the launch, of a variant of several kernels.
        budget: bytes of memory that the way back may take.
        call: of a kernel its grid, block, args and what else `debug_kernel` takes.

    Raises:
        UnknownNameError: no such op, variant or case.
        ArgumentError: a torch variant, which has no kernel; none, where there are several; no such launch; a stop at a
            line without code, or with a condition that does not parse.
        ConfigurationError: an illegal configuration; names the rule.
        UnsupportedInstructionError: code that the machine does not execute; names the instruction and its line.
    """
    if is_kernel(op):
        refuse_for_a_kernel(debug, case=case, variant=variant, config=config)
        return debug_kernel(op, arch=arch, stop=stop, checks=checks, launch=launch, budget=budget, **call)
    refuse_for_an_op(debug_kernel, call)
    found = registry.get(op)
    chosen, case = only_variant(found) if variant is None else found.variant(variant), found.case(case)
    if not chosen.compiles:
        raise ArgumentError("variant", chosen.name, "a variant in CUDA C++ or Triton", "torch has no kernel to stop.")
    if arch is None:
        arch = chosen.machine_arch(case.problem())
    if config is None:
        config = chosen.default_config(case.problem(arch=arch))
    problem = case.problem(config, arch=arch)
    inputs, device = case.inputs(problem), simulator_of(chosen, arch, 0)

    def run(options: LaunchOptions) -> Any:
        named = {"debugger": options.debugger, "checks": options.checks, "threads": 1}
        return chosen.run(config, problem, inputs, device, **named)

    return open_session(run, LaunchOptions(checks=checks, threads=1), launch=launch, budget=budget, stop=stop)
