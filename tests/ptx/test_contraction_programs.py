"""CUDA and Triton code that depends on contraction: the machine's values are those of its machine code."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from ptx_support import FORMATS
from sass_values import SassRun, instructions_of

import workbench as wb
from workbench import ptx
from workbench.toolchain import compile_cuda

THREADS, INPUTS = 16, 5
# Of a, b, c, d, e.
FUNCTIONS = {
    "residual": "float p = c; return a * b - p;",
    "two_product": "float p = a * b; return fmaf(a, b, -p) + c * d;",
    "two_product_without_fma": "float p = a * b; return (a * b - p) * c;",
    "kahan": """
        float sum = 0, lost = 0, terms[] = {a * b, b * c, c * d, d * e};
        for (float term : terms) { float y = term - lost, t = sum + y; lost = (t - sum) - y; sum = t; }
        return sum - lost;""",
    "discriminant": "return b * b - 4.0f * a * c;",
    "complex_product": "float re = a * c - b * d, im = a * d + b * c; return re * re + im * im + e;",
    "difference_of_products": "return a * b - c * d;",
    "polynomial": "return ((a * e + b) * e + c) * e + d;",
    "half_residual": "__half x = __float2half(a); return __half2float(__hsub(__hmul(x, x), __float2half(b)));",
}
SOURCE = "#include <cuda_fp16.h>\n" + "".join(
    f"""extern "C" __global__ void {name}(const float *x, float *out)
    {{
        const int t = threadIdx.x;
        const auto f = [](float a, float b, float c, float d, float e) {{ {body} }};
        out[t] = f(x[t], x[t + {THREADS}], x[t + 2 * {THREADS}], x[t + 3 * {THREADS}], x[t + 4 * {THREADS}]);
    }}\n"""
    for name, body in FUNCTIONS.items()
)
IN_FLOAT = [name for name, body in FUNCTIONS.items() if "half" not in body]


def _given() -> np.ndarray:
    draw = random.Random(5)
    bias = FORMATS["f32"][2]
    words = [bias + draw.randint(-1, 1) << 23 | draw.getrandbits(23) for _ in range(INPUTS * THREADS)]
    return np.array(words, np.uint32).reshape(INPUTS, THREADS)


@pytest.mark.parametrize("options", [(), ("--fmad=false",)], ids=("fmad", "no fmad"))
@pytest.mark.parametrize("name", IN_FLOAT)
def test_values_are_those_of_the_machine_code(name, options, tmp_path):
    kernel = compile_cuda(SOURCE, name, options=options, machine_code=True)
    (tmp_path / "k.cubin").write_bytes(kernel.cubin)
    given, out = _given(), np.zeros(THREADS, np.uint32)
    expected = SassRun("f32", False, given.tolist(), 4 * THREADS).run(instructions_of(tmp_path / "k.cubin")[name])[0]
    ptx.Program(kernel.ptx)[name].launch(1, THREADS, [given, out])
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("options", "launch", "error"), [((), {}, 2.0**-12), ((), {"fmad": False}, 0), (("--fmad=false",), {}, 0)]
)
def test_halves_follow_the_option_of_the_compiler_and_of_the_launch(options, launch, error):
    module = wb.load_cuda(SOURCE, options=options, device="sim")
    given, out = np.ones((INPUTS, THREADS), np.float32), np.zeros(THREADS, np.float32)
    given[0], given[1] = 1 + 2.0**-6, 1 + 2.0**-5
    module.half_residual(1, THREADS, given, out, **launch)
    assert set(out.tolist()) == {error}
    found = wb.check_kernel(module.half_residual, grid=1, block=THREADS, args=[given, out], **launch)
    assert not found.findings
    assert set(out.tolist()) == {error}


TRITON = """
import triton
import triton.language as tl


@triton.jit
def shifted(x, m, out, scale):
    i = tl.arange(0, 32)
    tl.store(out + i, tl.load(x + i) * scale - tl.load(m + i))
"""


@pytest.mark.parametrize("fusion", [True, False])
def test_triton_scores_are_shifted_with_one_rounding(fusion, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    (tmp_path / "shifted_scores.py").write_text(TRITON)
    monkeypatch.syspath_prepend(Path(tmp_path))
    import shifted_scores

    scale = float(np.float32(0.1))
    x = torch.rand(32, generator=torch.Generator().manual_seed(1)) + 0.5
    products = x * scale  # rounded on the CPU
    out = torch.empty(32)
    with wb.simulated_triton("sm_80"):
        shifted_scores.shifted[(1,)](x, products, out, scale, enable_fp_fusion=fusion)
        errors = (x.double() * scale - products.double()).float()
        assert torch.equal(out, errors if fusion else torch.zeros(32))
