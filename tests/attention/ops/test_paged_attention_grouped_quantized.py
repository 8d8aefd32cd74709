"""Quantized caches: every code in every kernel; in those that pack a group every scale, bytes, machine code."""

import dataclasses
import itertools
import math
from collections import Counter

import pytest
import torch
from bytes_of_a_run import assert_each_byte_once
from mutants.ptx import Setting, judge_of_bits, outcomes, shortcomings
from sampling import long_if
from test_paged_attention_grouped import SMALL as CUDA_SMALL
from test_paged_attention_grouped_triton import SMALL as TRITON_SMALL

from workbench.attention.cache_formats.layouts import to_paged
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, EIGHT_BITS
from workbench.attention.ops.paged_attention import VARIANTS, PagedAttentionCase, case
from workbench.attention.ops.paged_attention.cuda_grouped_mma import VARIANT as CUDA
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT as TRITON
from workbench.attention.ops.paged_attention.triton_tiles import FP8_SUPPORT
from workbench.launch.sim import Simulator
from workbench.toolchain.sass_counts import alu_clocks, counts_by_ptx_line, loop_counts

SMALL = {CUDA: CUDA_SMALL, TRITON: TRITON_SMALL}
BOTH = pytest.mark.parametrize("variant", SMALL, ids=lambda variant: variant.name)
ALL = {"alibi": True, "sliding_window": 150, "soft_cap": 20.0, "sinks": True}


@BOTH
@pytest.mark.parametrize(
    ("kv_cache_dtype", "scales", "dtype", "layout", "features", "arch"),
    [
        pytest.param("fp8_e4m3", "head", "bfloat16", "nhd", ALL, "sm_80", marks=pytest.mark.long),
        ("fp8_e4m3", "head", "bfloat16", "nhd", ALL, "sm_90"),
        ("fp8_e5m2", "token", "float16", "hnd", ALL, "sm_80"),
    ],
)
@pytest.mark.sampled(2)
def test_scales_and_features(variant, kv_cache_dtype, scales, dtype, layout, features, arch, judge):
    """The grid has every cache dtype with every kind of scale; here the machine looks for races too."""
    lengths = (1, 127, 128, 129, 300, 0)
    one = case("small", kv_cache_dtype=kv_cache_dtype, scales=scales, dtype=dtype, layout=layout, seq_lens=lengths)
    verdict = judge(variant, SMALL[variant], dataclasses.replace(one, **features), checks=True, arch=arch)
    assert verdict.ok, verdict


def of_two_tokens(variant, kv_cache_dtype, keys, values, query, device, **options):
    """Return a variant's output for sequences of two tokens on a page each, ``[num_seqs, 1, head_size]``.

    keys, values ``[num_seqs, 2, head_size]`` codes as uint8, one KV head; query ``[num_seqs, head_size]``; no scale.
    """
    num_seqs, _, head_size = keys.shape
    dtype, layout = CACHE_DTYPES[kv_cache_dtype], variant.layouts[0]
    problem = PagedAttentionProblem(num_seqs, 1, 1, head_size, 2, 2 * num_seqs, "float16", layout, 16, kv_cache_dtype)
    problem = dataclasses.replace(problem, features=(kv_cache_dtype,), arch=device.arch)
    tables, lengths = torch.arange(num_seqs).int()[:, None], torch.full((num_seqs,), 2).int()
    pages = [codes.contiguous().view(dtype)[:, :, None].unbind() for codes in (keys, values)]
    caches = to_paged(*pages, tables, num_blocks=num_seqs, block_size=16, layout=layout)
    tensors = PagedAttentionTensors(query[:, None], *caches, tables, lengths, 1.0, torch.empty_like(query[:, None]))
    variant.run(SMALL.get(variant) or variant.default_config(problem), problem, tensors, device, **options)
    return tensors.out


def codes_as_values(variant, kv_cache_dtype, device, **options):
    """Return the mean of two equal values of every code, at an even and at an odd element, and the right answer."""
    codes = torch.arange(256).to(torch.uint8)
    codes = torch.cat([codes, codes.roll(1)]).view(8, 1, 64).expand(8, 2, 64)
    keys, query = torch.zeros_like(codes), torch.zeros(8, 64).half()
    out = of_two_tokens(variant, kv_cache_dtype, keys, codes, query, device, **options)
    return out.flatten(), codes[:, 0].contiguous().view(CACHE_DTYPES[kv_cache_dtype]).half().flatten()


