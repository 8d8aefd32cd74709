"""wmma: products against NumPy, the fragments that kernels rely on, and what mma.h makes of C++."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_support import HEADER
from ptx_wmma_cases import PRODUCTS, Product

from workbench import ptx
from workbench.errors import UnsupportedInstructionError
from workbench.toolchain import compile_cuda_module

PAD = 16  # elements that the leading dimension is larger than the matrix


def random_values(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Values that every format holds exactly and whose sums are exact in any order."""
    if kind in ("s8", "u8", "s4", "u4", "b1"):
        low, high = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}[kind]
        return rng.integers(low, high, shape)
    if kind == "s32":
        return rng.integers(-(2**31), 2**31, shape)
    if kind == "f64":
        return rng.normal(size=shape)
    return rng.integers(-8, 9, shape) / 4


def encode(kind: str, matrix: np.ndarray) -> np.ndarray:
    """The bytes of a matrix that is contiguous along its last axis."""
    if kind == "bf16":
        return (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if kind in ("s4", "u4"):
        nibbles = (matrix & 15).astype(np.uint8)
        return nibbles[:, ::2] | nibbles[:, 1::2] << 4
    if kind == "b1":
        return np.packbits(matrix.astype(np.uint8), axis=1, bitorder="little")
    types = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64, "s32": np.int32}
    narrow = {"s8": np.int8, "u8": np.uint8}
    return np.ascontiguousarray(matrix.astype((types | narrow)[kind])).view(np.uint8)


def stored(kind: str, matrix: np.ndarray, layout: str, pad: int) -> tuple[np.ndarray, int]:
    """8192 bytes that hold a matrix by rows or columns, and its leading dimension in elements."""
    lines = matrix if layout == "row" else matrix.T
    padded = np.concatenate([lines, np.ones((lines.shape[0], pad), lines.dtype)], axis=1)
    raw = np.zeros(8192, np.uint8)
    flat = encode(kind, padded).reshape(-1)
    raw[: flat.size] = flat
    return raw, padded.shape[1]


def decode(kind: str, raw: np.ndarray, shape: tuple[int, int], layout: str, leading: int) -> np.ndarray:
    types = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
    lines = shape if layout == "row" else shape[::-1]
    flat = raw.view(types[kind])[: lines[0] * leading].reshape(lines[0], leading)[:, : lines[1]]
    return (flat if layout == "row" else flat.T).astype(object if kind == "s32" else np.float64)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_product(product: Product) -> None:
    rng = np.random.default_rng(0)
    m, n, k = product.extents
    d_kind, a_kind, b_kind, c_kind = product.types.split(".")
    a_layout, b_layout, c_layout, d_layout = product.layouts.split(".")
    a, b = random_values(a_kind, (m, k), rng), random_values(b_kind, (k, n), rng)
    c = random_values(c_kind, (m, n), rng)
    pad = (128 if a_kind == "b1" else 32 if a_kind in ("s4", "u4") else PAD) if product.stride else 0
    memory, strides = [], []
    for kind, matrix, layout in ((a_kind, a, a_layout), (b_kind, b, b_layout), (c_kind, c, c_layout)):
        raw, leading = stored(kind, matrix, layout, pad)
        memory.append(raw)
        strides.append(leading)
    memory.append(np.zeros(8192, np.uint8))
    strides.append((n if d_layout == "row" else m) + pad)
    report = ptx.Program(product.text)["tile"].launch(1, 32, [*memory, *strides], checks=True, statistics=True)
    assert not report.findings
    got = decode(d_kind, memory[3], (m, n), d_layout, strides[3])
    if d_kind == "f64":
        np.testing.assert_allclose(got, a @ b + c, rtol=1e-14, atol=1e-14)
        return
    if product.operation:
        joined = {"xor": lambda x, y: x ^ y, "and": lambda x, y: x & y}[product.operation]
        total = joined(a[:, :, None], b[None]).sum(1)
    else:
        total = a @ b
    exact = (total + c).astype(object)
    if d_kind == "s32":
        limits = (-(2**31), 2**31 - 1)
        wrap = np.vectorize(lambda x: (x + 2**31) % 2**32 - 2**31, otypes=[object])
        exact = np.clip(exact, *limits) if product.suffix == "satfinite" else wrap(exact)
    elif d_kind == "f16":
        exact = (total + c).astype(np.float16).astype(np.float64)
    assert (got == exact).all()


