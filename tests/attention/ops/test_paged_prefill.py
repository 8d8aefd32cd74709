"""New tokens over a paged cache: every variant against its bound, what a token sees, memory and refusals."""

import dataclasses
import itertools
import math
import re

import pytest
import torch
from arguments import every_other, with_entry
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench import ops
from workbench.attention import paged_attention, paged_prefill
from workbench.attention.cache_formats.quantization import quantize
from workbench.attention.ops.paged_prefill import VARIANTS, PagedPrefillCase, case
from workbench.attention.ops.paged_prefill.api import OP
from workbench.attention.ops.paged_prefill.reference import reference, visible
from workbench.errors import ArgumentError, WorkbenchError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL, DRAFTS, WINDOW = case("small"), case("drafts"), case("drafts-in-a-window")


def ancestors(masks, draft):
    """The drafts on the way from the root to one, itself the last, by its mask alone."""
    return [other for other in range(draft + 1) if int(masks[draft]) >> other & 1]


@pytest.mark.parametrize("window", [None, 1, 3, 7])
def test_a_draft_sees_its_own_continuation_as_if_it_were_alone(window):
    """By its definition: the context and the path of the draft form a sequence, whose last token it is."""
    one = DRAFTS.override(query_lens=(20,), seq_lens=(25,))
    masks = one.inputs(one.problem()).tree_mask
    masks[7] |= 0b1111 << 60  # later bits do not count
    sees = visible(20, torch.tensor([25]), sliding_window=window, tree_mask=masks[None])[0]
    for draft in range(20):
        path = [*range(5), *(5 + other for other in ancestors(masks, draft))]
        assert sees[draft].nonzero().flatten().tolist() == (path if window is None else path[-window:])
    causal = visible(3, torch.tensor([5, 3]), sliding_window=window)
    for context, rows in zip((2, 0), causal, strict=True):
        for new, row in enumerate(rows):
            seen = list(range(context + new + 1))
            assert row.nonzero().flatten().tolist() == (seen if window is None else seen[-window:])
    assert torch.equal(
        visible(70, torch.tensor([80]), tree_mask=torch.zeros(1, 70).long()), visible(70, torch.tensor([80]))
    )


def test_the_reference_reads_pages_and_agrees_with_decode():
    one = case("gpt-oss", query_lens=(1, 1, 1), dtype="float32")
    t = one.inputs(one.problem())
    features = {"sliding_window": t.sliding_window, "sinks": t.sinks}
    found = reference(
        t.query, t.key_cache, t.value_cache, t.block_tables, t.seq_lens, t.cu_seqlens_q, layout="hnd", **features
    )
    torch.testing.assert_close(found, one.reference())
    decoded = paged_attention(t.query, t.key_cache, t.value_cache, t.block_tables, t.seq_lens, layout="hnd", **features)
    torch.testing.assert_close(decoded.double(), found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["int8", "fp8_e4m3"])
def test_a_quantized_cache_is_read_as_its_values(kind):
    one = SMALL.override(dtype="float32")
    t = one.inputs(one.problem())
    scales = torch.tensor([0.03, 0.02])
    codes = [quantize(cache.nan_to_num(0.0), scales, kind) for cache in (t.key_cache, t.value_cache)]
    values = [code.float() * scales[:, None] for code in codes]
    rest = t.block_tables, t.seq_lens, t.cu_seqlens_q
    options = {"layout": "nhd", "kv_cache_dtype": kind, "k_scale": scales, "v_scale": scales}
    found = paged_prefill(t.query, *codes, *rest, **options)
    torch.testing.assert_close(found, paged_prefill(t.query, *values, *rest, layout="nhd"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8, 16])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_groups_and_page_edges(variant, tree, group, judge):
    page, rows = (8, 16, 64)[group % 3], (64, 16)[group % 2]
    edges = (1, page - 1, page, 0, page + 1)
    one = PagedPrefillCase(
        "grid", 2 * group, 2, 32, query_lens=(*edges, 1, 3), seq_lens=(*edges, page + 1, page), seed=group,
        sliding_window=9 if page == 16 else None, tree=tree, dtype="bfloat16", layout="nhd" if page > 8 else "hnd",
    )  # fmt: skip
    tile = {"NUM_THREADS": 2 * rows} if variant is CUDA else {}
    config = default_of(variant, one, BLOCK_SIZE=page, BLOCK_M=rows, BLOCK_N=16, **tile)
    verdict = judge(variant, config, one, checks=True)
    assert verdict.ok, f"{one} {config}: {verdict}"


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        heads = rng.choice(((4, 4), (6, 2), (8, 1), (16, 1)))
        features = {
            "sliding_window": rng.choice((None, 1, 20)), "soft_cap": rng.choice((None, 20.0)),
            "sinks": rng.random() < 0.5, "tree": rng.random() < 0.3,
        }  # fmt: skip
        return PagedPrefillCase(
            "drawn", *heads, rng.choice((16, 40, 64, 128)), query_lens=(1, 33, 0, 20), seq_lens=(70, 33, 5, 90),
            dtype=rng.choice(variant.dtypes), layout=rng.choice(variant.layouts), seed=number % 4, **features,
        )  # fmt: skip

    judge_drawn(variant, count, draw, judge, checks=True)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_checks_find_nothing_on_hopper(variant, judge):
    verdict = judge(variant, default_of(variant, WINDOW), WINDOW, checks=True, arch="sm_90")
    assert verdict.ok, verdict


