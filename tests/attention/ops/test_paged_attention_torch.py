"""The torch variant over the grids of the peers: head sizes, pages, groups, layouts, features, quantized caches."""

import itertools

import pytest
import torch

from workbench.attention import paged_attention
from workbench.attention.ops.paged_attention import PagedAttentionCase, case
from workbench.attention.ops.paged_attention.reference import reference
from workbench.ops import variant

TORCH = variant("paged_attention", "torch")
LENGTHS = (0, 1, 15, 16, 17, 40, 129)


def verdict(one, block_size=16):
    problem = one.problem({"BLOCK_SIZE": block_size})
    tensors = one.inputs(problem)
    TORCH.run({}, problem, tensors)
    return one.check(tensors.out)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("head_size", [32, 64, 80, 96, 112, 120, 128, 192, 256])
def test_head_sizes(head_size, dtype):
    for block_size, layout in zip((8, 16, 32, 64, 128), itertools.cycle(("x", "nhd", "hnd"))):
        one = PagedAttentionCase("grid", 8, 2, head_size, LENGTHS, dtype=dtype, layout=layout, seed=block_size)
        check = verdict(one, block_size)
        assert check.ok, f"{one} {block_size}: {check}"


@pytest.mark.parametrize("heads", [(40, 40), (64, 8), (32, 8), (8, 2), (5, 1), *((group, 1) for group in range(1, 17))])
def test_heads_and_groups(heads):
    check = verdict(PagedAttentionCase("grid", *heads, 64, LENGTHS, dtype="float32"))
    assert check.ok, check


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8_e4m3", "fp8_e5m2", "int8"])
@pytest.mark.parametrize("layout", ["x", "nhd", "hnd"])
@pytest.mark.parametrize(
    "features",
    [
        {},
        {"alibi": True},
        {"sliding_window": 64},
        {"sliding_window": 1},
        {"soft_cap": 50.0},
        {"sinks": True},
        {"alibi": True, "sliding_window": 100, "soft_cap": 30.0, "sinks": True},
    ],
    ids=lambda features: "+".join(features) or "plain",
)
def test_features_and_quantized_caches(features, layout, kv_cache_dtype):
    one = PagedAttentionCase(
        "grid", 8, 2, 64, LENGTHS, layout=layout, kv_cache_dtype=kv_cache_dtype, dtype="bfloat16", **features
    )
    check = verdict(one)
    assert check.ok, check


@pytest.mark.parametrize("how", ["number", "tensor", "head", "token"])
def test_every_granularity_of_scales(how):
    one = case("small", kv_cache_dtype="int8", dtype="float32")
    t = one.inputs(one.problem({"BLOCK_SIZE": 16}))
    heads = t.k_scale
    expected_k = heads if how in ("head", "token") else torch.tensor([0.03])
    expected_v = heads * 2 if how in ("head", "token") else torch.tensor([0.07])
    given = {
        "number": (0.03, 0.07),
        "tensor": (torch.tensor([0.03]), torch.tensor([0.07])),
        "head": (heads, heads * 2),
        "token": tuple(scale.expand(len(t.key_cache), 16, -1).contiguous() for scale in (heads, heads * 2)),
    }[how]
    out = paged_attention(
        t.query,
        t.key_cache,
        t.value_cache,
        t.block_tables,
        t.seq_lens,
        kv_cache_dtype="int8",
        k_scale=given[0],
        v_scale=given[1],
    )
    expected = reference(
        t.query,
        t.key_cache,
        t.value_cache,
        t.block_tables,
        t.seq_lens,
        k_scale=expected_k,
        v_scale=expected_v,
    )
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_long_batch_is_quick():
    """16 sequences of up to 2048 tokens, Llama-3-8B: no loop over sequences or tokens."""
    one = case("llama-3-8b", context=2048, num_seqs=4)
    check = verdict(one)
    assert check.ok, check
