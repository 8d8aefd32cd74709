"""Paged attention under Numba's CUDA simulator, as a peer of ``benchmarks.sim``.

Run as ``python -m benchmarks.numba_simulator INPUTS.npz`` with ``NUMBA_ENABLE_CUDASIM=1``; prints one JSON line.
A thread block per (sequence, query head) scores each cached token, computes the softmax over logits in shared memory,
and accumulates the values.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from numba import cuda, float32

NUM_THREADS = 128
MAX_TOKENS = 1024


@cuda.jit
def paged_attention(out, query, key_cache, value_cache, block_tables, seq_lens, scale):  # type: ignore[no-untyped-def]
    """Compute paged attention of one new token per sequence, over a cache in layout "x".

    Shapes: out, query [num_seqs, num_heads, head_size]; key_cache [blocks, kv_heads, head_size/x, block_size, x];
    value_cache [blocks, kv_heads, head_size, block_size].
    """
    logits = cuda.shared.array(MAX_TOKENS, float32)
    partial = cuda.shared.array(NUM_THREADS, float32)
    seq, head, thread = cuda.blockIdx.y, cuda.blockIdx.x, cuda.threadIdx.x
    head_size, x, block_size = query.shape[2], key_cache.shape[4], key_cache.shape[3]
    kv_head = head // (query.shape[1] // key_cache.shape[1])
    seq_len = seq_lens[seq]

    # 1. Score: one token per thread.
    highest = -np.inf
    for token in range(thread, seq_len, NUM_THREADS):
        block, slot = block_tables[seq, token // block_size], token % block_size
        score = 0.0
        for d in range(head_size):
            score += query[seq, head, d] * key_cache[block, kv_head, d // x, slot, d % x]
        logits[token] = score * scale
        highest = max(highest, score * scale)

    # 2. Softmax over the whole block.
    partial[thread] = highest
    cuda.syncthreads()
    for other in range(NUM_THREADS):
        highest = max(highest, partial[other])
    cuda.syncthreads()
    total = 0.0
    for token in range(thread, seq_len, NUM_THREADS):
        logits[token] = np.exp(logits[token] - highest)
        total += logits[token]
    partial[thread] = total
    cuda.syncthreads()
    total = 0.0
    for other in range(NUM_THREADS):
        total += partial[other]

    # 3. Accumulate: one row of the head per thread.
    for d in range(thread, head_size, NUM_THREADS):
        value = 0.0
        for token in range(seq_len):
            value += logits[token] * value_cache[block_tables[seq, token // block_size], kv_head, d, token % block_size]
        out[seq, head, d] = value / total


def main(path: str) -> None:
    """Time one run on the tensors of the file ``path`` (npz), and print the seconds and the error as JSON."""
    inputs = np.load(path)
    query, expected = inputs["query"].astype(np.float32), inputs["expected"]
    if int(inputs["seq_lens"].max()) > MAX_TOKENS:
        raise SystemExit(f"seq_lens: the peer kernel holds {MAX_TOKENS} logits")
    out = np.zeros_like(query)
    num_seqs, num_heads = query.shape[:2]
    start = time.perf_counter()
    paged_attention[(num_heads, num_seqs), NUM_THREADS](
        out,
        query,
        inputs["key_cache"].astype(np.float32),
        inputs["value_cache"].astype(np.float32),
        inputs["block_tables"],
        inputs["seq_lens"],
        float(inputs["scale"]),
    )
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "max_error": float(np.abs(out - expected).max())}))


if __name__ == "__main__":
    main(sys.argv[1])
