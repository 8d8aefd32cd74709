"""Attention over the contiguous cache: every variant against its bound, memory and refusals."""

import dataclasses
import itertools
import math
import re

import pytest
import torch
from arguments import with_entry
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench import ops
from workbench.attention import contiguous_attention
from workbench.attention.ops.contiguous_attention import VARIANTS, ContiguousAttentionCase, case
from workbench.attention.ops.contiguous_attention.api import OP
from workbench.errors import ArgumentError, WorkbenchError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = case("small")


def decode(*sizes, **fields):
    return ContiguousAttentionCase("grid", *sizes, **fields)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_head_sizes_and_groups(variant, judge):
    groups = itertools.cycle((1, 2, 3, 4, 5, 6, 7, 8, 16))
    dtypes = itertools.cycle(("float32", "float16", "bfloat16"))
    for head_size in (32, 64, 80, 96, 112, 120, 128, 192, 256):
        one = decode(2 * next(groups), 2, head_size, (1, 33, 0, 64), dtype=next(dtypes), seed=head_size)
        verdict = judge(variant, default_of(variant, one), one, checks=variant.language == "cuda")
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        group, size = rng.choice((1, 2, 3, 4, 8)), rng.choice((32, 64, 80, 120, 128))
        return decode(2 * group, 2, size, (1, 0, 31, 129), dtype=rng.choice(variant.dtypes), seed=number % 4)

    judge_drawn(variant, count, draw, judge, checks=variant.language == "cuda")


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_rows_past_2_to_the_31_elements(variant, sim):
    """Rows 2**30 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    one = decode(2, 1, 64, (40, 7, 3))
    t = one.inputs(one.problem())
    storage = torch.empty(2**30 * 3 + t.kv_cache[0].numel(), dtype=torch.float16)
    far = storage.as_strided((4, *t.kv_cache.shape[1:]), (2**30, *t.kv_cache.stride()[1:]))
    for seq, row in enumerate((3, 0, 2)):
        far[row].copy_(t.kv_cache[t.cache_rows[seq]])
    t.kv_cache, t.cache_rows = far, torch.tensor([3, 0, 2], dtype=torch.int32)
    variant.run(default_of(variant, one), one.problem(), t, sim)
    assert one.check(t.out).ok


def arguments(one=SMALL):
    t = one.inputs(one.problem())
    return {name: getattr(t, name) for name in ("query", "kv_cache", "seq_lens", "cache_rows")}


@pytest.mark.parametrize("variant", ["auto", "tuned", *(variant.name for variant in VARIANTS)])
def test_every_choice_computes_the_same(variant):
    assert SMALL.check(contiguous_attention(**arguments(), variant=variant)).ok


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_rows_are_those_of_the_sequences_unless_said(variant):
    given = arguments()
    rows = given.pop("cache_rows").long()
    given["kv_cache"] = given["kv_cache"][rows]
    out = torch.full_like(given["query"], torch.nan)
    assert contiguous_attention(**given, variant=variant.name, out=out) is out
    assert SMALL.check(out).ok
    # Beams that share a row, as after a fork.
    shared = torch.zeros(8, dtype=torch.int32)
    given |= {"query": given["query"][-1:].expand(8, -1, -1).contiguous(), "kv_cache": given["kv_cache"][-1:]}
    out = contiguous_attention(**given | {"seq_lens": shared + 129}, cache_rows=shared, variant=variant.name)
    assert (out.double() - SMALL.reference()[-1]).abs().max() <= SMALL.bound()[-1]


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_rows_of_the_query_may_be_apart_and_the_batch_empty(variant):
    given = arguments()
    fused = torch.randn(8, 20, 64).half()
    fused[:, :8] = given["query"]
    out = contiguous_attention(**given | {"query": fused[:, :8]}, variant=variant.name)
    assert SMALL.check(out).ok
    empty = {name: tensor if name == "kv_cache" else tensor[:0] for name, tensor in given.items()}
    assert contiguous_attention(**empty, variant=variant.name).shape == (0, 8, 64)
    given["seq_lens"] = torch.zeros_like(given["seq_lens"])
    assert (contiguous_attention(**given, variant=variant.name) == 0).all()


BAD = {
    "query dtype": ("query", lambda a: {"query": a["query"].double()}, "float16"),
    "query shape": ("query", lambda a: {"query": a["query"][0]}, "num_seqs, num_heads, head_size"),
    "query strides": ("query", lambda a: {"query": a["query"].transpose(0, 1)}, "contiguous"),
    "cache dtype": ("kv_cache", lambda a: {"kv_cache": a["kv_cache"].float()}, "float16"),
    "cache dimensions": ("kv_cache", lambda a: {"kv_cache": a["kv_cache"][:, 0]}, "max_beam_width"),
    "cache sides": ("kv_cache", lambda a: {"kv_cache": a["kv_cache"][:, :1]}, "Keys are"),
    "head size": ("kv_cache", lambda a: {"kv_cache": a["kv_cache"][..., :32].contiguous()}, "64"),
    "cache strides": (
        "kv_cache",
        lambda a: {"kv_cache": a["kv_cache"].transpose(2, 3).contiguous().transpose(2, 3)},
        "contiguous",
    ),
    "heads": ("query", lambda a: {"query": a["query"][:, :7].contiguous()}, "multiple of the 2 KV heads"),
    "device": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].to("meta")}, "Move it"),
    "lengths dtype": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].long()}, "int32"),
    "lengths shape": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"][1:]}, "One entry per query"),
    "length": ("seq_lens[3]", lambda a: {"seq_lens": with_entry(a["seq_lens"], 3, 135)}, "0 to 134"),
    "negative length": ("seq_lens[0]", lambda a: {"seq_lens": with_entry(a["seq_lens"], 0, -1)}, "0 to 134"),
    "rows dtype": ("cache_rows", lambda a: {"cache_rows": a["cache_rows"].long()}, "int32"),
    "row": ("cache_rows[2]", lambda a: {"cache_rows": with_entry(a["cache_rows"], 2, 10)}, "10 rows"),
    "too few rows": ("cache_rows[3]", lambda a: {"kv_cache": a["kv_cache"][:3], "cache_rows": None}, "3 rows"),
    "scale": ("scale", lambda a: {"scale": math.inf}, "finite"),
    "out": ("out", lambda a: {"out": torch.empty(8, 8, 32, dtype=torch.float16)}, "empty"),
    "variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_register_softmax"),
    "config": (
        "config of contiguous_attention/cuda_register_softmax",
        lambda a: {"variant": CUDA.name, "config": default_of(CUDA, SMALL, VEC_SIZE=16)},
        "16-byte loads",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    given = arguments()
    out = torch.full_like(given["query"], 7.0)
    given = {"out": out if "query" not in change(given) else None} | given
    given.update(change(given))
    with pytest.raises(WorkbenchError) as error:
        contiguous_attention(**given)
    assert isinstance(error.value, ArgumentError)
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)
    assert (out == 7.0).all(), "something was written"


@pytest.mark.parametrize("variant", ["torch", CUDA.name])
def test_opcheck_and_compilation(variant):
    given = arguments()
    out = torch.empty_like(given["query"])
    torch.library.opcheck(OP.library_op(), (*given.values(), 0.125, out), {"variant": variant})

    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(query, *cache):
        return contiguous_attention(query + 0, *cache, variant=variant) * 2

    given["kv_cache"] = given["kv_cache"][given.pop("cache_rows").long()]
    assert SMALL.check(layer(*given.values()) / 2).ok


def report_of(variant, config, one, sim):
    tensors = one.inputs(one.problem())
    report = variant.run(config, one.problem(), tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    return report


class TestMemory:
    LONG = case("llama-3-8b", seq_lens=(256, 128))

    @pytest.mark.parametrize("variant", KERNELS, **NAME)
    def test_every_token_once_from_memory_and_full_sectors(self, variant, sim):
        report = report_of(variant, default_of(variant, self.LONG), self.LONG, sim)
        minimum = self.LONG.minimum_bytes(self.LONG.problem())
        moved = report.unique_bytes_read + report.unique_bytes_written
        assert 0.99 * minimum <= moved <= 1.01 * minimum
        wide = [line for line in report.lines if line.space == "global" and line.bytes == 512 * line.requests]
        assert wide
        assert {line.sectors / line.requests for line in wide} == {16}

    def test_query_heads_that_share_a_block_share_the_loads(self, sim):
        minimum = self.LONG.minimum_bytes(self.LONG.problem())
        for heads in (1, 2, 4):
            report = report_of(CUDA, default_of(CUDA, self.LONG, HEADS_PER_BLOCK=heads), self.LONG, sim)
            assert 32 * report.global_load_sectors / minimum == pytest.approx(4 / heads, rel=0.1)

    @pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
    @pytest.mark.parametrize("variant", KERNELS, **NAME)
    @pytest.mark.sampled(4)
    def test_static_side(self, variant, arch):
        for dtype in variant.dtypes:
            one = self.LONG.override(dtype=dtype)
            kernel = variant.compile(default_of(variant, one), one.problem(arch=arch), arch)
            assert kernel.spill_bytes == 0
            assert kernel.occupancy.fraction >= 0.12


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_are_legal(variant):
    for dtype, size, group in itertools.product(
        variant.dtypes, (32, 64, 80, 96, 112, 120, 128, 192, 256), (1, 3, 8, 16)
    ):
        problem = dataclasses.replace(SMALL.problem(), dtype=dtype, head_size=size, num_heads=2 * group)
        variant.check(variant.default_config(problem), problem)


def test_rules_are_named():
    broken = {
        "heads of one group": ({}, {"num_heads": 6}),
        "groups divide a warp": ({"THREAD_GROUP_SIZE": 3}, {}),
        "whole vectors": ({"THREAD_GROUP_SIZE": 16}, {}),
        "16-byte loads": ({}, {"dtype": "float32"}),
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "registers": ({"THREAD_GROUP_SIZE": 1}, {}),
        "shared memory": ({"HEADS_PER_BLOCK": 8, "NUM_THREADS": 512}, {"head_size": 256}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    assert_rules(CUDA, default_of(CUDA, SMALL), SMALL.problem(), broken)


def test_compare_and_restore():
    assert workbench.compare("contiguous_attention", device="sim").all_correct
    changed = case("llama-3-8b", context=77, num_seqs=3)
    assert ops.get("contiguous_attention").restore_case(changed.to_dict()) == changed