def arguments(one=SMALL):
    t = one.inputs(one.problem())
    names = ("query", "key_cache", "value_cache", "block_tables", "seq_lens", "cu_seqlens_q")
    return {name: getattr(t, name) for name in names} | {"layout": one.layout}


@pytest.mark.parametrize("variant", ["auto", *(variant.name for variant in VARIANTS)])
def test_every_choice_computes_the_same(variant):
    given = arguments()
    assert SMALL.check(paged_prefill(**given, variant=variant)).ok
    fused = torch.randn(50, 12, 64).half()  # rows of the query may be apart
    fused[:, :8] = given["query"]
    out = torch.full((50, 8, 64), torch.nan, dtype=torch.float16)
    assert paged_prefill(**given | {"query": fused[:, :8]}, variant=variant, out=out) is out
    assert SMALL.check(out).ok


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_no_sequences_and_no_new_tokens(variant):
    given = arguments() | {"variant": variant.name}
    nothing = {"query": given["query"][:0], "cu_seqlens_q": torch.zeros_like(given["cu_seqlens_q"])}
    assert paged_prefill(**given | nothing).shape == (0, 8, 64)
    nothing |= {"cu_seqlens_q": nothing["cu_seqlens_q"][:1]}
    assert (
        paged_prefill(**given | nothing | {name: given[name][:0] for name in ("block_tables", "seq_lens")}).numel() == 0
    )