def fragment_of(role: str, layout: str, kind: str, matrix: np.ndarray, registers: int) -> np.ndarray:
    """The registers, [register][lane], that wmma.load of m16n16k16 leaves."""
    names = "{" + ", ".join(f"%r{i}" for i in range(registers)) + "}"
    load = f"wmma.load.{role}.sync.aligned.{layout}.m16n16k16.global.{kind} {names}, [%d0], 16;"
    body = [".reg .b32 %r<20>; .reg .b64 %d<9>; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];", load]
    body += ["mov.u32 %r18, %tid.x; mad.wide.u32 %d2, %r18, 4, %d1;"]
    body += [f"st.global.b32 [%d2+{128 * i}], %r{i};" for i in range(registers)]
    text = f"{HEADER}.visible .entry dump(.param .u64 in, .param .u64 out)\n{{\n" + "\n".join(body) + "\nret;\n}\n"
    out = np.zeros((registers, 32), np.uint32)
    flat = np.ascontiguousarray(matrix if layout == "row" else matrix.T)
    ptx.Program(text)["dump"].launch(1, 32, [flat, out])
    return out


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("role", ["a", "b"])
def test_fragments_of_factors_are_those_of_the_hardware(role: str, layout: str) -> None:
    """x[i] and x[i + 8] of lane 4g + c, as wmma_extension documents them for sm_80."""
    matrix = np.arange(256, dtype=np.uint16).reshape(16, 16)
    halves = fragment_of(role, layout, "f16", matrix, 8).view(np.uint16).reshape(8, 32, 2)
    for lane in range(32):
        x = [int(halves[i // 2, lane, i % 2]) for i in range(16)]
        for i in range(8):
            pair, low, high = i & 1, (i & 2) * 4, (i & 4) * 2
            if role == "a":
                row, column = lane // 4 + low, lane % 4 * 2 + pair + high
            else:
                row, column = lane % 4 * 2 + pair + low, lane // 4 + high
            assert x[i] == x[i + 8] == matrix[row, column]


@pytest.mark.parametrize("layout", ["row", "col"])
def test_fragments_of_sums_are_those_of_the_hardware(layout: str) -> None:
    matrix = np.arange(256, dtype=np.float32).reshape(16, 16)
    out = fragment_of("c", layout, "f32", matrix, 8).view(np.float32)
    halves = fragment_of("c", layout, "f16", matrix.astype(np.float16), 4).view(np.float16).reshape(4, 32, 2)
    for lane in range(32):
        for i in range(8):
            row, column = lane // 4 + (i & 2) * 4, lane % 4 * 2 + (i & 1) + (i & 4) * 2
            assert out[i, lane] == halves[i // 2, lane, i % 2] == matrix[row, column]


def test_a_result_may_overwrite_a_factor() -> None:
    """D in the registers of B: the second half of the product still sees the old ones."""
    names = [f"%r{i}" for i in range(8)]
    b, c = "{" + ", ".join(names) + "}", "{" + ", ".join(f"%r{i}" for i in range(8, 16)) + "}"
    a = "{" + ", ".join(f"%r{i}" for i in range(16, 24)) + "}"
    body = f""".reg .b32 %r<24>; .reg .b64 %d<4>; ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [d];
    wmma.load.a.sync.aligned.row.m16n16k16.f16 {a}, [%d0], 16;
    wmma.load.b.sync.aligned.row.m16n16k16.f16 {b}, [%d1], 16;
    {" ".join(f"mov.b32 %r{i}, 0;" for i in range(8, 16))}
    wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {b}, {a}, {b}, {c};
    wmma.store.d.sync.aligned.row.m16n16k16.f32 [%d2], {b}, 16;"""
    text = f"{HEADER}.visible .entry over(.param .u64 a, .param .u64 b, .param .u64 d)\n{{\n{body}\nret;\n}}\n"
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-8, 9, (16, 16)).astype(np.float16) for _ in range(2))
    out = np.zeros((16, 16), np.float32)
    report = ptx.Program(text)["over"].launch(1, 32, [x, y, out])
    assert (out == x.astype(np.float32) @ y.astype(np.float32)).all()
    assert report.instructions == len([s for s in body.split(";") if s.strip() and ".reg" not in s]) + 1  # and ret


def test_requests_of_a_load() -> None:
    """A by rows: four accesses of 4 bytes a lane, each to 8 rows of 16 bytes; a leading dimension of 16 halves."""
    program = ptx.Program(Product("m16n16k16", "f32.f16.f16.f32", "row.col.row.row").text)
    arrays = [np.zeros(8192, np.uint8) for _ in range(4)]
    report = program["tile"].launch(1, 32, [*arrays, 16, 16, 16, 16], statistics=True)
    load_a = next(line for line in report.lines if line.text.startswith("wmma.load.a"))
    assert (load_a.requests, load_a.sectors, load_a.bytes) == (4, 32, 512)
    store = next(line for line in report.lines if line.text.startswith("wmma.store"))
    assert (store.requests, store.sectors, store.bytes) == (4, 32, 1024)
    product = next(line for line in report.lines if line.text.startswith("wmma.mma"))
    assert (product.executions, report.mix["tensor"]) == (1, 1)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k4.f16 {%r1}, [%d1];", "no A of .f16 in .m16n16k4"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2}, [%d1];", "2 registers for a fragment of 8"),
        ("wmma.load.b.sync.aligned.row.m8n8k32.s4 {%r1}, [%d1];", "B by columns only"),
    ],
)
def test_refusals(statement: str, reason: str) -> None:
    body = f".reg .b32 %r<9>; .reg .b64 %d<9>; {statement}"
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program(f"{HEADER}.visible .entry no()\n{{\n{body}\nret;\n}}\n")["no"]


