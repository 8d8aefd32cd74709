"""How often the operands of a division or a root need the compiler's subroutine."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.launch import devices
from workbench.toolchain import compile_cuda

WARPS = 8
TINY = np.finfo(np.float32).tiny


def slow_paths(expression: str, values, others=1, dtype=np.float32, lanes: int = 32) -> int:
    """The executions that need it of one operation on ``a`` and ``b``, in 8 warps of which each is given one value."""
    name = {"float32": "float", "float64": "double"}.get(np.dtype(dtype).name, "unsigned long long")
    source = f"""extern "C" __global__ void f({name} *out, const {name} *x, const {name} *y, int lanes) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        {name} a = x[i], b = y[i];
        if (threadIdx.x % 32 < lanes) out[i] = {expression};
    }}"""
    kernel = compile_cuda(source, "f", arch="sm_80")
    x, y = (np.repeat(np.resize(np.array(one, dtype), WARPS), 32) for one in (values, others))
    report = devices.get("sim").launch(kernel, 1, 32 * WARPS, [np.zeros_like(x), x, y, lanes], statistics=True)
    (line,) = [line for line in report.lines if line.text.split(".")[0] in ("div", "rem", "rcp", "sqrt")]
    assert line.executions == WARPS
    assert report.counts.slow_paths == line.slow_paths
    return line.slow_paths


def test_a_division_is_slow_for_what_is_no_normal_number():
    assert slow_paths("a / b", [0, 1, TINY / 2, 3, np.inf, np.nan, -0.0, 7]) == 5
    assert slow_paths("a / b", 1, [0, 1, TINY / 2, 3, np.inf, np.nan, -0.0, 7]) == 5
    assert slow_paths("a / b", [1e-30, 1e30], [1e30, 1e-30]) == WARPS, "the quotient is none"
    assert slow_paths("__fdividef(a, b)", 0, 0) == 0, "it has no slow path"


def test_one_lane_is_enough_and_one_that_does_not_run_is_none():
    x = np.ones(32 * WARPS, np.float32)
    x[5::64] = 0  # one lane of every other warp
    kernel = compile_cuda(
        """extern "C" __global__ void f(float *x, int skipped) {
            if (threadIdx.x % 32 != skipped) x[threadIdx.x] = x[threadIdx.x] / 3.3f; }""",
        "f",
        arch="sm_80",
    )
    for skipped, expected in ((6, WARPS // 2), (5, 0)):
        report = devices.get("sim").launch(kernel, 1, 32 * WARPS, [x.copy(), skipped], statistics=True)
        assert report.counts.slow_paths == expected


@pytest.mark.parametrize(
    ("expression", "slow", "dtype"),
    [
        ("sqrtf(a)", [0, -1, np.inf, TINY / 2], np.float32),
        ("__frcp_rn(a)", [0, np.inf, 2.0**127, TINY / 2], np.float32),
        ("__frcp_rz(a)", [0, np.inf, 2.0**127, TINY / 2], np.float32),
        ("a / b", [0, 1e-308, 1e-320, 1e-310], np.float64),
        ("__drcp_rn(a)", [0, np.inf, 1.7e308, 1e-310], np.float64),
        ("sqrt(a)", [0, -1, np.inf, 1e-310], np.float64),
        ("a / b", [2**32, 2**40, 2**63, 2**32 + 1], np.uint64),
        ("a % b", [2**32, 2**40, 2**63, 2**32 + 1], np.uint64),
    ],
)  # fmt: skip
def test_other_operations_are_slow_where_their_machine_code_asks(expression, slow, dtype):
    others = 1e10 if dtype == np.float64 else 3
    assert slow_paths(expression, slow, others, dtype) == WARPS
    assert slow_paths(expression, [1, 2, 3, 1000], others, dtype) == 0
