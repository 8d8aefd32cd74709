"""The float64 reference against plain loops over the formula, and against answers that are known exactly."""

import math
import random

import pytest
import torch

from workbench.attention.ops.paged_attention import CASES, PagedAttentionCase, case
from workbench.attention.ops.paged_attention.reference import reference
from workbench.errors import ArgumentError, UnknownNameError


def by_hand(query, keys, values, scale, slopes=None, window=None, cap=None, sinks=None):
    """One head, one sequence, plain Python numbers."""
    scores = []
    for position, key in enumerate(keys):
        score = scale * sum(q * k for q, k in zip(query, key, strict=True))
        score = score if cap is None else cap * math.tanh(score / cap)
        score = score if slopes is None else score + slopes * (position - (len(keys) - 1))
        seen = window is None or position >= len(keys) - window
        scores.append(score if seen else None)
    total = sum(math.exp(score) for score in scores if score is not None)
    total += 0.0 if sinks is None else math.exp(sinks)
    out = [0.0] * len(query)
    for score, value in zip(scores, values, strict=True):
        if score is not None:
            out = [o + math.exp(score) / total * v for o, v in zip(out, value, strict=True)]
    return out


@pytest.mark.parametrize("layout", ["x", "nhd", "hnd"])
@pytest.mark.parametrize(
    "features",
    [{}, {"alibi": True}, {"sliding_window": 3}, {"soft_cap": 2.0}, {"sinks": True}],
    ids=lambda features: next(iter(features), "plain"),
)
def test_reference_is_the_formula(layout, features):
    one = PagedAttentionCase("tiny", 4, 2, 8, (0, 1, 3, 4, 9), dtype="float32", layout=layout, **features)
    problem = one.problem({"BLOCK_SIZE": 4})
    t = one.inputs(problem)
    got = reference(
        t.query,
        t.key_cache,
        t.value_cache,
        t.block_tables,
        t.seq_lens,
        layout=layout,
        alibi_slopes=t.alibi_slopes,
        sliding_window=t.sliding_window,
        soft_cap=t.soft_cap,
        sinks=t.sinks,
    )
    assert torch.equal(got, one.reference())
    from workbench.attention.cache_formats.layouts import from_paged

    keys, values = from_paged(t.key_cache, t.value_cache, t.block_tables, t.seq_lens, layout=layout)
    for seq in range(5):
        for head in range(4):
            expected = by_hand(
                t.query[seq, head].tolist(),
                keys[seq][:, head // 2].tolist(),
                values[seq][:, head // 2].tolist(),
                8**-0.5,
                None if t.alibi_slopes is None else float(t.alibi_slopes[head]),
                one.sliding_window,
                one.soft_cap,
                None if t.sinks is None else float(t.sinks[head]),
            )
            assert got[seq, head].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_zero_query_gives_the_mean_of_the_values():
    one = case("zero-query")
    t = one.inputs(one.problem())
    from workbench.attention.cache_formats.layouts import from_paged

    _, values = from_paged(t.key_cache, t.value_cache, t.block_tables, t.seq_lens)
    for seq, tokens in enumerate(values):
        expected = tokens.double().mean(0) if len(tokens) else torch.zeros(one.num_kv_heads, one.head_size)
        expected = expected.double().repeat_interleave(one.num_heads // one.num_kv_heads, 0)
        torch.testing.assert_close(one.reference()[seq], expected, rtol=1e-12, atol=1e-14)


def test_one_hot_values_give_the_weights():
    one = case("one-hot-value")
    sums = one.reference().sum(-1)
    lengths = torch.tensor(one.seq_lens)
    torch.testing.assert_close(sums, (lengths > 0).double()[:, None].expand_as(sums), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_content_depends_on_neither_page_size_nor_layout(name):
    from workbench.attention.cache_formats.layouts import from_paged

    seen = []
    for block_size, layout in ((8, "x"), (16, "nhd"), (128, "hnd")):
        one = case(name, layout=layout)
        t = one.inputs(one.problem({"BLOCK_SIZE": block_size}))
        keys, values = from_paged(t.key_cache, t.value_cache, t.block_tables, t.seq_lens, layout=layout)
        seen.append(torch.cat([t.query.flatten(), *[tokens.flatten() for tokens in (*keys, *values)]]))
        used = t.block_tables[t.block_tables >= 0]
        assert len(used.unique()) == len(used)
        if len(used) > 8:
            assert not torch.equal(used, used.sort().values), "an ordered table flatters a kernel"
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])


@pytest.mark.parametrize("name", ["small", "llama-3-8b"])
def test_the_bound_tells_wrong_answers_apart(name):
    """What a wrong kernel would answer, computed exactly, is far outside the bound, for long sequences too."""
    one = case(name, context=2000, num_seqs=2) if name == "small" else case(name)
    t = one.inputs(one.problem())
    args = (t.query, t.key_cache, t.value_cache, t.block_tables)
    assert one.check(reference(*args, t.seq_lens)).ok
    wrong = {
        "K ignored": reference(t.query * 0, *args[1:], t.seq_lens),
        "scale missing": reference(*args, t.seq_lens, scale=1.0),
        "last token skipped": reference(*args, t.seq_lens - 1),
        "zeros": torch.zeros_like(one.reference()),
        "wrong KV head": reference(t.query, t.key_cache.roll(1, 1), t.value_cache, t.block_tables, t.seq_lens),
    }
    for what, out in wrong.items():
        check = one.check(out)
        assert not check.ok, what
        assert check.max_error > 5 * check.bound, f"{what}: {check}"


def test_nan_never_passes():
    one = case("small")
    out = one.reference().clone()
    out[-1, -1, -1] = torch.nan
    assert not one.check(out).ok


def test_cases_survive_a_record_and_name_their_fields():
    for one in CASES.values():
        assert PagedAttentionCase.from_dict(one.to_dict()) == one
    scaled = case("llama-3-8b", context=8192, num_seqs=16, dtype="bfloat16")
    assert (len(scaled.seq_lens), max(scaled.seq_lens), scaled.dtype) == (16, 8192, "bfloat16")
    assert scaled.label == "llama-3-8b 16x8192 bfloat16"
    assert len(set(scaled.seq_lens)) > 8
    with pytest.raises(ArgumentError, match="contxt"):
        case("small", contxt=4)
    with pytest.raises(UnknownNameError, match="llama-3-8b"):
        case("llama-9")
    with pytest.raises(ArgumentError, match="num_heads"):
        case("small", num_heads=7)


def test_minimum_bytes():
    one = PagedAttentionCase("tiny", 4, 2, 8, (5, 0), dtype="float16")
    # 5 tokens x 2 KV heads x 8 elements x 2 bytes, keys and values; 2 x 4 x 8 query and output elements of 2 bytes;
    # 2 pages of 4 tokens and 2 lengths of 4 bytes.
    assert one.minimum_bytes(one.problem({"BLOCK_SIZE": 4})) == 2 * 160 + 2 * 128 + 4 * 2 + 4 * 2


def test_lengths_of_a_batch_are_uneven_and_repeatable():
    random.seed(1)
    first, second = case("small", num_seqs=20, context=512), case("small", num_seqs=20, context=512)
    assert first == second
    assert max(first.seq_lens) == first.seq_lens[0] == 512
    assert min(first.seq_lens) >= 256
