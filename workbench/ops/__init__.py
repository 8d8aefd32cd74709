"""Operations: what one is, its variants and cases, and how they are compiled and called. `get` finds one by its
name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.base.argument_kinds import checked_kinds, names_wrong_kinds
from workbench.driver.triton_calls import compile_call, is_jit
from workbench.errors import ArgumentError
from workbench.ops.op import Op
from workbench.ops.registry import get, register
from workbench.ops.variant import MACHINE_ARCHS, Case, Config, Variant

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

__all__ = ["compile", "get", "register", "variant", "variants"]


@names_wrong_kinds
def variants(op: str | Op) -> tuple[Variant, ...]:
    """Every implementation of an op, in teaching order; each has .name .language .space .restrictions .layouts."""
    return get(op).variants


@names_wrong_kinds
def variant(op: str | Op, name: str) -> Variant:
    """The implementation of that name; `UnknownNameError` lists the ones there are."""
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
        op: its name, or the op; or the function, with ``args`` and ``kwargs`` of its call: their types are inferred as
            Triton infers them.
        variant: name or value of a variant in CUDA C++ or Triton.
        config: one value per tunable; default: the untuned rule.
        case: name or value of the case to compile for; default: the op's quick one.
        arch: the architecture, e.g. ``"sm_90"``; default sm_80, or the first after it that has what a variant needs.

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
