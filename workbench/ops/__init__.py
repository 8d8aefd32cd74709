"""The operations that users import, each implemented several ways.

``from workbench.ops import paged_attention`` gives the function; its folder is the module of the same name, reached
with ``from workbench.ops.paged_attention import ...``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workbench.argument_kinds import checked_kinds, names_wrong_kinds
from workbench.driver.triton_calls import compile_call, is_jit
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.causal_attention import OP as CAUSAL_ATTENTION
from workbench.ops.causal_attention_backward import OP as CAUSAL_ATTENTION_BACKWARD
from workbench.ops.contiguous_attention import OP as CONTIGUOUS_ATTENTION
from workbench.ops.copy_blocks import OP as COPY_BLOCKS
from workbench.ops.gather_cache import OP as GATHER_CACHE
from workbench.ops.op import Op
from workbench.ops.paged_attention import OP as PAGED_ATTENTION
from workbench.ops.reshape_and_cache import OP as RESHAPE_AND_CACHE
from workbench.ops.swap_blocks import OP as SWAP_BLOCKS
from workbench.ops.tuned import forget
from workbench.ops.variant import MACHINE_ARCHS, Case, Config, Variant

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

OPS = MappingProxyType(
    {
        op.name: op
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
    }
)

# Importing an op's folder binds its module to the op's name here; users want the function under that name.
causal_attention = CAUSAL_ATTENTION.function
causal_attention_backward = CAUSAL_ATTENTION_BACKWARD.function
contiguous_attention = CONTIGUOUS_ATTENTION.function
copy_blocks = COPY_BLOCKS.function
gather_cache = GATHER_CACHE.function
paged_attention = PAGED_ATTENTION.function
reshape_and_cache = RESHAPE_AND_CACHE.function
swap_blocks = SWAP_BLOCKS.function

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


_OWN: dict[str, Op] = {}
"""Those that this process has declared with `wb.op`, by name; the latest of a name."""

ENTRY_POINTS = "workbench.ops"
"""The group of entry points by which an installed package offers its ops, ``softmax = "my_package.ops:softmax"``."""


@names_wrong_kinds
def get(op: str | Op) -> Op:
    """The op of that name: of the workbench, of this process, or of an installed package; an op itself as it is.

    Raises:
        UnknownNameError: there is none; lists the ones there are.
    """
    if isinstance(op, Op):
        return op
    found = OPS.get(op) or _OWN.get(op) if isinstance(op, str) else None
    if found is None:
        offered = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
        if op not in offered:
            remedy = "One of your own is declared with @workbench.op; from a terminal it is FILE.py:NAME."
            raise UnknownNameError("op", repr(op), ", ".join([*OPS, *_OWN, *offered]), remedy)
        found = offered[op].load()
    return found


def register(op: Op) -> Op:
    """Make an op known by its name, in place of an older one. ArgumentError for that of a built-in op."""
    if op.name in OPS:
        raise ArgumentError(
            "name", repr(op.name), "a name that no built-in op has", 'Choose another: @wb.op(name="...").'
        )
    _OWN[op.name] = op
    forget()
    return op


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
