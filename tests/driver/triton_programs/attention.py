"""Fused causal attention: one program per tile of queries, softmax in one pass over the keys."""

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def attention_kernel(
    q, k, v, out, scale, head_stride, length, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    head = tl.program_id(1) * head_stride
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, HEAD)
    query = tl.load(q + head + rows[:, None] * HEAD + lanes[None, :], mask=rows[:, None] < length, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    result = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * BLOCK_M, BLOCK_N):
        tokens = first + tl.arange(0, BLOCK_N)
        inside = tokens[:, None] < length
        keys = tl.load(k + head + tokens[:, None] * HEAD + lanes[None, :], mask=inside, other=0.0)
        values = tl.load(v + head + tokens[:, None] * HEAD + lanes[None, :], mask=inside, other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * (scale * 1.44269504)
        seen = (rows[:, None] >= tokens[None, :]) & (tokens[None, :] < length)
        scores = tl.where(seen, scores, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new[:, None])
        old = tl.exp2(largest - new)
        total = total * old + tl.sum(weights, axis=1)
        result = tl.dot(weights.to(tl.float16), values, result * old[:, None])
        largest = new
    result = result / total[:, None]
    at = out + head + rows[:, None] * HEAD + lanes[None, :]
    tl.store(at, result.to(tl.float16), mask=rows[:, None] < length)


def attention(q, k, v):
    heads, length, head_size = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(length, 32), heads)
    attention_kernel[grid](q, k, v, out, head_size**-0.5, q.stride(0), length, head_size, BLOCK_M=32, BLOCK_N=32)
    return out


if __name__ == "__main__":
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 80, 64, device=DEVICE, dtype=torch.float16) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    torch.testing.assert_close(attention(q, k, v).float(), expected, atol=1e-2, rtol=1e-2)
    print("attention ok")
