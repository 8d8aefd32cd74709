"""``check``: judge an op's variants, or candidates written by others for it, or check a launch of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from workbench.analysis.check_report import CheckReport
from workbench.analysis.seen_launches import SeenLaunches
from workbench.analysis.watching import seeing
from workbench.base.argument_kinds import checked_kinds
from workbench.judge.arguments import MEMORY_MIB, SECONDS, SEEDS
from workbench.judge.judge import Judge
from workbench.judge.proving import EFFORT
from workbench.judge.verdict import Judgement
from workbench.launch.checking import (
    ProvedLaunches,
    check_kernel,
    is_kernel,
    refuse_for_a_kernel,
    refuse_for_an_op,
)
from workbench.ops.op import Op
from workbench.ops.variant import Case, Variant
from workbench.toolchain import CompiledKernel


@overload
def check(
    op: str | Op,
    candidate: str | Path | None = None,
    *,
    variants: str | Variant | Sequence[str | Variant] | None = None,
    cases: str | Case | Sequence[str | Case] | None = None,
    config: Mapping[str, Any] | str | None = None,
    seeds: int | Sequence[int] = SEEDS,
    seconds: float = SECONDS,
    memory_mib: int = MEMORY_MIB,
    elsewhere: bool = True,
    schedules: int = 0,
    sandbox: bool = False,
    exact: bool = False,
    prove: bool = False,
    proof: ProvedLaunches | None = None,
) -> Judgement: ...
@overload
def check(op: CompiledKernel | Callable[..., Any], *, prove: bool = False, **launch: Any) -> CheckReport: ...
@checked_kinds
def check(
    op: str | Op | Any,
    candidate: str | Path | None = None,
    *,
    variants: str | Variant | Sequence[str | Variant] | None = None,
    cases: str | Case | Sequence[str | Case] | None = None,
    config: Mapping[str, Any] | str | None = None,
    seeds: int | Sequence[int] = SEEDS,
    seconds: float = SECONDS,
    memory_mib: int = MEMORY_MIB,
    elsewhere: bool = True,
    schedules: int = 0,
    sandbox: bool = False,
    exact: bool = False,
    prove: bool = False,
    proof: ProvedLaunches | None = None,
    **launch: Any,
) -> Judgement | CheckReport:
    """Judge an op's kernels without trusting them, or check one launch of a kernel; no GPU is needed, and none is used.

    A kernel of `load_cuda` or `load_ptx`, a CompiledKernel or a ``@triton.jit`` function is checked as `check_kernel`
    does, whose docstring describes the arguments, on your own arguments and in this process::

        wb.check(module.saxpy, grid=4, block=256, args=(y, x, 2.0, 1024))
        wb.check(module.saxpy, grid=4, block=256, args=(y, x, 2.0, 1024), prove=True)

    A kernel of an op is described (PTX, grid, block, arguments by name) in a process of its own, from shapes alone.
    Then seeds are drawn, and another process, which the candidate's code never enters, makes the inputs, puts each
    buffer between guard zones and poison into the outputs, and runs the PTX twice for each seed, the last warp of a
    block first and last, with all checks. The outputs are compared with the reference in float64. Once for each case of
    an op made by `wb.op` the inputs are also views, transposed, sliced and expanded, where the variant's declaration
    does not refuse these.

    Args:
        op: an op, or its name; or a kernel. The reference and the cases are trusted, and so is all of the file that
            declares them.
        candidate: a Python file with ``def declare(op)``, which declares its variants with ``op.cuda(...)`` and
            ``op.triton(...)``, or adds them with ``op.add(...)`` to an op of a description; or with CUDA C++ text or a
            ``@triton.jit`` function of the op's name, launched as the op's only variant in that language; or a .cu
            file, or text, that stands in for the source of the op's CUDA variant. None: the op's own variants, but for
            the reference; of those in plain torch the values alone are compared.
        variants: only these of the op's own.
        cases: names; by default the op's `judged_cases`, of one made by `wb.op` all. A case in a layout or dtype that a
            variant does not read is judged in the first that it reads.
        config: a configuration, or ``"all"`` legal ones; by default each variant's own default.
        seeds: the number of seeds to draw, or the seeds of a verdict.
        seconds: limit of describing a case, and of running it, in seconds of CPU time; by the clock four times as much.
        memory_mib: limit of a process, beyond what the workbench itself takes; and of a workspace.
        elsewhere: judge also on each case's inputs of other magnitudes and structures (larger, negative, zero, tied,
            sorted, NaN, repeated indices and others, `workbench.ops.declared.elsewhere.CHANGES`), where the case
            describes them. What is wrong only there gets a verdict of its own, ``"wrong_elsewhere"``, which counts.
            Where the reference has no answer (out of the type's range, NaN unless NaN is what was put in) nothing is
            compared.
        schedules: also run each case in so many other orders of its blocks and warps (`check_kernel`), without checks.
        sandbox: run the candidate's code without network, with every file read-only and a private /tmp (bubblewrap).
            Without it the judge is no sandbox: a candidate's Python file can do what this account can, but for signals
            to other processes.
        exact: also say of each right verdict whether its kernels are the same computation as the reference, by running
            both on elements of a finite ring (docs/EXACT.md). It changes no outcome.
        prove: also prove each kernel for all sizes that its launches stand for (`wb.prove`; seconds to a minute more).
            One that is refuted gets a verdict of its own, ``"refuted"``; what is proved or unknown stands in the
            case's verdict. Of a kernel's launch the report has the proof in one line; see ``workbench prove PROGRAM``
            for how far it reaches.
        proof: what ``wb.prove`` has proved of the op's kernels, or of this kernel. Launches of the same PTX that keep
            its preconditions are not checked again for what it covers; a note tells what that is, or why all is
            checked.
        launch: of a kernel its grid, block, args and what else `check_kernel` takes.

    Returns:
        `Judgement`: .ok .verdicts .first_failure .to_json(); `workbench.judge.OUTCOMES` lists the outcomes. Of a kernel
        `CheckReport`: .ok .findings .notes.

    Raises:
        ArgumentError: an argument that cannot be used, or cases whose answer is the same for every seed.
        UnknownNameError: no such op, case or variant.
        NoSandbox: a sandbox cannot be made here; the message says why.
        MissingToolError: ``prove`` without Z3.
    """
    if is_kernel(op):
        refuse_for_a_kernel(
            check, candidate=candidate, variants=variants, cases=cases, config=config, seeds=seeds, seconds=seconds,
            memory_mib=memory_mib, elsewhere=elsewhere, sandbox=sandbox, exact=exact,
        )  # fmt: skip
        if schedules:
            launch |= {"schedules": schedules}
        launch |= {"proof": proof}
        return _proved_too(op, launch) if prove else check_kernel(op, **launch)
    refuse_for_an_op(check_kernel, launch)
    with Judge(
        op,
        cases=cases,
        seeds=seeds,
        seconds=seconds,
        memory_mib=memory_mib,
        elsewhere=elsewhere,
        schedules=schedules,
        sandbox=sandbox,
        exact=exact,
        prove=prove,
        proof=proof,
    ) as judge:
        return judge.check(candidate, variants=variants, config=config)


def _proved_too(kernel: Any, launch: Mapping[str, Any]) -> CheckReport:
    """Check a launch of a kernel, and prove the kernel for the launches that this one stands for."""
    from workbench.proof.launches import prove_launches
    from workbench.proof.solver import require_solver

    require_solver()
    seen = SeenLaunches()
    with seeing(seen):
        report = check_kernel(kernel, **launch)
    return replace(report, proofs=tuple(prove_launches(seen.take(), effort=EFFORT)))