def test_pages_past_2_to_the_31_elements(sim):
    """Pages 2**30 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    one = PagedPrefillCase("far", 4, 2, 32, query_lens=(20, 1), seq_lens=(30, 7))
    for variant in KERNELS:
        config = default_of(variant, one)
        t = one.inputs(one.problem(config))
        pages = t.block_tables[t.block_tables >= 0]
        t.block_tables[t.block_tables >= 0] = torch.arange(len(pages), dtype=torch.int32)
        for name in ("key_cache", "value_cache"):
            cache = getattr(t, name)
            storage = torch.empty(2**30 * (len(pages) - 1) + cache[0].numel(), dtype=cache.dtype)
            far = storage.as_strided((len(pages), *cache.shape[1:]), (2**30, *cache.stride()[1:]))
            for place, page in enumerate(pages.tolist()):
                far[place].copy_(cache[page])
            setattr(t, name, far)
        variant.run(config, one.problem(config), t, sim)
        assert one.check(t.out).ok


BAD = {
    "query dtype": ("query", lambda a: {"query": a["query"].double()}, "float16"),
    "query shape": ("query", lambda a: {"query": a["query"][0]}, r"\[num_tokens, num_heads"),
    "query strides": ("query", lambda a: {"query": every_other(a["query"], 1)}, "contiguous"),
    "heads": ("query", lambda a: {"query": a["query"][:, :7].contiguous()}, "a multiple of the 2 KV heads"),
    "layout": ("layout", lambda a: {"layout": None}, "nhd"),
    "tables": ("block_tables", lambda a: {"block_tables": a["block_tables"][1:]}, "One row per sequence"),
    "entry": ("block_tables[0, 0]", lambda a: {"block_tables": with_entry(a["block_tables"], (0, 0), 99)}, "pages of"),
    "length": ("seq_lens[0]", lambda a: {"seq_lens": with_entry(a["seq_lens"], 0, 999)}, "0 to 144"),
    "starts shape": ("cu_seqlens_q", lambda a: {"cu_seqlens_q": a["cu_seqlens_q"][1:]}, r"\(7,\)"),
    "starts dtype": ("cu_seqlens_q", lambda a: {"cu_seqlens_q": a["cu_seqlens_q"].long()}, "int32"),
    "first start": ("cu_seqlens_q", lambda a: {"cu_seqlens_q": a["cu_seqlens_q"] + 1}, "from 1 to 51"),
    "falling starts": ("cu_seqlens_q[4]", lambda a: {"cu_seqlens_q": with_entry(a["cu_seqlens_q"], 4, 15)}, "-1 new"),
    "more new ones": ("cu_seqlens_q[1]", lambda a: {"cu_seqlens_q": with_entry(a["cu_seqlens_q"], 1, 2)}, "0 to 1"),
    "window": ("sliding_window", lambda a: {"sliding_window": 0}, "1 or more"),
    "cap": ("soft_cap", lambda a: {"soft_cap": 0.0}, "positive"),
    "sinks": ("sinks", lambda a: {"sinks": torch.zeros(2)}, "one per head"),
    "mask dtype": ("tree_mask", lambda a: {"tree_mask": torch.ones(50).int()}, "int64"),
    "mask": ("tree_mask[2]", lambda a: {"tree_mask": torch.ones(50).long()}, "bit 1 set"),
    "scale": ("scale", lambda a: {"scale": math.inf}, "finite"),
    "out": ("out", lambda a: {"out": torch.empty(50, 8, 32, dtype=torch.float16)}, r"torch.empty\(\(50, 8, 64\)"),
    "variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_packed_mma"),
    "config": (
        "config of paged_prefill/cuda_packed_mma",
        lambda a: {"variant": CUDA.name, "config": default_of(CUDA, SMALL, BLOCK_N=24)},
        "whole tiles",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    out = torch.full((50, 8, 64), 7.0, dtype=torch.float16)
    given = {"out": out} | arguments()
    given.update(change(given))
    with pytest.raises(WorkbenchError) as error:
        paged_prefill(**given)
    assert isinstance(error.value, ArgumentError)
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)
    assert (out == 7.0).all(), "something was written"


def test_opcheck():
    t = WINDOW.inputs(WINDOW.problem())
    values = (t.query, t.key_cache, t.value_cache, t.block_tables, t.seq_lens, t.cu_seqlens_q, t.scale, t.out)
    keywords = {"sliding_window": 12, "sinks": t.sinks, "tree_mask": t.tree_mask, "layout": "hnd", "variant": CUDA.name}
    torch.library.opcheck(OP.library_op(), values, keywords)


class TestMemory:
    @pytest.mark.parametrize("variant", KERNELS, **NAME)
    def test_drafts_read_the_cache_once(self, variant, sim):
        """32 drafts of 4 heads are one tile of rows: the cache crosses once, not once for each draft."""
        one = PagedPrefillCase("drafts", 8, 2, 64, query_lens=(32,), seq_lens=(256,), tree=True)
        config = default_of(variant, one)
        assert config["BLOCK_M"] == 4 * 32
        problem = one.problem(config)
        tensors = one.inputs(problem)
        report = variant.run(config, problem, tensors, sim, statistics=True)
        assert one.check(tensors.out).ok
        least = one.minimum_bytes(problem)
        assert report.unique_bytes_read + report.unique_bytes_written == pytest.approx(least, rel=0.005)
        cache = 2 * 256 * 2 * 64 * 2
        other = 32 * report.global_load_sectors - tensors.query.nbytes - cache
        assert 0 <= other < 0.1 * cache, "lengths, table entries and masks"

    @pytest.mark.parametrize(
        ("name", "tree", "arch"),
        [
            ("llama-3-8b", False, "sm_80"),
            ("llama-3-8b", True, "sm_80"),
            *(
                pytest.param(*one, marks=pytest.mark.long)
                for one in (("gemma-2", True, "sm_80"), ("llama-3-8b", True, "sm_90"))
            ),
        ],
    )
    def test_static_side(self, name, tree, arch):
        for variant in KERNELS:
            problem = case(name, tree=tree).problem(arch=arch)
            assert variant.compile(variant.default_config(problem), problem, arch).spill_bytes == 0


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_are_legal(variant):
    for size, group, tokens, features in itertools.product(
        (16, 40, 64, 128, 256), (1, 3, 16), (1, 100), ((), ("tree",))
    ):
        changed = {"head_size": size, "num_heads": 2 * group, "num_tokens": tokens, "features": features}
        problem = dataclasses.replace(SMALL.problem(), **changed)
        variant.check(variant.default_config(problem), problem)


def test_rules_are_named():
    every = {
        "page size": ({}, {"block_size": 32}),
        "group": ({}, {"num_heads": 34}),
        "16-byte rows": ({}, {"alignment": 8}),
        "offsets inside a page": ({}, {"num_kv_heads": 2**21, "num_heads": 2**21}),
        "grid": ({}, {"num_kv_heads": 70_000, "num_heads": 70_000}),
        "whole 16-byte steps": ({}, {"head_size": 36}),
    }
    cuda = {
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "whole rows of a warp": ({"BLOCK_M": 16}, {}),
        "whole tiles": ({"BLOCK_N": 8}, {}),
        "stages": ({"NUM_STAGES": 1}, {}),
        "registers": ({"BLOCK_M": 256}, {"head_size": 128}),
        "shared memory": ({"BLOCK_N": 128, "NUM_STAGES": 3}, {"head_size": 256}),
    }
    triton = {
        "products": ({"BLOCK_N": 8}, {}),
        "warps": ({"num_warps": 3}, {}),
        "tiles fit in registers": ({"num_warps": 1, "BLOCK_M": 128}, {"head_size": 128}),
        "shared memory": ({"BLOCK_N": 128, "num_stages": 3}, {"head_size": 256}),
    }
    assert_rules(CUDA, default_of(CUDA, SMALL), SMALL.problem(), every | cuda)
    assert_rules(TRITON, default_of(TRITON, SMALL), SMALL.problem(), every | triton)


def test_compare_and_restore():
    assert workbench.compare("paged_prefill", device="sim").all_correct
    changed = case("llama-3-8b", context=77, num_seqs=3)
    assert changed.query_lens == (40, 1, 1)
    assert ops.get("paged_prefill").restore_case(changed.to_dict()) == changed
