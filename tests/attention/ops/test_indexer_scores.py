"""Scores of an indexer: every variant against its bound, the chain to sparse attention, memory and refusals."""

import re

import pytest
import torch
from arguments import with_entry
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench import ops
from workbench.attention import indexer_scores, mla_decode, top_k_positions
from workbench.attention.cache_formats import fp8_index_keys
from workbench.attention.cache_formats.layouts import chosen_slots
from workbench.attention.cache_formats.quantization import e4m3_with_scales
from workbench.attention.ops.indexer_scores import CASES, VARIANTS, IndexerCase, case
from workbench.attention.ops.indexer_scores.api import OP
from workbench.attention.ops.mla_decode.reference import absorbed
from workbench.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = case("small")


def test_the_formula_is_that_of_transformers():
    """`DeepseekV32Indexer` has relu(q . k / sqrt(head_size)), then a weight times 1/sqrt(heads) for each head."""
    generator = torch.Generator().manual_seed(2)
    query, weights, keys = (torch.randn(shape, generator=generator) for shape in ((3, 8, 64), (3, 8), (40, 64)))
    theirs = torch.relu(query @ keys.T * 64**-0.5).mul(weights[..., None] * 8**-0.5).sum(1)
    tables = torch.tensor([[1, 0]], dtype=torch.int32).expand(3, 2).contiguous()
    cache = torch.cat([keys[32:], torch.full((24, 64), torch.nan), keys[:32]]).view(2, 32, 64)
    lengths = torch.full((3,), 40, dtype=torch.int32)
    ours = indexer_scores(query.half(), weights * 512**-0.5, cache.half(), tables, lengths)
    assert ours.shape == (3, 64)
    torch.testing.assert_close(ours[:, :40], theirs, atol=5e-3, rtol=5e-3)
    assert (ours[:, 40:] == -torch.inf).all()


def test_pages_of_codes():
    """DeepGEMM's page: all codes, then all scales."""
    keys = torch.randn(2, 16, 128, generator=torch.Generator().manual_seed(5))
    keys[0, 3] = 0.0
    codes, scales = e4m3_with_scales(keys)
    pages = fp8_index_keys.pack(codes, scales)
    assert (pages.shape, pages.dtype) == ((2, 16, 132), torch.uint8)
    assert torch.equal(pages.flatten(1)[:, 16 * 128 :].contiguous().view(torch.float32), scales)
    assert scales[0, 3] == 1.0
    values = fp8_index_keys.unpack(pages)
    assert torch.equal(values, codes.float() * scales[..., None])
    assert ((values - keys).abs() <= keys.abs() / 16 + keys.abs().amax(-1, keepdim=True) / 448 * 2**-10).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("num_heads", [1, 16, 64])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_head_counts_and_page_edges(variant, num_heads, dtype, judge):
    one = IndexerCase("grid", num_heads, 32, (1, 15, 16, 0, 17), dtype)
    verdict = judge(
        variant, default_of(variant, one, BLOCK_SIZE=16, TILE_TOKENS=32) | _warps(variant), one, checks=True
    )
    assert verdict.ok, str(verdict)