def codes_as_keys(variant, kv_cache_dtype, device, **options):
    """Return the weight of a token whose key is one element of every code beside a token of score 0, and the right one.

    The element moves through the head, so that every code is once an even and once an odd one; the value of the one
    token is 1, that of the other 0.
    """
    codes, places = torch.arange(256).repeat(2), torch.arange(512) + torch.arange(2).repeat_interleave(256)
    keys, values = torch.zeros(2, 512, 2, 32, dtype=torch.uint8)
    keys[torch.arange(512), 1, places % 32] = codes.to(torch.uint8)
    values[:, 1] = torch.ones(1).to(CACHE_DTYPES[kv_cache_dtype]).view(torch.uint8)
    exact = codes.to(torch.uint8).view(CACHE_DTYPES[kv_cache_dtype]).double()
    size = 2.0 ** (2 - exact[exact.isfinite()].abs().max().log2().ceil())  # scores up to 4
    query = torch.full((512, 32), size).half()
    out = of_two_tokens(variant, kv_cache_dtype, keys, values, query, device, **options)
    weights = torch.softmax(torch.stack([torch.zeros_like(exact), exact * size]), 0)[1]
    return out[:, 0].double(), weights[:, None].expand(-1, 32)


def conversions():
    """Yield each way in which kernels convert codes; those that pack a group are tried in every run."""
    for variant, kv_cache_dtype, arch in itertools.product(VARIANTS, EIGHT_BITS, ("sm_80", "sm_90")):
        refused = FP8_SUPPORT in variant.restrictions and (kv_cache_dtype, arch) == ("fp8_e4m3", "sm_80")
        reads_codes = kv_cache_dtype in variant.features
        if variant.language != "torch" and reads_codes and not refused:
            often = variant in SMALL and (arch == "sm_80" or kv_cache_dtype == "fp8_e4m3")
            yield long_if(not often, variant, kv_cache_dtype, arch, id=f"{variant.name}-{kv_cache_dtype}-{arch}")


@pytest.mark.parametrize(("variant", "kv_cache_dtype", "arch"), list(conversions()))
@pytest.mark.sampled(8)
def test_every_code_is_what_torch_takes_it_for(variant, kv_cache_dtype, arch):
    """Subnormal numbers, infinities and NaN too; a NaN among the values keeps to its element of the head.

    The kernels that pack a group convert codes in ways of their own, the others let the compilers do it.
    """
    out, exact = codes_as_values(variant, kv_cache_dtype, Simulator(arch=arch))
    torch.testing.assert_close(out, exact, rtol=0, atol=0, equal_nan=True)
    out, exact = codes_as_keys(variant, kv_cache_dtype, Simulator(arch=arch))
    torch.testing.assert_close(out, exact, rtol=0, atol=5e-4, equal_nan=True)


def right_codes(compute, variant, kv_cache_dtype):
    """Return the judge that compares every code, as a key or as a value, with the answer."""

    def judged(device, **options):
        out, exact = compute(variant, kv_cache_dtype, device, **options)
        right = torch.isclose(out, exact.to(out.dtype), rtol=0, atol=5e-4, equal_nan=True)
        return right, torch.ones_like(right)

    return judge_of_bits(judged)


@BOTH
@pytest.mark.parametrize("compute", [codes_as_values, codes_as_keys])
@pytest.mark.parametrize("kv_cache_dtype", ["int8", "fp8_e4m3"])
@pytest.mark.sampled(8)
def test_mutants_are_caught_by_every_code(kv_cache_dtype, compute, variant):
    setting = Setting(str(variant), compute.__name__, (right_codes(compute, variant, kv_cache_dtype),))
    words = shortcomings(outcomes(setting, 0, count=2), overall=0.25)  # most code is of other tokens than the two
    assert not words, "\n".join(words)


