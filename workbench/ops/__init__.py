"""Operations: their variants and cases, their compilation and their calls.

`get` finds an op by its name. `workbench.ops.declared` has `wb.op`, `workbench.ops.tensors` the tensors of a run; the
values here are what a variant or a described op is made of. Begin with `variant.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.base.argument_kinds import checked_kinds, names_wrong_kinds
from workbench.driver.triton.calls import compile_call, is_jit
from workbench.errors import ArgumentError
from workbench.ops.described_op import DescribedOp
from workbench.ops.dispatch import arch_of, check_supported, multiprocessors_of
from workbench.ops.expressions import cdiv, next_power_of_2
from workbench.ops.op import Op
from workbench.ops.registry import get, register
from workbench.ops.steps import Arguments, CudaStep, Size, TritonStep
from workbench.ops.tuned import lookup
from workbench.ops.values import Case, Check, Config, Footprint, Restriction
from workbench.ops.variant import (
    MACHINE_ARCHS,
    RECORDED_PARTS,
    CudaVariant,
    TorchVariant,
    TritonVariant,
    Variant,
)

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

__all__ = [
    "RECORDED_PARTS",
    "Arguments",
    "Case",
    "Check",
    "Config",
    "CudaStep",
    "CudaVariant",
    "DescribedOp",
    "Footprint",
    "Op",
    "Restriction",
    "Size",
    "TorchVariant",
    "TritonStep",
    "TritonVariant",
    "Variant",
    "arch_of",
    "cdiv",
    "check_supported",
    "compile",
    "get",
    "lookup",
    "multiprocessors_of",
    "next_power_of_2",
    "register",
    "variant",
    "variants",
]


@names_wrong_kinds
def variants(op: str | Op) -> tuple[Variant, ...]:
    """Return all variants of an op, in teaching order; each has .name .language .space .restrictions .layouts."""
    return get(op).variants


@names_wrong_kinds
def variant(op: str | Op, name: str) -> Variant:
    """Return the variant of that name. Raises `UnknownNameError`, which lists the known ones."""
    return get(op).variant(name)


@checked_kinds
def compile(
    op: Any,
    *,
    variant: str | Variant | None = None,
    config: Config | None = None,
    case: str | Case | None = None,
    arch: str | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
) -> CompiledKernel:
    """Compile one variant of an op, or a ``@triton.jit`` function for a call, without running it.

    Args:
        op: the op, or its name; or the function, with ``args`` and ``kwargs`` of its call.
        variant: name or value of a variant in CUDA C++ or Triton.
        config: one value per tunable; default: the untuned rule.
        case: name or value of the case to compile for; default: the op's quick one.
        arch: the architecture, e.g. ``"sm_90"``; default sm_80, or the first after it that has what a variant needs.
        args: positional arguments of the function's call; their types are inferred as Triton infers them.
        kwargs: keyword arguments of the function's call.

    Returns:
        `workbench.toolchain.CompiledKernel`: .ptx .sass .registers .spill_bytes .shared_bytes .occupancy

    Raises:
        UnknownNameError: no such op, variant or case.
        ConfigurationError: an illegal configuration; names the rule.
        CompileError: the compiler refused the source.
    """
    if is_jit(op):
        return compile_call(op, args, kwargs, arch or MACHINE_ARCHS[0])
    found = get(op)
    if variant is None:
        raise ArgumentError("variant", None, ", ".join(one.name for one in found.variants), "Name one of these.")
    chosen, case = found.variant(variant), found.case(case)
    if arch is None:
        arch = chosen.machine_arch(case.problem())
    config = chosen.default_config(case.problem(arch=arch)) if config is None else dict(config)
    return chosen.compile(config, case.problem(config, arch=arch), arch)
