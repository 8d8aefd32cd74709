"""The operations that users import, each implemented several ways.

``from workbench.ops import paged_attention`` gives the function; its folder is the module of the same name, reached
with ``from workbench.ops.paged_attention import ...``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workbench.argument_kinds import checked_kinds, names_wrong_kinds
from workbench.driver.triton_calls import compile_call, is_jit
from workbench.errors import ArgumentError
from workbench.ops.causal_attention import OP as CAUSAL_ATTENTION
from workbench.ops.causal_attention import causal_attention
from workbench.ops.causal_attention_backward import OP as CAUSAL_ATTENTION_BACKWARD
from workbench.ops.causal_attention_backward import causal_attention_backward
from workbench.ops.contiguous_attention import OP as CONTIGUOUS_ATTENTION
from workbench.ops.contiguous_attention import contiguous_attention
from workbench.ops.copy_blocks import OP as COPY_BLOCKS
from workbench.ops.copy_blocks import copy_blocks
from workbench.ops.gather_cache import OP as GATHER_CACHE
from workbench.ops.gather_cache import gather_cache
from workbench.ops.op import Op
from workbench.ops.paged_attention import OP as PAGED_ATTENTION
from workbench.ops.paged_attention import paged_attention
from workbench.ops.registry import BUILT_IN, get, register
from workbench.ops.reshape_and_cache import OP as RESHAPE_AND_CACHE
from workbench.ops.reshape_and_cache import reshape_and_cache
from workbench.ops.swap_blocks import OP as SWAP_BLOCKS
from workbench.ops.swap_blocks import swap_blocks
from workbench.ops.variant import MACHINE_ARCHS, Case, Config, Variant

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

BUILT_IN.update(
    (op.name, op)
    for op in (
        CAUSAL_ATTENTION,
        CAUSAL_ATTENTION_BACKWARD,
        CONTIGUOUS_ATTENTION,
        PAGED_ATTENTION,
        RESHAPE_AND_CACHE,
        COPY_BLOCKS,
        SWAP_BLOCKS,
        GATHER_CACHE,
    )
)
OPS = MappingProxyType(BUILT_IN)
"""The built-in ops by name, in teaching order."""

__all__ = [
    "OPS",
    "causal_attention",
    "causal_attention_backward",
    "compile",
    "contiguous_attention",
    "copy_blocks",
    "gather_cache",
    "get",
    "paged_attention",
    "register",
    "reshape_and_cache",
    "swap_blocks",
    "variant",
    "variants",
]


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
