"""The reference mathematics: each form equal to full recomputation, in float64 to its last digits."""

import dataclasses
import itertools

import pytest
import torch

import workbench
from workbench.attention import causal_attention
from workbench.attention.ops.causal_attention import (
    VARIANTS,
    CausalAttentionCase,
    append,
    attend_to_blocks,
    case,
    causal_mask,
    decode_step,
    into_blocks,
    multi_head,
    single_head,
)
from workbench.attention.ops.causal_attention.problem import DTYPES
from workbench.attention.ops.paged_attention.reference import attend
from workbench.errors import ArgumentError, UnknownNameError

EXACT = {"rtol": 0, "atol": 1e-12}
HEADS = ((1, 1), (4, 4), (8, 2), (6, 1))  # MHA, GQA, MQA
TORCH = [variant for variant in VARIANTS if variant.language == "torch"]
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(heads=(8, 2), tokens=37, queries=None, head_size=16, seqs=3):
    kv = (seqs, heads[1], tokens, head_size)
    return normal(seqs, heads[0], queries or tokens, head_size), normal(*kv, seed=1), normal(*kv, seed=2)


def by_hand(query, key, value):
    """One head, loops and Python floats: ``[num_tokens, head_size]`` each."""
    out = torch.zeros_like(query)
    for i in range(len(query)):
        weights = [torch.exp(query[i].dot(key[j]) / query.shape[1] ** 0.5).item() for j in range(i + 1)]
        for j, weight in enumerate(weights):
            out[i] += weight / sum(weights) * value[j]
    return out


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", TORCH, **NAME)
def test_every_dtype_and_kind_of_sharing(variant, dtype, heads, judge):
    one = CausalAttentionCase("grid", *heads, head_size=64, num_tokens=33, num_queries=9, dtype=dtype)
    verdict = judge(variant, variant.default_config(one.problem()), one)
    assert verdict.ok, verdict


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("variant", TORCH, **NAME)
def test_against_loops_by_hand(variant, heads):
    query, key, value = inputs(heads, tokens=9, seqs=2)
    out = causal_attention(query, key, value, variant=variant.name)
    for seq, head in itertools.product(range(2), range(heads[0])):
        shared = head // (heads[0] // heads[1])
        expected = by_hand(query[seq, head], key[seq, shared], value[seq, shared])
        torch.testing.assert_close(out[seq, head], expected, **EXACT)
        if variant.name == "torch_naive":
            alone = single_head(query[seq, head], key[seq, shared], value[seq, shared])
            torch.testing.assert_close(alone, expected, **EXACT)


@pytest.mark.parametrize("block_size", [1, 8, 16, 36, 37, 38, 64])
def test_blocks_of_any_size(block_size):
    query, key, value = inputs()
    out = causal_attention(query, key, value, variant="torch_blockwise", block_size=block_size)
    torch.testing.assert_close(out, multi_head(query, key, value), **EXACT)


@pytest.mark.parametrize("variant", TORCH, **NAME)
def test_the_last_tokens_alone(variant):
    """Queries of a suffix: the rows of full recomputation."""
    query, key, value = inputs()
    full = multi_head(query, key, value)
    for queries in (1, 5, 36):
        out = causal_attention(query[:, :, -queries:], key, value, variant=variant.name)
        torch.testing.assert_close(out, full[:, :, -queries:], **EXACT)


@pytest.mark.parametrize("variant", TORCH, **NAME)
def test_later_tokens_have_no_influence(variant):
    query, key, value = inputs()
    changed = key.clone(), value.clone()
    for side in changed:
        side[:, :, 20:] = 1e6
    before, after = (causal_attention(query, *sides, variant=variant.name) for sides in ((key, value), changed))
    assert torch.equal(before[:, :, :20], after[:, :, :20])
    assert not torch.allclose(before[:, :, 20:], after[:, :, 20:])


