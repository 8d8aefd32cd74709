"""Names that nvcc has without an include: a list that always runs, and nvcc's own where it is installed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from nvcc_names import names
from sampling import long_if

import workbench as wb
from workbench.errors import CompileError, MissingToolError
from workbench.toolchain import compile_cuda, nvcc
from workbench.toolchain.nvcc_names import prelude
from workbench.toolchain.source import read_source

FLT_MAX = 3.4028234663852886e38

FIXED = {
    "INFINITY": math.inf, "-INFINITY": -math.inf, "NAN": math.nan, "HUGE_VAL": math.inf, "FLT_MAX": FLT_MAX,
    "FLT_EPSILON": 2.0**-23, "FLT_MIN": 2.0**-126, "DBL_MAX": 1.7976931348623157e308, "DBL_EPSILON": 2.0**-52,
    "MAXFLOAT": FLT_MAX, "M_PI": math.pi, "M_E": math.e, "M_SQRT2": math.sqrt(2), "M_LN2": math.log(2),
    "M_PIf": 3.1415927410125732, "INT_MAX": 2**31 - 1, "INT_MIN": -(2**31), "UINT_MAX": 2**32 - 1,
    "LONG_MAX": float(2**63 - 1), "LLONG_MIN": -(2.0**63), "CHAR_BIT": 8, "UCHAR_MAX": 255, "INT32_MAX": 2**31 - 1,
    "UINT64_MAX": float(2**64 - 1), "EXIT_FAILURE": 1, "RAND_MAX": 2**31 - 1, "uint8_t(300)": 44, "int8_t(200)": -56,
    "uint32_t(-1)": 2**32 - 1, "int64_t(1) << 40": 2.0**40, "sizeof(size_t)": 8, "sizeof(uintptr_t)": 8,
    "ptrdiff_t(-3)": -3, "uint(-1)": 2**32 - 1, "ushort(-1)": 65535, "sizeof(ulong)": 8, "u_int16_t(-2)": 65534,
    "ssize_t(-1)": -1, "sizeof(time_t)": 8, "offsetof(dim3, z)": 8, "pow(2.f, 0.5)": math.sqrt(2), "pow(3, 2)": 9,
    "pow(2.0, 3u)": 8, "pow(2.f, 3)": 8, "std::sqrt(4.f)": 2, "std::pow(2.f, 3.0)": 8, "std::abs(-2l)": 2,
    "std::fmax(1.f, 2.f)": 2, "std::isnan(NAN)": 1, "std::size_t(7)": 7, "std::lround(2.6)": 3, "std::tgamma(4.0)": 6,
}  # fmt: skip
"""Expressions that nvcc 13.0 takes without an include, with their values there."""


def values(expressions: list[str], head: str = "") -> list[float]:
    """Compute each in a kernel without includes."""
    stores = "\n".join(f"out[{index}] = (double)({one});" for index, one in enumerate(expressions))
    module = wb.load_cuda(f'{head}extern "C" __global__ void k(double *out) {{\n{stores}\n}}', device="sim")
    out = torch.zeros(len(expressions), dtype=torch.float64)
    module.k(1, 1, out)
    return out.tolist()


def test_names_that_every_kernel_has():
    found = dict(zip(FIXED, values(list(FIXED)), strict=True))
    wrong = {one: value for one, value in found.items() if not _same(value, FIXED[one])}
    assert not wrong


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-14) or (math.isnan(one) and math.isnan(other))


def test_names_that_an_installed_nvcc_has():
    """All macros and types of numbers, with their values and sizes; but what the host's C library computes."""
    try:
        program = nvcc.program()
    except MissingToolError as error:
        pytest.skip(str(error))
    host = ("MB_CUR_MAX", "NULL")  # a call of the C library; NVRTC has a NULL of its own
    wanted = {name: one for name, one in names(Path(program)).items() if name not in host}
    assert len(wanted) > 200
    macros = {name: one for name, one in wanted.items() if not one[0].startswith("type")}
    found = values([*macros, *(f"sizeof({name})" for name in wanted)])
    for name, value in zip(macros, found, strict=False):
        expected = macros[name][2]
        unsigned = isinstance(expected, int) and _same(value, float(expected % 2**64))
        assert unsigned or _same(value, float(expected)), name
    for name, size in zip(wanted, found[len(macros) :], strict=True):
        assert size == min(wanted[name][1], 8), name  # device code has no long double


