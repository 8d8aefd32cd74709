"""One call of a ``@triton.jit`` function, for `wb.check_kernel`, `wb.trace_kernel` and `wb.compile`.

Triton itself derives the types, divisibilities and threads of a block. The call runs as
``kernel[grid](*args, **kwargs)`` does under `simulated_triton`, with autotuner and heuristics.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ArgumentError, CompileError
from workbench.ptx.options import LaunchOptions

if TYPE_CHECKING:
    from workbench.analysis.launches import Launches, RecordedLaunch
    from workbench.driver.triton.driver import SimulatedTriton
    from workbench.toolchain import CompiledKernel


def is_jit(kernel: object) -> bool:
    """Return True if Triton launches ``kernel`` as ``kernel[grid](...)``: a JIT function, also an autotuned one."""
    jit = sys.modules.get("triton.runtime.jit")  # unless Triton is imported, nothing is a JIT function
    return jit is not None and isinstance(kernel, jit.KernelInterface)


@dataclass(frozen=True)
class KernelCall:
    """A launch of a kernel as `wb.check_kernel` and `wb.trace_kernel` take it.

    ``shared_bytes`` is dynamic shared memory per block in bytes. Only a ``@triton.jit`` function has ``kwargs`` and
    ``arch``, the architecture to compile for; it has its own ``block`` (None) and ``shared_bytes`` (0).
    """

    kernel: Any
    grid: Any
    block: Any = None
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] | None = None
    shared_bytes: int = 0
    arch: str | None = None


def run_call(call: KernelCall, options: LaunchOptions, *, both_orders: bool = False) -> RecordedLaunch:
    """Launch ``kernel[grid](*args, **kwargs)`` once and return its launch, or the best configuration's of an autotuner.

    With ``both_orders`` a rehearsal runs the warps in the opposite order.

    Raises ArgumentError for ``block``, ``shared_bytes`` and a cluster, which the kernel defines itself, and for
    arguments that the function does not have; CompileError with the line that Triton refuses; otherwise the errors of a
    launch on the PTX machine.
    """
    from workbench.analysis.launches import Launches

    for name, value in (
        ("block", call.block),
        ("shared_bytes", call.shared_bytes or None),
        ("cluster", options.cluster),
    ):
        if value is not None:
            raise ArgumentError(name, value, "no value", "A Triton kernel sets its own: leave it out.")
    kernel, args = call.kernel, call.args
    grid = (call.grid,) if isinstance(call.grid, int) else call.grid
    unwritten = [args[position] for position in options.uninitialised]
    with _session(
        kernel, call.arch, options, launches=Launches(keep_all=True), both_orders=both_orders, unwritten=unwritten
    ) as session:
        with _explained(kernel, session.arch):
            kernel[grid](*args, **dict(call.kwargs or {}))
        if not len(session.launches):
            raise ArgumentError("grid", grid, "at least one program", "Skip an empty launch.")
        return session.launches[-1]


def compile_call(
    kernel: Any, args: Sequence[object], kwargs: Mapping[str, object] | None, arch: str | None
) -> CompiledKernel:
    """Compile the kernel that ``kernel[grid](*args, **kwargs)`` would launch, without running it.

    Raises the errors of `run_call`.
    """
    with _session(kernel, arch, LaunchOptions(), compile_only=True) as session, _explained(kernel, session.arch):
        made = kernel.warmup(*args, grid=(1,), **dict(kwargs or {}))
        if isinstance(made, list):
            if len(made) != 1:
                name = type(kernel).__name__
                raise ArgumentError(
                    "kernel", f"an {name} of {len(made)} configurations", "one configuration",
                    "Pass the function under it, kernel.fn, with a configuration's values in kwargs.",
                )  # fmt: skip
            made = made[0]
    return made.compiled


def _session(
    kernel: Any,
    arch: str | None,
    options: LaunchOptions,
    *,
    compile_only: bool = False,
    launches: Launches | None = None,
    both_orders: bool = False,
    unwritten: Sequence[object] = (),
) -> SimulatedTriton:
    """Return the simulated device of one call: of ``arch``, else of the active session, else the default one."""
    from workbench.driver.triton.driver import SimulatedTriton, active_model, checked_model, refuse_interpreter
    from workbench.toolchain.occupancy import limits_of

    if type(kernel).__name__ == "InterpretedFunction":
        raise ArgumentError(
            "kernel", "an interpreted function", "a compiled one", "Unset TRITON_INTERPRET before importing its file."
        )
    refuse_interpreter()
    model = active_model() if arch is None else None
    if compile_only and arch is not None:  # Triton compiles for more architectures than the machine runs
        model = replace(checked_model(None, None), key=f"{arch}, compiled for only", arch=limits_of(arch).arch)
    return SimulatedTriton(
        model or checked_model(arch, None), options, launches=launches, both_orders=both_orders, unwritten=unwritten
    )


@contextmanager
def _explained(kernel: Any, arch: str) -> Iterator[None]:
    """Turn Triton's refusals within the block into errors of the workbench, with file and line."""
    import triton
    from triton.compiler.errors import CompilationError

    from workbench.toolchain.triton_aot import explain

    jit = kernel
    while hasattr(jit.fn, "fn"):  # autotuner and heuristics wrap it
        jit = jit.fn
    try:
        yield
    except CompilationError as error:
        raise CompileError(
            f"Triton {triton.__version__} refused {jit.__name__} for {arch}:", explain(error, jit)
        ) from error
    except TypeError as error:
        if "failed to specialize argument" in str(error):
            remedy = "Convert a NumPy array with torch.from_numpy(array)."
            raise ArgumentError("args", str(error), "CPU tensors, numbers, None, tuples", remedy) from error
        if "dynamic_func()" not in str(error):
            raise
        wrong = str(error).replace("dynamic_func()", f"{jit.__name__}()")
        raise ArgumentError("args", wrong, ", ".join(jit.arg_names), "Pass them in args and kwargs.") from error
    except KeyError as error:
        if "was specified but unrecognised" not in str(error):
            raise
        allowed = f"{', '.join(jit.arg_names)}, num_warps, num_stages and Triton's other options"
        raise ArgumentError("kwargs", error.args[0], allowed, "Correct the name.") from error
