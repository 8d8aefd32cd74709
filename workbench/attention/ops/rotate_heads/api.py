"""`rotate_heads`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.rotate_heads.problem import RotationProblem, RotationTensors
from workbench.attention.ops.tensor_checks import ALIGNMENT, check_dtype, check_out
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name

LARGEST_BLOCK = 512
"""Largest number of elements that are rotated together: a thread has 16 of them, a warp all."""


@names_wrong_kinds
def rotate_heads(
    heads: torch.Tensor,
    *,
    block: int | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply every head by an orthonormal Hadamard matrix (a fast Walsh-Hadamard transform).

    Products of rotated heads are those of the heads, ``(q H) . (k H) = q . k``, and a second rotation undoes the first.
    What is quantized in between has no outliers: each is spread over its block. Method: QuaRot (Ashkboos and others,
    2024), section 4.

    Args:
        heads: ``[num_tokens, num_heads, head_size]`` float32, float16 or bfloat16; the heads of a token side by side,
            tokens any multiple of 16 bytes apart, starting on 16 bytes.
        block: number of neighbouring elements that are rotated together, a power of two from 2 to 512 that divides
            head_size; default the largest.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, ``[num_tokens, num_heads, head_size]`` in the same dtype, contiguous, on 16 bytes, in
            memory of its own; default a new tensor.

    Returns:
        ``out``. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    out = torch.empty_like(heads, memory_format=torch.contiguous_format) if out is None else out
    size = heads.shape[-1] if heads.dim() else 0
    block = math.gcd(size, LARGEST_BLOCK) if block is None else block
    OP.run(RotationTensors(heads, block, out), variant=variant, config=config)
    return out


def problem_of(t: RotationTensors) -> RotationProblem:
    """Check dtypes, shapes, strides and the block; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    check_dtype("heads", t.heads, DTYPES.values())
    if t.heads.dim() != 3 or 0 in t.heads.shape[1:]:
        raise ArgumentError(
            "heads", f"shape {tuple(t.heads.shape)}", "[num_tokens, num_heads, head_size]", "Reshape it."
        )
    num_tokens, num_heads, head_size = t.heads.shape
    apart = t.heads.stride(0) * t.heads.element_size()
    if (
        t.heads.stride()[1:] != (head_size, 1)
        or (num_tokens > 1 and apart % ALIGNMENT)
        or t.heads.data_ptr() % ALIGNMENT
    ):
        raise ArgumentError(
            "heads",
            f"strides {t.heads.stride()}, address {t.heads.data_ptr():#x}",
            f"(any, {head_size}, 1): the heads of a token side by side, tokens and address on {ALIGNMENT} bytes",
            "Call heads.clone(memory_format=torch.contiguous_format); pad odd sizes.",
        )
    if not 2 <= t.block <= LARGEST_BLOCK or t.block & (t.block - 1) or head_size % t.block:
        raise ArgumentError(
            "block",
            f"{t.block} for heads of {head_size}",
            f"a power of two from 2 to {LARGEST_BLOCK} that divides head_size",
            "Pad the heads with zeros to an even size." if head_size % 2 else "The default is the largest.",
        )
    check_out(t.out, t.heads)
    return RotationProblem(
        num_tokens=num_tokens,
        num_heads=num_heads,
        head_size=head_size,
        block=t.block,
        dtype=dtype_name(t.heads.dtype),
        arch=arch_of(t.heads),
    )


OP: DescribedOp = op(name="rotate_heads", tensors=RotationTensors, in_place=("out",), namespace="workbench")(problem_of)
