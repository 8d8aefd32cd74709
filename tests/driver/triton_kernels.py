"""Kernels of the tests of Triton's simulated device, each for one thing that Triton's launcher does."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import libdevice


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def doubled_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(
    [triton.Config({"BLOCK": 32}, num_warps=1), triton.Config({"BLOCK": 256}, num_warps=4)],
    key=["n"],
    restore_value=["x"],
)
@triton.jit
def increment_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def tuple_kernel(pointers, sizes, factors, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    left = tl.load(pointers[0] + at, mask=at < sizes[0], other=0.0) * factors[0]
    right = tl.load(pointers[1] + at, mask=at < sizes[1], other=0.0) * factors[1]
    tl.store(pointers[2] + at, left + right)


@triton.jit
def scalar_kernel(out, whole, flag, small: tl.float16, brain: tl.bfloat16, double: tl.float64, wide):
    tl.store(out, whole)
    tl.store(out + 1, flag.to(tl.float64))
    tl.store(out + 2, small.to(tl.float64))
    tl.store(out + 3, brain.to(tl.float64))
    tl.store(out + 4, double)
    tl.store(out + 5, (wide >> 40).to(tl.float64))


@triton.jit
def print_kernel(x, BLOCK: tl.constexpr):
    tl.device_print("value", tl.load(x + tl.arange(0, BLOCK)))


@triton.jit
def assert_kernel(x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(value < 4, "too large")
    tl.store(x + tl.arange(0, BLOCK), value + 1)


@triton.jit
def libdevice_kernel(x, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    tl.store(at, libdevice.asin(tl.load(at)))


@triton.jit
def scratch_kernel(x, out, rows, cols, BLOCK: tl.constexpr):
    tile = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], tile.load([0, 0]))


@triton.jit
def target_kernel(out):
    if tl.target_info.is_cuda():
        tl.store(out, 1)
    else:
        tl.store(out, 2)
    if tl.target_info.cuda_capability_geq(8, 9):
        tl.store(out + 1, 1)


@triton.jit
def racy_kernel(x):
    tl.store(x, tl.program_id(0))


@triton.jit
def outside_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@triton.jit
def wrong_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), missing)  # noqa: F821 (what Triton has to refuse)


@triton.jit
def waiting_kernel(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


@triton.jit
def counting_kernel(counter):
    count = 0
    while tl.atomic_cas(counter, 0, 1) == 1:
        count += 1
        tl.store(counter + 1, count)


@gluon.jit
def gluon_kernel(x, out, n, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, LAYOUT)
    gl.store(out + at, gl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def in_place_kernel(x, COLS: tl.constexpr):
    at = tl.program_id(0) * COLS + tl.arange(0, COLS)
    value = tl.load(x + at)
    tl.store(x + at, value - tl.max(value, 0))
