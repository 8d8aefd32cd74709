"""Matrix product with grouped programs and an autotuner; the activation is a function of its own."""

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


def configurations():
    tiles = ((64, 64, 32, 4), (32, 64, 32, 2))
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 4}, num_stages=3, num_warps=warps)
        for m, n, k, warps in tiles
    ]


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, a_row, a_col, b_row, b_col, c_row, c_col,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    across = tl.cdiv(N, BLOCK_N)
    first = program // (GROUP * across) * GROUP
    tall = min(tl.cdiv(M, BLOCK_M) - first, GROUP)
    m = first + program % (GROUP * across) % tall
    n = program % (GROUP * across) // tall
    rows = (m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    cols = (n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * a_row + inner[None, :] * a_col
    b_at = b + inner[:, None] * b_row + cols[None, :] * b_col
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a_tile = tl.load(a_at, mask=inner[None, :] < K - k * BLOCK_K, other=0.0)
        b_tile = tl.load(b_at, mask=inner[:, None] < K - k * BLOCK_K, other=0.0)
        total = tl.dot(a_tile, b_tile, total)
        a_at += BLOCK_K * a_col
        b_at += BLOCK_K * b_row
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    rows = m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c + rows[:, None] * c_row + cols[None, :] * c_col, total.to(tl.float16), mask=inside)


def matmul(a, b, activation=""):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    strides = (*a.stride(), *b.stride(), *c.stride())
    matmul_kernel[grid](a, b, c, M, N, K, *strides, ACTIVATION=activation)
    return c


if __name__ == "__main__":
    torch.manual_seed(0)
    a = torch.rand((100, 96), device=DEVICE, dtype=torch.float16) - 0.5
    b = torch.rand((96, 128), device=DEVICE, dtype=torch.float16) - 0.5
    torch.testing.assert_close(matmul(a, b), a @ b, atol=1e-2, rtol=0)
    expected = torch.nn.functional.leaky_relu(a @ b, 0.01)
    torch.testing.assert_close(matmul(a, b, "leaky_relu"), expected, atol=1e-2, rtol=0)
    print("matmul ok", matmul_kernel.best_config.kwargs["BLOCK_N"])