@BOTH
@pytest.mark.sampled(2)
def test_scales_of_a_tensor_of_heads_and_of_tokens_are_one_kernel_or_two(variant, sim):
    """No scale, one of the tensor, the same for every head, and for every token, also of one of K and V alone."""
    one = case("small", seq_lens=(40, 129), kv_cache_dtype="int8", layout="nhd")
    problem = one.problem(SMALL[variant])
    results = []
    for scale in (None, torch.tensor(0.5), torch.full((1,), 0.5), torch.full((2,), 0.5)):
        tensors = dataclasses.replace(one.inputs(problem), k_scale=scale, v_scale=scale, scale=0.01)
        variant.run(SMALL[variant], problem, tensors, sim)
        results.append(tensors.out)
    assert torch.equal(results[1], results[2])
    assert torch.equal(results[1], results[3])
    assert not torch.equal(results[0], results[1])
    by_token = dataclasses.replace(problem, features=(*problem.features, "token_scales"))
    tokens = torch.full((len(tensors.key_cache), 16, 2), 0.5)
    for k_scale, v_scale in ((tokens, tokens), (tokens, torch.full((2,), 0.5)), (torch.tensor([0.5]), tokens)):
        tensors = dataclasses.replace(one.inputs(problem), k_scale=k_scale, v_scale=v_scale, scale=0.01)
        variant.run(SMALL[variant], by_token, tensors, sim)
        torch.testing.assert_close(tensors.out, results[1], rtol=2e-3, atol=1e-3)


@BOTH
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_scales_may_be_of_any_size(variant, size, sim):
    """A bf16 query beyond fp16, and scales per token that would be lost in a 16-bit weight."""
    one = case("small", seq_lens=(40, 129), kv_cache_dtype="fp8_e4m3", scales="token", dtype="bfloat16")
    one = dataclasses.replace(one, layout="nhd")
    problem = one.problem(SMALL[variant])
    tensors = one.inputs(problem)
    tensors.query *= 2.0**60
    tensors.k_scale *= 2.0**-60
    tensors.v_scale *= size
    variant.run(SMALL[variant], problem, tensors, sim)
    check = one.check(tensors.out.double() / size)
    assert check.ok, check


@BOTH
@pytest.mark.parametrize(("kv_cache_dtype", "scales"), [("fp8_e4m3", "head"), ("int8", "token")])
@pytest.mark.sampled(2)
def test_every_byte_is_asked_for_once(variant, kv_cache_dtype, scales, sim):
    """A long context: distinct bytes, the bytes that must cross DRAM, and bytes asked for, whatever the caches do."""
    one = PagedAttentionCase(
        "long", 8, 1, 128, (4096,), dtype="bfloat16", layout="nhd", kv_cache_dtype=kv_cache_dtype, scales=scales
    )
    tile, wide = {"TILE_TOKENS": 32, "PARTITION_SIZE": 4096}, {CUDA: {"NUM_THREADS": 128}, TRITON: {"num_warps": 4}}
    config = {**SMALL[variant], **tile, **wide[variant]}
    # Triton asks for the query again and again.
    assert_each_byte_once(variant, config, one, sim, asked=1.02 if variant is CUDA else 1.05)