SOURCE = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void scaled(const half* a, const half* b, float* c, int k, float scale) {
  __shared__ half tile[16 * 24];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k0 = 0; k0 < k; k0 += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) tile[i / 16 * 24 + i % 16] = b[(i / 16) * k + k0 + i % 16];
    __syncthreads();
    wmma::load_matrix_sync(left, a + k0, k);
    wmma::load_matrix_sync(right, tile, 24);
    for (int i = 0; i < left.num_elements; ++i) left.x[i] = __hmul(left.x[i], __float2half(2.0f));
    wmma::mma_sync(sum, left, right, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= scale;
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
extern "C" __global__ void doubles(const double* a, const double* b, double* c) {
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum;
  wmma::load_matrix_sync(left, a, 4);
  wmma::load_matrix_sync(right, b, 8);
  wmma::load_matrix_sync(sum, c, 8, wmma::mem_row_major);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 8, wmma::mem_col_major);
}
extern "C" __global__ void tf32(const float* a, const float* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::load_matrix_sync(left, a, 8);
  wmma::load_matrix_sync(right, b, 16);
  for (int i = 0; i < left.num_elements; ++i) left.x[i] = wmma::__float_to_tf32(left.x[i]);
  for (int i = 0; i < right.num_elements; ++i) right.x[i] = wmma::__float_to_tf32(right.x[i]);
  wmma::fill_fragment(sum, 1.0f);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
"""


def test_kernels_of_mma_h() -> None:
    kernels = compile_cuda_module(SOURCE, arch="sm_80").kernels
    run = lambda name, *args: ptx.Program(kernels[name].ptx)[name].launch(1, 32, args, checks=True)  # noqa: E731
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 16, 64)).astype(np.float16)
    c = np.zeros((16, 16), np.float32)
    assert not run("scaled", a, b, c, 64, 0.5).findings
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-4, atol=1e-4)
    x, y, z = rng.normal(size=(8, 4)), rng.normal(size=(4, 8)), rng.normal(size=(8, 8))
    out = z.copy()
    assert not run("doubles", x, y, out).findings
    np.testing.assert_allclose(out, (x @ y + z).T, rtol=1e-14, atol=1e-14)
    p, q = rng.integers(-9, 9, (16, 8)).astype(np.float32), rng.integers(-9, 9, (8, 16)).astype(np.float32)
    d = np.zeros((16, 16), np.float32)
    assert not run("tf32", p, q, d).findings
    assert (d == p @ q + 1).all()