@pytest.mark.parametrize("heads", HEADS)
def test_decode_with_a_cache_is_full_recomputation(heads):
    """Token by token, sequences of different lengths in one batch, NaN in every slot not yet written."""
    query, key, value = inputs(heads, tokens=20)
    full = multi_head(query, key, value)
    starts, seqs = torch.tensor([0, 3, 11]), torch.arange(3)
    caches = [torch.full_like(side, torch.nan) for side in (key, value)]
    for cache, side in zip(caches, (key, value), strict=True):
        for seq, start in enumerate(starts):
            cache[seq, :, :start] = side[seq, :, :start]  # what the context phase wrote
    for step in range(20 - int(starts.max())):
        position = starts + step
        for cache, side in zip(caches, (key, value), strict=True):
            append(cache, side[seqs, :, position], position + 1)
        out = decode_step(query[seqs, :, position], *caches, position + 1)
        torch.testing.assert_close(out, full[seqs, :, position], **EXACT)


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 37])
def test_decode_over_blocks_with_nan_in_unused_slots(num_tokens):
    """Equation (4): one query over blocks; whole blocks after the last may hold NaN too."""
    query, key, value = inputs(tokens=num_tokens, queries=1, heads=(4, 4))
    blocks = [into_blocks(side, 16) for side in (key, value)]
    assert blocks[0].shape == (-(-num_tokens // 16), 3, 4, 16, 16)
    assert int(blocks[0].isnan().sum()) == 3 * 4 * 16 * (-num_tokens % 16)
    expected = multi_head(query, key, value)
    torch.testing.assert_close(attend_to_blocks(query, *blocks, num_tokens), expected, **EXACT)
    longer = [torch.cat([side, torch.full_like(side[:1], torch.nan)]) for side in blocks]
    torch.testing.assert_close(attend_to_blocks(query, *longer, num_tokens), expected, **EXACT)


UNEVEN = torch.tensor([1, 37, 16, 33])


def decode_over_rows(query, key, value):
    return decode_step(query, key, value, UNEVEN)


def decode_over_blocks(query, key, value):
    group = query.shape[1] // key.shape[1]
    blocks = [into_blocks(side.repeat_interleave(group, 1), 16) for side in (key, value)]
    return attend_to_blocks(query[:, :, None], *blocks, UNEVEN[:, None])[:, :, 0]


DECODE = (decode_over_rows, decode_over_blocks)


def uneven(heads, dtype=torch.float64, garbage=torch.nan):
    """A query per sequence, keys and values of lengths UNEVEN in rows of 37, garbage in every unused slot."""
    kv = (len(UNEVEN), heads[1], 37, 64)
    query = normal(len(UNEVEN), heads[0], 64, dtype=dtype)
    key, value = normal(*kv, seed=1, dtype=dtype), normal(*kv, seed=2, dtype=dtype)
    for side in (key, value):
        for seq, length in enumerate(UNEVEN):
            side[seq, :, length:] = garbage
    return query, key, value


@pytest.mark.parametrize("form", DECODE)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_of_uneven_lengths_in_every_dtype(form, heads, dtype):
    """Within twice the error of the same precision, token by token, of what float64 gives; NaN in every unused slot."""
    query, key, value = uneven(heads, DTYPES[dtype])
    out = form(query, key, value)
    for seq, length in enumerate(UNEVEN):
        tokens = [side[seq, :, :length].transpose(0, 1) for side in (key, value)]
        exact, same = (attend(query[seq], *tokens, scale=1 / 8, dtype=d) for d in (torch.float64, query.dtype))
        bound = 1e-12 if dtype == "float64" else 2 * (same.double() - exact).abs().max() + 1e-5
        assert (out[seq].double() - exact).abs().max() <= bound
        whole = multi_head(
            *(side[None] for side in (query[seq, :, None], key[seq, :, :length], value[seq, :, :length]))
        )
        torch.testing.assert_close(out[seq].double(), whole[0, :, 0].double(), rtol=0, atol=2 * float(bound))


@pytest.mark.parametrize("form", DECODE)
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf, 1e300])
def test_unused_slots_change_no_bit(form, garbage):
    assert torch.equal(form(*uneven((8, 2), garbage=garbage)), form(*uneven((8, 2), garbage=0.0)))


def hidden_by_minus_a_billion(query, key, value):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~causal_mask(*scores.shape[-2:]), -1e9), -1) @ value


@pytest.mark.parametrize("variant", TORCH, **NAME)
def test_masked_weights_are_exactly_zero(variant):
    """Scores of -1e12 everywhere: a weight that is only close to zero, from a score of -1e9, would be all there is."""
    query, key = (
        torch.full((1, 2, 37, 16), -5e5, dtype=torch.float64),
        torch.full((1, 2, 37, 16), 5e5, dtype=torch.float64),
    )
    value = normal(1, 2, 37, 16)
    expected = value.cumsum(2) / torch.arange(1, 38)[:, None]  # all scores are equal
    out = causal_attention(query, key, value, variant=variant.name)
    torch.testing.assert_close(out, expected, **EXACT)
    assert (hidden_by_minus_a_billion(query, key, value) - expected).abs().max() > 0.1


@pytest.mark.parametrize("form", DECODE)
def test_weights_of_unused_slots_are_exactly_zero(form):
    query, key, value = uneven((2, 2), garbage=3.0)
    query, key = torch.full_like(query, -5e5), torch.full_like(key, 5e5)
    expected = torch.stack([side[:, :length].mean(1) for side, length in zip(value, UNEVEN, strict=True)])
    torch.testing.assert_close(form(query, key, value), expected, **EXACT)