CLASHES = [
    "typedef unsigned int uint32_t; typedef unsigned long uint64_t;", "using uint32_t = unsigned;", "#define M_PI 3",
    "#define INFINITY 1e30f", "#ifndef M_PI\n#define M_PI 3.1f\n#endif", "#include <cstdint>", "#include <stdint.h>",
    "#include <math.h>", "#include <cmath>\nusing namespace std;", "using namespace std;", "using std::sqrt;",
    "#include <float.h>\n#include <limits.h>", "#include <climits>\n#include <cfloat>", "#include <cuda_fp16.h>",
    "#include <cuda/std/cstdint>\n#include <cuda/std/climits>", "#include <cuda/std/cmath>\n#include <cuda/std/limits>",
    "#include <cub/block/block_reduce.cuh>", "#include <cooperative_groups.h>", "enum Kind { EOF = -1, BUFSIZ = 3 };",
    "const float M_PI = 3.f;", "constexpr int INT_MAX = 7;", "__constant__ float M_E;", "struct uint { int x; };",
    "template <int CHAR_BIT> __device__ int f(int *EOF) { return CHAR_BIT + *EOF; }",
    "__device__ float pow(float x, int n, int m) { return x; }", "#define PATH_MAX(x) x\n#define NZERO",
]  # fmt: skip


@pytest.mark.parametrize("head", [long_if("cub/" in head or "cooperative" in head, head) for head in CLASHES])
def test_what_a_source_declares_itself_is_its_own(head: str):
    if "cuda/std" in head or "cub/" in head or "cooperative" in head:
        pytest.importorskip("nvidia")
    used = {"uint32_t(x[0])": "using uint", "INFINITY * x[0]": "", "x[1] * M_PI": "", "sqrt(x[2])": "", "INT_MAX": ""}
    source = f'{head}\nextern "C" __global__ void k(float *x) {{ x[3] = {" + ".join(used)}; }}'
    assert "st.global" in compile_cuda(source, "k").ptx


@pytest.mark.parametrize(
    "text",
    [
        "const uint32_t y = x[0]; x[1] = x[0] * M_PI;", "x[0] = (const uint32_t)x[1];", "x[0] = x[1] > M_PI;",
        "return (void)(x[0] == INFINITY ? 1 : INFINITY);", "switch (int(x[0])) { case INT_MAX: x[1] = 2; }",
        "x[0] = static_cast<const uint32_t>(x[1]) * FLT_MAX;", "auto y = new uint32_t[2]; x[0] = y[1];",
        "__shared__ uint32_t y[4]; x[0] = y[threadIdx.x];", "float y[] = {INFINITY, -INFINITY}; x[0] = y[1];",
    ],
)  # fmt: skip
def test_uses_that_look_like_declarations(text: str):
    compile_cuda(f'extern "C" __global__ void k(float *x) {{ {text} }}', "k")


def test_lines_count_as_before():
    source = 'extern "C" __global__ void k(float *x) {\n  x[0] = INFINITY;\n  x[1] = missing;\n}'
    with pytest.raises(CompileError, match=r"source\.cu\(3\): error"):
        compile_cuda(source, "k")
    report = wb.check_kernel(wb.load_cuda(source.replace("missing", "M_PI")).k, grid=1, block=1, args=[torch.zeros(1)])
    assert [finding.line for finding in report] == [3]


def test_a_source_gets_what_it_names_and_nothing_else(tmp_path: Path):
    """Most get nothing, so that no compilation is slower for it; names in headers of one's own count."""
    plain = 'extern "C" __global__ void k(float *x) { x[0] = sqrtf(x[1]); }  // INFINITY'
    assert prelude(read_source(plain), [], []) == ""
    assert prelude(read_source(plain.replace("x[1]", "M_PI")), [], []) == "#define M_PI 3.14159265358979323846\n"
    assert prelude(read_source(plain.replace("x[1]", "M_PI")), [], ["-DM_PI=3"]) == ""
    assert (
        prelude(read_source("__device__ uint8_t x; cuda::std::sqrt(1.f);"), [], [])
        == "typedef unsigned char uint8_t;\n"
    )
    (tmp_path / "own.h").write_text("__device__ inline uint32_t one() { return 1; }\n")
    (tmp_path / "k.cu").write_text('#include "own.h"\nextern "C" __global__ void k(float *x) { x[0] = one(); }\n')
    assert "uint32_t" in prelude(read_source(tmp_path / "k.cu"), [tmp_path], [])
    compile_cuda(tmp_path / "k.cu", "k")
