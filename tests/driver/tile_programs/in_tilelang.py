"""TileLang: a product of matrices with a pipeline of copies; with "fault" a row index past the end."""

import sys

import tilelang
import tilelang.language as T
import torch

SHIFT = 64 if "fault" in sys.argv else 0


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True})
def product(m, n, k, shift):
    @T.prim_func
    def kernel(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (column, row):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[row * 64, step * 32], a)
                T.copy(B[step * 32, column * 64], b)
                T.gemm(a, b, total)
            for i, j in T.Parallel(64, 64):
                C[row * 64 + i + shift, column * 64 + j] = total[i, j]

    return kernel


a = torch.randn(128, 96, device="cuda", dtype=torch.float16)
b = torch.randn(96, 128, device="cuda", dtype=torch.float16)
c = product(128, 128, 96, SHIFT)(a, b)
torch.cuda.synchronize()
torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-2, rtol=1e-2)
print("right")
