"""Decode over a latent cache: the absorbed form, every variant against its bound, memory and refusals."""

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
from workbench.analysis.exact import compared
from workbench.attention import mla_decode
from workbench.attention.cache_formats import fp8_latents
from workbench.attention.ops.mla_decode import VARIANTS, MlaDecodeCase, case
from workbench.attention.ops.mla_decode.api import OP
from workbench.attention.ops.mla_decode.reference import absorb, absorbed, reference, unabsorbed
from workbench.errors import ArgumentError, WorkbenchError
from workbench.launch.sim import Simulator
from workbench.ops.exact_runs import side_of

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, HOPPER, TRITON = VARIANTS
KERNELS = (CUDA, HOPPER, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = case("small")


def decode(num_heads, seq_lens, latent_size=64, rope_size=32, **fields):
    return MlaDecodeCase("grid", num_heads, latent_size, rope_size, seq_lens, nope_size=32, **fields)


def arch_of(variant):
    return "sm_90" if variant is HOPPER else "sm_80"


def narrow(variant):
    """Return the smallest latents that a variant takes, for tests of heads, pages and lengths."""
    return 128 if variant is HOPPER else 64


def test_absorbed_and_unabsorbed_form_agree():
    """DeepSeek-V2's identity, in float64: matrices of keys on the query, of values on the result."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    query, latents = normal(6, 24 + 8), normal(17, 40 + 8)
    key_weight, value_weight = normal(6, 24, 40), normal(6, 20, 40)
    scale = (24 + 8) ** -0.5
    of_latents = absorbed(absorb(query[None], key_weight)[0], latents, latent_size=40, scale=scale)
    result = torch.einsum("hl,hvl->hv", of_latents, value_weight)
    made = unabsorbed(query, latents, key_weight, value_weight, scale=scale)
    torch.testing.assert_close(result, made)
    wrong = absorbed(absorb(query[None], key_weight)[0], latents, latent_size=40, scale=48**-0.5)
    assert (wrong - of_latents).abs().max() > 0.1, "the scale does not follow from the size of the absorbed query"


def test_the_reference_reads_pages():
    one = SMALL
    t = one.inputs(one.problem())
    t.latent_cache.nan_to_num_(0.0)
    found = reference(t.query, t.latent_cache, t.block_tables, t.seq_lens, scale=t.scale, latent_size=128)
    torch.testing.assert_close(found, one.reference())


def test_rows_of_eight_bits():
    """FlashMLA's row: 512 codes, four scales, 64 elements in bfloat16; values within half a step of e4m3."""
    assert fp8_latents.row_bytes(512, 64) == 656
    tokens = torch.randn(5, 576, generator=torch.Generator().manual_seed(1))
    tokens[1, :128] = 0.0
    rows = fp8_latents.pack(tokens, 512)
    assert (rows.shape, rows.dtype) == ((5, 656), torch.uint8)
    assert rows[1, 512:516].view(torch.float32) == 1.0
    values = fp8_latents.unpack(rows, 512)
    assert torch.equal(values[:, 512:], tokens[:, 512:].bfloat16().float())
    highest = tokens[:, :512].unflatten(1, (4, 128)).abs().amax(2).repeat_interleave(128, 1)
    allowed = (tokens[:, :512].abs() / 16).maximum(highest / 448 * 2**-10) * 1.001
    assert ((values[:, :512] - tokens[:, :512]).abs() <= allowed).all()
    with pytest.raises(ArgumentError, match="multiple of 128"):
        fp8_latents.row_bytes(500, 64)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_codes_of_nan_stay_nan(variant):
    one = case("fp8", seq_lens=(5,))
    config = default_of(variant, one)
    problem = variant.machine_problem(one, config)
    t = one.inputs(problem)
    t.latent_cache[t.block_tables[0, 0], 2, 7] = 0xFF
    variant.run(config, problem, t, Simulator(arch=problem.arch))
    assert t.out.isnan().all(), "the key has a NaN, and with it every weight"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("num_heads", [1, 2, 4, 7, 8, 16, 17, 64, 128])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_head_counts_and_page_edges(variant, num_heads, judge):
    for page in (16, 64):
        lengths = (1, page - 1, page, 0, page + 1)
        one = decode(num_heads, lengths, narrow(variant), seed=num_heads, sinks=page == 16)
        config = default_of(variant, one, BLOCK_SIZE=page, PARTITION_SIZE=64)
        verdict = judge(variant, config, one, checks=True, arch=arch_of(variant))
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [3, pytest.param(60, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        heads, latent = rng.choice((3, 16, 20, 40, 70)), rng.choice((narrow(variant), 128, 256))
        lengths = (1, 0, 31, 129)
        rope, fields = rng.choice((0, 32, 64)), {"sinks": rng.random() < 0.5, "seed": number % 4}
        return decode(heads, lengths, latent, rope, dtype=rng.choice(variant.dtypes), **fields)

    judge_drawn(variant, count, draw, judge, arch=arch_of(variant), checks=True)


def test_pages_past_2_to_the_31_elements():
    """Pages 2**30 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    for variant in KERNELS:
        one = decode(4, (100, 7), narrow(variant))
        config = default_of(variant, one)
        t = one.inputs(one.problem(config))
        pages = t.block_tables[t.block_tables >= 0]
        storage = torch.empty(2**30 * 3 + t.latent_cache[0].numel(), dtype=torch.bfloat16)
        far = storage.as_strided((4, *t.latent_cache.shape[1:]), (2**30, *t.latent_cache.stride()[1:]))
        for place, page in enumerate(pages.tolist()):
            far[place].copy_(t.latent_cache[page])
            t.block_tables[t.block_tables == page] = -2 - place
        t.block_tables = torch.where(t.block_tables < -1, -2 - t.block_tables, t.block_tables)
        t.latent_cache = far
        problem = variant.machine_problem(one, config)
        variant.run(config, problem, t, Simulator(arch=problem.arch))
        assert one.check(t.out).ok


def arguments(one=SMALL):
    t = one.inputs(one.problem())
    given = {name: getattr(t, name) for name in ("query", "latent_cache", "block_tables", "seq_lens")}
    return given | {"scale": one.scale, "latent_size": one.latent_size}


@pytest.mark.parametrize("variant", ["auto", "tuned", *(variant.name for variant in VARIANTS)])
def test_every_choice_computes_the_same(variant):
    given = arguments()
    assert SMALL.check(mla_decode(**given, variant=variant)).ok
    fused = torch.randn(6, 40, 160).bfloat16()  # rows of the query may be apart
    fused[:, :16] = given["query"]
    out = torch.full((6, 16, 128), torch.nan, dtype=torch.bfloat16)
    assert mla_decode(**given | {"query": fused[:, :16]}, variant=variant, out=out) is out
    assert SMALL.check(out).ok


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_no_sequences_and_no_tokens(variant):
    given = arguments()
    empty = given | {name: given[name][:0] for name in ("query", "block_tables", "seq_lens")}
    assert mla_decode(**empty, variant=variant.name).shape == (0, 16, 128)
    given["seq_lens"] = torch.zeros_like(given["seq_lens"])
    assert (mla_decode(**given, variant=variant.name) == 0).all()


WIDE = {"query": torch.zeros(6, 16, 576).bfloat16(), "latent_size": 512, "kv_cache_dtype": fp8_latents.NAME}
BAD = {
    "query dtype": ("query", lambda a: {"query": a["query"].double()}, "float16"),
    "query shape": ("query", lambda a: {"query": a["query"][0]}, r"num_heads, 128 \+ rope_size"),
    "latent size": ("query", lambda a: {"latent_size": 192}, "absorbed"),
    "query strides": ("query", lambda a: {"query": a["query"].transpose(0, 1)}, "contiguous"),
    "query address": (
        "query",
        lambda a: {"query": torch.zeros(6 * 16 * 160 + 1, dtype=torch.bfloat16)[1:].view(6, 16, 160)},
        "16 bytes",
    ),
    "cache dtype": ("latent_cache", lambda a: {"latent_cache": a["latent_cache"].half()}, "bfloat16"),
    "cache dimensions": ("latent_cache", lambda a: {"latent_cache": a["latent_cache"][:, None]}, "rotated part"),
    "cache row": ("latent_cache", lambda a: {"latent_cache": a["latent_cache"][..., :128].contiguous()}, "160"),
    "cache strides": ("latent_cache", lambda a: {"latent_cache": a["latent_cache"][:, ::2]}, "contiguous"),
    "device": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].to("meta")}, "Move it"),
    "lengths dtype": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].long()}, "int32"),
    "tables shape": ("block_tables", lambda a: {"block_tables": a["block_tables"][1:]}, "One row per sequence"),
    "length": ("seq_lens[3]", lambda a: {"seq_lens": with_entry(a["seq_lens"], 3, 193)}, "0 to 192"),
    "entry": ("block_tables[1, 0]", lambda a: {"block_tables": with_entry(a["block_tables"], (1, 0), 99)}, "pages of"),
    "format": ("kv_cache_dtype", lambda a: {"kv_cache_dtype": "fp8_e4m3"}, "fp8_ds_mla"),
    "bytes": ("latent_cache", lambda a: WIDE | {"latent_cache": WIDE["query"]}, "uint8"),
    "row of bytes": ("latent_cache", lambda a: WIDE | {"latent_cache": torch.zeros(3, 64, 576).byte()}, "656"),
    "query of bytes": ("query", lambda a: WIDE | {"query": WIDE["query"].half()}, "bfloat16"),
    "sinks": ("sinks", lambda a: {"sinks": torch.zeros(15)}, "one per head"),
    "scale": ("scale", lambda a: {"scale": math.inf}, "finite"),
    "out": ("out", lambda a: {"out": torch.empty(6, 16, 160, dtype=torch.bfloat16)}, r"torch.empty\(\(6, 16, 128\)"),
    "variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_latent_mma"),
    "config": (
        "config of mla_decode/cuda_latent_mma",
        lambda a: {"variant": CUDA.name, "config": default_of(CUDA, SMALL, TILE_TOKENS=24)},
        "tiles",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    given = arguments()
    out = torch.full((6, 16, 128), 7.0, dtype=torch.bfloat16)
    given = {"out": out if what not in ("bytes", "row of bytes", "query of bytes") else None} | given
    given.update(change(given))
    with pytest.raises(WorkbenchError) as error:
        mla_decode(**given)
    assert isinstance(error.value, ArgumentError)
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)
    assert (out == 7.0).all(), "something was written"


def test_opcheck():
    given = arguments()
    scale, latent_size = given.pop("scale"), given.pop("latent_size")
    out = torch.empty(6, 16, 128, dtype=torch.bfloat16)
    keywords = {"latent_size": latent_size, "variant": CUDA.name}
    torch.library.opcheck(OP.library_op(), (*given.values(), scale, out), keywords)


class TestMemory:
    LONG = case("deepseek-v3", seq_lens=(512,))

    @pytest.mark.parametrize(
        ("variant", "kind", "latent", "row_bytes", "heads"),
        [
            *((one, "auto", 512, 1152, 16) for one in (CUDA, TRITON)),
            *((one, fp8_latents.NAME, 512, 656, 16) for one in (CUDA, TRITON)),
            *((one, "auto", 256, 640, 128) for one in (CUDA, TRITON)),
            (HOPPER, "auto", 512, 1152, 128),
            (HOPPER, fp8_latents.NAME, 512, 656, 128),
        ],
        **NAME,
    )
    def test_each_latent_is_read_once_for_a_tile_of_heads(self, variant, kind, latent, row_bytes, heads):
        one = self.LONG.override(kv_cache_dtype=kind, latent_size=latent, num_heads=heads)
        problem = variant.machine_problem(one)
        config = variant.default_config(problem) | {"PARTITION_SIZE": 512}
        if variant is TRITON and heads == 16 and not problem.quantized:
            config["TILE_TOKENS"] = 64
        problem = variant.machine_problem(one, config)
        tensors = one.inputs(problem)
        report = variant.run(config, problem, tensors, Simulator(arch=problem.arch), statistics=True)
        assert one.check(tensors.out).ok
        least = one.minimum_bytes(problem)
        moved = report.unique_bytes_read + report.unique_bytes_written
        assert moved == pytest.approx(least, rel=0.001)
        read = least - tensors.out.nbytes
        # Triton loads codes, scales and the rest of a row one by one, and these share sectors of 32 bytes.
        most = 1.12 if variant is TRITON and one.features else 1.03
        assert 32 * report.global_load_sectors <= most * read
        assert read == 512 * row_bytes + tensors.query.nbytes + 4 * (8 + 1)

    @pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
    def test_static_side(self, arch):
        for variant, name in itertools.product(KERNELS, ("deepseek-v3", "all-heads", "fp8")):
            problem = case(name).problem(arch=arch)
            if variant.runs_on(problem) and not variant.unsupported(problem):
                kernel = variant.compile(variant.default_config(problem), problem, arch)
                assert kernel.spill_bytes == 0


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_are_legal(variant):
    for latent, rope, heads in itertools.product((narrow(variant), 256, 512), (32, 64), (1, 16, 40, 128)):
        changed = {"latent_size": latent, "rope_size": rope, "num_heads": heads, "arch": arch_of(variant)}
        problem = dataclasses.replace(SMALL.problem(), **changed)
        variant.check(variant.default_config(problem), problem)


def test_rules_are_named():
    every = {
        "page size": ({}, {"block_size": 32}),
        "whole tiles": ({"TILE_TOKENS": 48}, {}),
        "partitions": ({"PARTITION_SIZE": 64}, {"max_seq_len": 2**23}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    cuda = {
        "whole steps": ({}, {"rope_size": 16}),
        "tiles": ({"HEADS_PER_BLOCK": 8}, {}),
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "registers": ({"HEADS_PER_BLOCK": 64}, {"latent_size": 512}),
        "stages": ({"NUM_STAGES": 1}, {}),
        "shared memory": ({"TILE_TOKENS": 64, "NUM_STAGES": 4}, {"latent_size": 512}),
    }
    hopper = {
        "arch": ({}, {"arch": "sm_80"}),
        "whole steps": ({}, {"latent_size": 64}),
        "tiles": ({"TILE_TOKENS": 128}, {}),
        "boxes": ({"BLOCK_SIZE": 4}, {}),
        "cluster": ({"CLUSTER_BLOCKS": 2}, {}),
        "stages": ({"NUM_STAGES": 1}, {}),
        "shared memory": ({"NUM_STAGES": 3}, {"latent_size": 512, "rope_size": 64}),
    }
    triton = {
        "products": ({}, {"rope_size": 8}),
        "powers of two": ({"HEADS_PER_BLOCK": 48}, {}),
        "registers": ({"HEADS_PER_BLOCK": 64}, {"latent_size": 512}),
        "shared memory": ({"TILE_TOKENS": 64, "num_stages": 4}, {"latent_size": 512}),
    }
    assert_rules(CUDA, default_of(CUDA, SMALL), SMALL.problem(), every | cuda)
    on_hopper = SMALL.problem(arch="sm_90")
    assert_rules(HOPPER, HOPPER.default_config(on_hopper), on_hopper, every | hopper)
    assert_rules(TRITON, default_of(TRITON, SMALL), SMALL.problem(), every | triton)


@pytest.mark.parametrize("name", ["small", "all-heads"])
def test_the_variant_for_hopper_is_the_same_computation(name):
    one = case(name)
    first, other = (side_of(each, each.default_config(each.machine_problem(one)), one) for each in (CUDA, HOPPER))
    assert str(compared(first, other)).startswith("the same computation in ")


def test_compare_and_restore():
    assert workbench.compare("mla_decode", device="sim").all_correct
    changed = case("deepseek-v3", context=77, num_seqs=3)
    assert ops.get("mla_decode").restore_case(changed.to_dict()) == changed
