"""Compilation of the kernel that a caller names: one variant of an op at a configuration, or a kernel itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.errors import ArgumentError
from workbench.launch.checking import is_kernel
from workbench.launch.loading import Kernel, kernel_to_launch
from workbench.ops import compile as compile_op
from workbench.ops.selection import only_variant, op_of
from workbench.ops.variant import Case, Config, Variant
from workbench.toolchain import CompiledKernel

if TYPE_CHECKING:
    from workbench.analysis.exact import Side
    from workbench.ops.op import Op


class NamedKernel(NamedTuple):
    """A compiled kernel, and a title for it with its configuration or its macros."""

    title: str
    kernel: CompiledKernel
    side: Side | None = None
    """The variant of an op with that kernel, on elements of a ring; None for a kernel."""


def compiled_of(
    op: str | Op | Any,
    case: str | Case | None = None,
    variant: str | Variant | None = None,
    config: Config | None = None,
    arch: str | None = None,
) -> NamedKernel:
    """Return the kernel with the main work of an op's variant, or the one that is given itself.

    A configuration may leave out tunables, which have their untuned values. Raises ArgumentError for a
    ``@triton.jit`` function, which is compiled for a call, for a variant in plain torch, and for arguments beside a
    kernel that only ops have.
    """
    if is_kernel(op):
        if not isinstance(op, Kernel | CompiledKernel):
            remedy = "Compile it for a call: wb.compile(function, args=..., kwargs=...)."
            raise ArgumentError("op", "a @triton.jit function", "an op, its name, or a compiled kernel", remedy)
        for name, value in (("case", case), ("variant", variant), ("config", config)):
            if value is not None:
                raise ArgumentError(name, repr(value), "no value with a kernel", "Only ops take it.")
        kernel = kernel_to_launch(op)[0]
        if arch not in (None, kernel.arch):
            raise ArgumentError("arch", repr(arch), f"{kernel.arch} of {kernel.label}", "Compile the kernel for it.")
        macros = op.macros if isinstance(op, Kernel) else {}
        return NamedKernel(_title(kernel.label, macros), kernel)
    found = op_of(op)
    chosen, case = only_variant(found) if variant is None else found.variant(variant), found.case(case)
    if not chosen.compiles:
        raise ArgumentError(
            "variant", chosen.name, "a variant in CUDA C++ or Triton", "Variants in torch have no kernel to compile."
        )
    arch = arch or chosen.machine_arch(case.problem())
    settings = {**chosen.default_config(case.problem(arch=arch)), **(config or {})}
    kernel = compile_op(found, variant=chosen, config=settings, case=case, arch=arch)
    from workbench.ops.exact_runs import side_of

    return NamedKernel(_title(str(chosen), settings), kernel, side_of(chosen, settings, case, arch))


def _title(name: str, settings: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
