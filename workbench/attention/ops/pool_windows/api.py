"""`pool_windows`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.pool_windows.problem import PoolProblem, PoolTensors
from workbench.attention.ops.tensor_checks import check_dense, check_dtype
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def pool_windows(
    values: torch.Tensor,
    gates: torch.Tensor,
    position_bias: torch.Tensor,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Pool each window of tokens into one entry: a sum that a softmax over the tokens weights, element by element.

    ``out[w, d] = sum over j of softmax_j(gates[w, j, d] + position_bias[j, d]) * values[w, j, d]``. A gate of minus
    infinity leaves its token out; a window of nothing else gives zeros. Method: the compressors of DeepSeek-V4, 2026;
    `workbench.attention.kvcache.Compressor` makes the windows out of tokens that come in chunks.

    Args:
        values: ``[num_windows, window, head_size]`` float32, float16 or bfloat16, contiguous, starting on 16 bytes;
            finite, also where a gate leaves them out.
        gates: as values.
        position_bias: ``[window, head_size] float32``, contiguous.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, ``[num_windows, head_size]`` in the dtype of ``values``, contiguous, in memory of its
            own; default a new tensor.

    Returns:
        ``out``. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Values are not looked at.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    _check_values(values)
    out = values.new_empty((len(values), values.shape[2])) if out is None else out
    OP.run(PoolTensors(values, gates, position_bias, out), variant=variant, config=config)
    return out


def _check_values(values: torch.Tensor) -> None:
    check_dtype("values", values, DTYPES.values())
    if values.dim() != 3 or 0 in values.shape[1:]:
        raise ArgumentError("values", f"shape {tuple(values.shape)}", "[num_windows, window, head_size]", "Reshape it.")


def problem_of(t: PoolTensors) -> PoolProblem:
    """Check all metadata (dtypes, shapes, strides); describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    _check_values(t.values)
    num_windows, window, head_size = t.values.shape
    dtype = t.values.dtype
    check_dense(
        values=(t.values, t.values.shape, dtype),
        gates=(t.gates, t.values.shape, dtype),
        position_bias=(t.position_bias, (window, head_size), torch.float32),
        out=(t.out, (num_windows, head_size), dtype),
    )
    return PoolProblem(
        num_windows=num_windows,
        window=window,
        head_size=head_size,
        dtype=dtype_name(t.values.dtype),
        arch=arch_of(t.values),
    )


OP: DescribedOp = op(name="pool_windows", tensors=PoolTensors, in_place=("out",), namespace="workbench")(problem_of)