def _warps(variant):
    return {"NUM_THREADS": 64} if variant is CUDA else {"num_warps": 2}


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [2, pytest.param(40, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        size, lengths = rng.choice((32, 64)), (1, 0, 31, 129)
        return IndexerCase("drawn", rng.choice((3, 16, 20, 64)), size, lengths, rng.choice(variant.dtypes), number % 4)

    judge_drawn(variant, count, draw, judge, checks=True)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_the_chosen_are_what_attention_reads(variant):
    """Scores, positions and attention over pages of one token: the answer of a softmax over the chosen alone."""
    generator = torch.Generator().manual_seed(8)
    lengths, block_size, k = [100, 7], 16, 12
    tables = torch.randperm(16, generator=generator).int().view(2, 8)[:, :7].contiguous()
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    query, weights = torch.randn(2, 8, 64, generator=generator).bfloat16(), torch.rand(2, 8, generator=generator)
    index_cache = torch.randn(16, block_size, 64, generator=generator).bfloat16()
    latent_cache = torch.randn(16, block_size, 96, generator=generator).bfloat16()
    q = torch.randn(2, 4, 96, generator=generator).bfloat16()
    chosen = top_k_positions(
        indexer_scores(query, weights, index_cache, tables, seq_lens, variant=variant.name), seq_lens, k
    )
    slots = chosen_slots(chosen, tables, block_size)
    rows = latent_cache.view(-1, 1, 96)
    attention = {CUDA: "cuda_latent_mma", TRITON: "triton_latent"}[variant]
    found = mla_decode(q, rows, slots, (slots >= 0).sum(1).int(), scale=0.1, latent_size=64, variant=attention)
    for seq, own in enumerate(slots):
        exact = absorbed(q[seq], rows[own[own >= 0].long(), 0], latent_size=64, scale=0.1)
        torch.testing.assert_close(found[seq].double(), exact, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("name", CASES)
def test_the_default_on_a_cpu(name):
    t = case(name).inputs(case(name).problem())
    assert indexer_scores(t.query, t.weights, t.index_cache, t.block_tables, t.seq_lens, out=t.out) is t.out
    assert case(name).check(t.out).ok


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_no_sequences_and_no_tokens(variant):
    t = SMALL.inputs(SMALL.problem())
    empty = [one[:0] for one in (t.query, t.weights)]
    tables, lengths = t.block_tables[:0], t.seq_lens[:0]
    assert indexer_scores(*empty, t.index_cache, tables, lengths, variant=variant.name).shape == (0, 192)
    found = indexer_scores(t.query, t.weights, t.index_cache, t.block_tables, t.seq_lens * 0, variant=variant.name)
    assert (found == -torch.inf).all()


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_each_key_is_read_once_for_all_heads(variant, sim):
    one = case("deepseek-v3.2", seq_lens=(512,))
    config = default_of(variant, one)
    problem = one.problem(config)
    tensors = one.inputs(problem)
    report = variant.run(config, problem, tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    least = one.minimum_bytes(problem)
    assert report.unique_bytes_read + report.unique_bytes_written == pytest.approx(least, rel=0.001)
    # Every tile reads the queries and the weights, and in Triton every warp of it the weights.
    of_tile = 64 * (128 + 4 * config.get("num_warps", 1))
    assert 32 * report.global_load_sectors <= 1.03 * (512 * 132 + 512 // config["TILE_TOKENS"] * of_tile)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_static_side(arch):
    for variant in KERNELS:
        problem = case("deepseek-v3.2").problem(arch=arch)
        assert variant.compile(variant.default_config(problem), problem, arch).spill_bytes == 0


CODES = {"query": torch.zeros(6, 8, 64).to(torch.float8_e4m3fn)}
BAD = {
    "query dtype": ("query", lambda a: {"query": a["query"].double()}, "float16"),
    "query strides": ("query", lambda a: {"query": a["query"].transpose(0, 1)}, "contiguous"),
    "weights dtype": ("weights", lambda a: {"weights": a["weights"].half()}, "float32"),
    "weights shape": ("weights", lambda a: {"weights": a["weights"][:, 1:]}, "per head"),
    "cache dtype": ("index_cache", lambda a: {"index_cache": a["index_cache"].half()}, "bfloat16"),
    "cache row": ("index_cache", lambda a: {"index_cache": a["index_cache"][..., :32].contiguous()}, "64"),
    "bytes": ("index_cache", lambda a: CODES, "uint8"),
    "row of bytes": ("index_cache", lambda a: CODES | {"index_cache": torch.zeros(3, 64, 64).byte()}, "68"),
    "length": ("seq_lens[3]", lambda a: {"seq_lens": with_entry(a["seq_lens"], 3, 193)}, "0 to 192"),
    "entry": ("block_tables[1, 0]", lambda a: {"block_tables": with_entry(a["block_tables"], (1, 0), 99)}, "pages of"),
    "out": ("out", lambda a: {"out": torch.empty(6, 0)}, "tokens"),
    "out too short": ("seq_lens[5]", lambda a: {"out": torch.empty(6, 128)}, "Widen out"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    t = SMALL.inputs(SMALL.problem())
    given = {name: getattr(t, name) for name in ("query", "weights", "index_cache", "block_tables", "seq_lens")}
    with pytest.raises(ArgumentError) as error:
        indexer_scores(**given | change(given))
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)


def test_opcheck():
    t = SMALL.inputs(SMALL.problem())
    given = t.query, t.weights, t.index_cache, t.block_tables, t.seq_lens, t.out
    torch.library.opcheck(OP.library_op(), given, {"variant": CUDA.name})


def test_rules_are_named():
    every = {"page size": ({}, {"block_size": 32}), "grid": ({}, {"num_seqs": 70_000})}
    cuda = {
        "whole steps": ({}, {"head_size": 72}),
        "every warp has work": ({"TILE_TOKENS": 32}, {}),
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "shared memory": ({"TILE_TOKENS": 256}, {"head_size": 256, "num_heads": 128}),
    }
    triton = {
        "products": ({}, {"head_size": 48}),
        "registers": ({"TILE_TOKENS": 128, "num_warps": 1}, {"num_heads": 64}),
    }
    assert_rules(CUDA, default_of(CUDA, SMALL), SMALL.problem(), every | cuda)
    assert_rules(
        TRITON,
        default_of(TRITON, SMALL),
        SMALL.problem(),
        every | triton | {"registers": ({"TILE_TOKENS": 128, "num_warps": 1}, {"num_heads": 64})},
    )


def test_compare_and_restore():
    assert workbench.compare("indexer_scores", device="sim").all_correct
    changed = case("glm-5", context=77, num_seqs=3)
    assert ops.get("indexer_scores").restore_case(changed.to_dict()) == changed