def test_scores_of_several_hundred():
    """exp of them overflows unless the maximum is subtracted, also when it comes with a late block."""
    query, key, value = inputs(tokens=33)
    key[:, :, -1] = 50 * key[:, :, -1]
    query = 30 * query
    assert (query @ key.repeat_interleave(4, 1).transpose(-1, -2)).amax() > 4 * 1000
    out = causal_attention(query, key, value, variant="torch_blockwise")
    torch.testing.assert_close(out, multi_head(query, key, value), rtol=0, atol=1e-10)


def test_the_mask():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    weights = torch.softmax(torch.zeros(3, 3).masked_fill(~causal_mask(3, 3), -torch.inf), -1)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]))


@pytest.mark.parametrize("wrong", ["later tokens", "itself missing", "scale of the embedding", "heads interleaved"])
def test_the_judge_catches(wrong):
    """A slip in each of the things that this op is about misses the bound of every case."""
    for name in ("gqa", "exact"):
        one = case(name)
        t = one.inputs(one.problem())
        key, value, scale = t.key, t.value, t.scale
        tokens = one.num_tokens
        mask = causal_mask(tokens, tokens)
        if wrong == "later tokens":
            mask = torch.ones_like(mask)
        elif wrong == "itself missing":
            mask = mask & ~torch.eye(tokens, dtype=torch.bool)
            mask[0, 0] = True
        elif wrong == "scale of the embedding":
            scale = (one.num_heads * one.head_size) ** -0.5
        group = one.num_heads // one.num_kv_heads
        repeat = "repeat_interleave" if wrong != "heads interleaved" else "repeat"
        sides = [
            side.repeat_interleave(group, 1) if repeat == "repeat_interleave" else side.repeat(1, group, 1, 1)
            for side in (key, value)
        ]
        scores = (t.query @ sides[0].transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf)
        assert not one.check(torch.softmax(scores, -1) @ sides[1]).ok


@pytest.mark.parametrize("variant", TORCH, **NAME)
@pytest.mark.sampled(3)
def test_gradients_and_compilation(variant):
    query, key, value = (tensor.requires_grad_() for tensor in inputs(tokens=6, head_size=4, seqs=1))

    def attend(*tensors):
        return causal_attention(*tensors, variant=variant.name, block_size=4)

    assert torch.autograd.gradcheck(attend, (query, key, value), fast_mode=True)
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(query, key, value), attend(query, key, value), **EXACT)


BAD = {
    "dtype": ("query", lambda q, k, v: (q.int(), k, v), "float64"),
    "dimensions": ("query", lambda q, k, v: (q[0], k, v), "Heads come before tokens"),
    "key dtype": ("key", lambda q, k, v: (q, k.float(), v), "float64"),
    "key dimensions": ("key", lambda q, k, v: (q, k[0], v), "Heads come before tokens"),
    "value shape": ("value", lambda q, k, v: (q, k, v[:, :, 1:]), "as key"),
    "head size": ("key", lambda q, k, v: (q, k[..., 1:], v), "head size"),
    "heads": ("query", lambda q, k, v: (q[:, :7], k, v), "multiple of the 2 KV heads"),
    "queries": ("query", lambda q, k, v: (q, k[:, :, 1:], v[:, :, 1:]), "at most the 36"),
    "device": ("value", lambda q, k, v: (q, k, v.to("meta")), "Move it"),
}


@pytest.mark.parametrize("what", BAD)
def test_refusals(what):
    argument, change, message = BAD[what]
    with pytest.raises(ArgumentError, match=message) as caught:
        causal_attention(*change(*inputs()))
    assert caught.value.argument == argument
    assert caught.value.remedy


def test_other_refusals():
    with pytest.raises(ArgumentError, match=r"^scale"):
        causal_attention(*inputs(), scale=float("nan"))
    with pytest.raises(ArgumentError, match=r"^block_size"):
        causal_attention(*inputs(), block_size=0)
    with pytest.raises(UnknownNameError, match="torch_blockwise"):
        causal_attention(*inputs(), variant="flash")


def test_an_empty_batch():
    query, key, value = inputs()
    assert causal_attention(query[:0], key[:0], value[:0]).shape == (0, *query.shape[1:])
    assert causal_attention(query[:, :, :0], key, value).shape == (3, 8, 0, 16)


def test_compare_and_restore():
    assert workbench.compare("causal_attention", "gqa", device="sim").all_correct
    changed = case("gqa", num_tokens=40)
    assert changed.num_queries == 40
    assert CausalAttentionCase.from_dict(changed.to_dict()) == changed
    assert dataclasses.replace(changed, num_tokens=65, num_queries=65) == case("gqa")