@pytest.mark.parametrize(("head_size", "group"), [(128, 8), (80, 16)])
def test_no_bank_conflicts_in_cuda(head_size, group, sim):
    one = PagedAttentionCase(
        "banks", group, 1, head_size, (200,), dtype="float16", layout="nhd", kv_cache_dtype="fp8_e4m3"
    )
    config = {**CUDA_SMALL, "NUM_STAGES": 2}
    problem = one.problem(config)
    report = CUDA.run(config, problem, one.inputs(problem), sim, statistics=True)
    shared = [line for line in report.lines if line.space == "shared" and line.requests]
    assert sum("ldmatrix" in line.text for line in shared) >= math.ceil(head_size / 16)
    across_rows = ("ld.shared.f32", "st.shared.v4") if head_size % 32 else ("none",)
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared if not line.text.startswith(across_rows))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("kv_cache_dtype", "scales", "head_size", "group", "tile", "registers"),
    [
        ("fp8_e4m3", "token", 128, 8, 32, 255),
        ("int8", "head", 128, 8, 32, 168),
        ("fp8_e5m2", "token", 256, 16, 16, 255),
    ],
)
@pytest.mark.sampled(6)
def test_machine_code_of_cuda(arch, kv_cache_dtype, scales, head_size, group, tile, registers):
    """As without quantization, with half of the copies and matrix loads."""
    one = case("small", head_size=head_size, num_heads=2 * group, layout="nhd", dtype="bfloat16")
    one = dataclasses.replace(one, kv_cache_dtype=kv_cache_dtype, scales=scales)
    config = {**CUDA_SMALL, "TILE_TOKENS": tile, "NUM_STAGES": 2}
    kernel = CUDA.compile(config, one.problem(config, arch=arch), arch)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= registers
    counts = sum(counts_by_ptx_line(kernel).values(), Counter())
    assert counts["LDGSTS.128"] == 4 * tile * head_size // 512  # K and V of the first tile, and of the one ahead
    copies = {name: number for name, number in counts.items() if name.startswith("LDGSTS")}
    assert copies == {"LDGSTS.128": counts["LDGSTS.128"], **({"LDGSTS.32": 4} if scales == "token" else {})}
    products = tile // 16 * head_size // 16
    assert counts["HMMA"] == products * (2 + -(-group // 8))
    assert counts["LDSM.4"] == products + head_size // 16
    assert not any(name.startswith(("LDL", "STL")) for name in counts)


@BOTH
@pytest.mark.parametrize(
    ("arch", "kv_cache_dtype"),
    [long_if(True, "sm_80", "fp8_e4m3"), long_if(True, "sm_80", "int8"), ("sm_90", "int8"), ("sm_90", "fp8_e4m3")],
)
@pytest.mark.sampled(4)
def test_defaults_do_not_spill(variant, arch, kv_cache_dtype):
    """Nor copy less than 16 bytes of K or V, convert one element at a time, or take values transposed byte by byte."""
    one = case("llama-3-70b", layout="hnd", context=8192, kv_cache_dtype=kv_cache_dtype, dtype="bfloat16")
    problem = one.problem(arch=arch)
    kernel = variant.compile(variant.default_config(problem), problem, arch)
    assert kernel.spill_bytes == 0
    assert kernel.occupancy.blocks_per_sm >= (2 if arch == "sm_90" else 1)
    counts = sum(counts_by_ptx_line(kernel).values(), Counter())
    names = " ".join(counts)
    assert "HMMA.16816.F32" in kernel.sass
    assert "LDSM" in names
    assert not any(name.startswith(("LDS.U8", "LDS.S8", "LDG.U8")) for name in counts)
    assert counts["LDG.64"] <= 16  # those of combined partitions, a maximum and a sum of weights each
    widths = {name for name in counts if name.startswith("LDGSTS")}
    assert widths <= {"LDGSTS.128", "LDGSTS.32"}
    assert "LDGSTS.128" in widths


@BOTH
@pytest.mark.parametrize(("kv_cache_dtype", "clocks"), [("fp8_e4m3", 900), ("int8", 800)])
@pytest.mark.sampled(2)
def test_codes_cost_few_clocks_of_the_units_for_integers(variant, kv_cache_dtype, clocks):
    """In the loop over tiles, for each 8 KiB of K and V that a warp reads; an instruction of sm_90 converts e4m3."""
    one = case("llama-3-70b", layout="hnd", context=8192, kv_cache_dtype=kv_cache_dtype, dtype="bfloat16")
    problem = one.problem(arch="sm_90")
    config = variant.default_config(problem)
    counts = loop_counts(variant.compile(config, problem, "sm_90"), "HMMA")
    codes = 2 * config["TILE_TOKENS"] * problem.head_size // config.get("num_warps", 1)  # a tile is a warp's in CUDA
    assert alu_clocks(counts) * 8192 / codes < clocks
    assert (counts["F2FP"] >= codes / 32 / 2) == (kv_cache_dtype == "fp8_e4m3")


@BOTH
def test_other_dtypes_are_refused_by_name(variant):
    """Tensor cores have no fp32, whatever the cache."""
    for kv_cache_dtype in ("auto", "int8"):
        problem = case("small", dtype="float32", layout="nhd", kv_cache_dtype=kv_cache_dtype).problem()
        assert [rule.name for rule in variant.unsupported(problem)] == ["dtype"]
