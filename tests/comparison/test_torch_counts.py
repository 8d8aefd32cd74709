"""What torch is asked for is counted as one would count it by hand."""

import time

import pytest
import torch

from workbench.attention.ops.causal_attention import causal_attention, decode_step
from workbench.comparison.bench.torch_counts import TorchCounts, count, cpu_seconds


@pytest.mark.parametrize(
    ("function", "bytes_moved", "largest_bytes"),
    [
        (lambda x: x + 1, 32 + 32, 32),
        (lambda x: x + x, 32 + 32 + 32, 32),
        (lambda x: x.view(2, 4).T[0], 0, 0),
        (lambda x: x.mul_(2), 32 + 32, 32),
        (lambda x: x.copy_(x.view(2, 4).view(8)), 32 + 32, 32),
        (lambda x: torch.cat([x, x]), 64 + 64, 64),
        (lambda x: x.__setitem__(slice(0, 2), torch.ones(2)), 8 + 2 * 8, 8),
        (lambda x: x.max(0), 32 + 4 + 8, 8),
    ],
)
def test_bytes(function, bytes_moved, largest_bytes):
    assert count(function, torch.ones(8)) == TorchCounts(0, bytes_moved, largest_bytes)


def test_a_product():
    counts = count(torch.matmul, torch.ones(3, 5), torch.ones(5, 7))
    assert counts == TorchCounts(2 * 3 * 5 * 7, 4 * (15 + 35 + 21), 4 * 21)


def test_attention_with_and_without_a_cache():
    """Without one a step costs all pairs, the masked ones too, and all scores; with one a single row of each."""
    heads, tokens, size = 4, 64, 32
    query, key, value = torch.randn(3, 1, heads, tokens, size)
    naive = count(causal_attention, query, key, value)
    assert naive.flops == 4 * heads * size * tokens * tokens
    assert naive.largest_bytes == 4 * heads * tokens * tokens
    blocks = count(causal_attention, query, key, value, variant="torch_blockwise", block_size=16)
    assert blocks.flops == naive.flops
    assert blocks.largest_bytes == 4 * heads * tokens * size
    cached = count(decode_step, query[:, :, -1], key, value, torch.tensor([tokens]))
    assert cached.flops == 4 * heads * size * tokens
    assert cached.bytes_moved < naive.bytes_moved / 2


def test_nothing_is_counted_afterwards():
    ones = torch.ones(8)
    with pytest.raises(RuntimeError):
        count(torch.matmul, ones, torch.ones(7))
    assert count(torch.add, ones, ones).bytes_moved == 96


def test_the_time_leaves_the_first_call_out():
    calls, threads = [], torch.get_num_threads()

    def function(number):
        calls.append((number, torch.get_num_threads()))

    assert cpu_seconds(function, 7, repeats=3) >= 0
    assert calls == [(7, 1)] * 4
    assert torch.get_num_threads() == threads


def test_waiting_takes_no_cpu_time():
    matrix = torch.ones(200, 200)
    assert cpu_seconds(time.sleep, 0.02, repeats=3) < 0.005
    assert cpu_seconds(lambda: [matrix @ matrix for _ in range(50)], repeats=3) > 0.0005
