"""A kernel in CuTe DSL with shared memory and mma."""

import cutlass
import cutlass.cute as cute
import cutlass.utils
import numpy as np
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def product_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, wait: cutlass.Constexpr):
    """c [16, 8] float32 = a [16, 16] @ b [8, 16].T float16 by one of two warps; both bring a and b."""
    thread, _, _ = cute.arch.thread_idx()
    memory = cutlass.utils.SmemAllocator()
    shared_a = memory.allocate_tensor(cutlass.Float16, cute.make_layout((16, 16), stride=(16, 1)), 16)
    shared_b = memory.allocate_tensor(cutlass.Float16, cute.make_layout((8, 16), stride=(16, 1)), 16)
    for step in cutlass.range_constexpr(4):
        at = step * 64 + thread
        shared_a[at // 16, at % 16] = a[at // 16, at % 16]
    for step in cutlass.range_constexpr(2):
        at = step * 64 + thread
        shared_b[at // 16, at % 16] = b[at // 16, at % 16]
    if wait:
        cute.arch.sync_threads()
    if thread < 32:
        tiled = cute.make_tiled_mma(cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16)))
        mine = tiled.get_slice(thread)
        own_a, own_b, out = mine.partition_A(shared_a), mine.partition_B(shared_b), mine.partition_C(c)
        fragment_a, fragment_b = mine.make_fragment_A(own_a), mine.make_fragment_B(own_b)
        sums = mine.make_fragment_C(out)
        sums.fill(0.0)
        cute.autovec_copy(own_a, fragment_a)
        cute.autovec_copy(own_b, fragment_b)
        cute.gemm(tiled, sums, fragment_a, fragment_b, sums)
        cute.autovec_copy(sums, out)


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, wait: cutlass.Constexpr):
    product_kernel(a, b, c, wait).launch(grid=[1, 1, 1], block=[64, 1, 1])


def compiled(wait: bool):
    """The function, with its PTX in ``__ptx__``."""
    a, b, c = np.zeros((16, 16), np.float16), np.zeros((8, 16), np.float16), np.zeros((16, 8), np.float32)
    return cute.compile(product, *map(from_dlpack, (a, b, c)), wait, options="--keep-ptx --generate-line-info")
