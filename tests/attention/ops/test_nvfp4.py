"""Kernels on caches of NVFP4: writes bit for bit, attention in both layouts on every architecture, refusals."""

import dataclasses
import importlib
import itertools

import pytest
import torch
from sampling import long_if

from workbench.attention import gather_cache, paged_attention, reshape_and_cache
from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.quantization import quantize
from workbench.attention.ops.paged_attention.api import OP
from workbench.errors import ArgumentError, ConfigurationError
from workbench.launch.sim import Simulator

# The modules, whose names in their package are the functions.
paged = importlib.import_module("workbench.attention.ops.paged_attention")
reads = importlib.import_module("workbench.attention.ops.gather_cache")
writes = importlib.import_module("workbench.attention.ops.reshape_and_cache")
WRITERS = [one for one in writes.VARIANTS if one.needs]
READERS = [one for one in paged.VARIANTS if one.needs]
ARCHS = ("sm_80", "sm_89", "sm_100", "sm_120")
ALL = {"alibi": True, "sliding_window": 150, "soft_cap": 20.0, "sinks": True}


def by_name(variants, often):
    """Each variant on each architecture; every run takes those in ``often``."""
    return [
        long_if((one.language, arch) not in often, one, arch, id=f"{one.name} {arch}")
        for one, arch in itertools.product(variants, ARCHS)
    ]


def groups():
    """Groups of 16: every float16, numbers around every midpoint and code at many scales, NaN, infinity, zeros."""
    halves = torch.arange(65536).to(torch.int16).view(torch.float16).float()
    halves = halves[torch.randperm(len(halves), generator=torch.Generator().manual_seed(0))].view(-1, 16)
    values = torch.tensor([*nvfp4.VALUES, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    above, below = (torch.nextafter(values, torch.tensor(end)) for end in (torch.inf, -torch.inf))
    near = torch.stack([values, above, -below])
    near[:, -1] = 6.0  # so that the scale is what they are multiplied by
    scales = torch.cat([torch.arange(1, 127).to(torch.uint8).view(torch.float8_e4m3fn).float(), torch.rand(8)])
    strange = torch.zeros(6, 16)
    strange[0, 3], strange[1, 5], strange[2, 7], strange[3, 1], strange[4] = torch.nan, torch.inf, 1e30, 1e-30, -0.0
    strange[5, ::2] = -torch.nan
    return torch.cat([halves, (near[:, None] * scales[:, None]).flatten(0, 1), strange])


@pytest.mark.parametrize(("variant", "arch"), by_name(WRITERS, {("cuda", "sm_80"), ("triton", "sm_100")}))
def test_every_rounding(variant, arch):
    """The bits of the definition, with instructions for e2m1 and without."""
    numbers = groups()
    key = torch.nn.functional.pad(numbers.flatten(), (0, -numbers.numel() % 1024)).view(-1, 4, 256)
    slots = torch.randperm(len(key), generator=torch.Generator().manual_seed(0))
    caches = [torch.zeros(-(-len(key) // 16), 16, 4, nvfp4.row_bytes(256), dtype=torch.uint8) for _ in range(2)]
    problem = writes.ReshapeAndCacheProblem(
        len(key), 4, 256, "float32", "nhd", kv_cache_dtype="nvfp4", features=("nvfp4",), arch=arch
    )
    tensors = writes.ReshapeAndCacheTensors(key, -key, *caches, slots)
    config = variant.default_config(problem)
    variant.run(config, problem, tensors, Simulator(arch=arch))
    for cache, tokens in zip(caches, (key, -key), strict=True):
        rows = nvfp4.to_rows(cache, "nhd").flatten(0, 1)[slots]
        assert torch.equal(rows, quantize(tokens, 1.0, "nvfp4"))
    instruction = "cvt.rn.satfinite.e2m1x2.f32" in variant.kernels(config, problem, arch, machine_code=False)[0].ptx
    assert instruction == (arch in ("sm_100", "sm_120"))


@pytest.mark.parametrize("variant", [one for one in writes.VARIANTS if "nvfp4" in (*one.needs, *one.features)])
def test_writes(variant, judge):
    """Layouts, dtypes, sizes and scales, bit for bit; with checks of races and bounds."""
    for dtype, layout, scales, size, heads, page in (
        ("float32", "nhd", "none", 16, 16, 8),
        ("bfloat16", "hnd", "head", 80, 3, 16),
    ):
        one = writes.ReshapeAndCacheCase(
            "grid", heads, size, (1, page - 1, page, 2 * page + 3), 2, dtype, layout, page, 1, "nvfp4", scales
        )
        verdict = judge(variant, variant.default_config(one.problem()), one, checks=variant.compiles)
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.parametrize(
    ("variant", "arch"),
    by_name([one for one in reads.VARIANTS if one.needs], {("cuda", "sm_80"), ("triton", "sm_100")}),
)
def test_reads(variant, arch, judge):
    """Layouts, dtypes, sizes and scales, bit for bit; with checks of races and bounds."""
    for dtype, layout, scales, size, heads, page in (
        ("float32", "nhd", "none", 16, 16, 8),
        ("bfloat16", "hnd", "head", 80, 3, 16),
    ):
        lengths = (1, page - 1, 0, page, 2 * page + 3)
        one = reads.GatherCacheCase("grid", heads, size, lengths, dtype, layout, page, "nvfp4", scales, seed=1)
        verdict = judge(variant, variant.default_config(one.problem()), one, checks=True, arch=arch)
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.parametrize("variant", WRITERS)
def test_rows_on_two_bytes(variant):
    """Keys inside a fused projection: narrower loads, not wrong ones."""
    one = writes.case("nvfp4")
    t = one.inputs(one.problem())
    fused = torch.zeros(one.num_tokens, 4 * 80 + 1, dtype=t.key.dtype)
    key = fused[:, 1:].unflatten(1, (4, 80))
    key.copy_(t.key)
    options = {"layout": "nhd", "kv_cache_dtype": "nvfp4", "k_scale": t.k_scale, "v_scale": t.v_scale}
    reshape_and_cache(key, t.value, t.key_cache, t.value_cache, t.slot_mapping, variant=variant.name, **options)
    assert one.check(t.out).ok


@pytest.mark.parametrize(("variant", "arch"), by_name(READERS, {("cuda", "sm_100"), ("triton", "sm_80")}))
def test_attention(variant, arch):
    """Both layouts, heads that leave lanes idle, features, several partitions; an unused slot holds NaN."""
    lengths = (1, 129, 0, 300)
    for fields in (
        {"layout": "nhd", "dtype": "float32", "head_size": 80, **ALL},
        {"layout": "hnd", "scales": "tensor", "head_size": 16, "num_heads": 4, "num_kv_heads": 4},
    ):
        one = paged.case("small", seq_lens=lengths, kv_cache_dtype="nvfp4", **fields)
        config = variant.default_config(one.problem(arch=arch)) | {"PARTITION_SIZE": 128}
        problem = one.problem(config, arch=arch)
        tensors = one.inputs(problem)
        report = variant.run(config, problem, tensors, Simulator(arch=arch), checks=True)
        check = one.check(tensors.out)
        assert check.ok, check
        assert not report.findings
    instruction = "cvt.rn.f16x2.e2m1x2" in variant.kernels(config, problem, arch, machine_code=False)[0].ptx
    assert instruction == (arch in ("sm_100", "sm_120"))


@pytest.mark.parametrize("variant", READERS)
def test_it_reads_little_more_than_the_least(variant, sim):
    """9/16 of a byte per element, in full sectors."""
    sizes = {"seq_lens": (256,), "num_heads": 1, "num_kv_heads": 1, "head_size": 128}
    one = paged.case("small", kv_cache_dtype="nvfp4", layout="nhd", **sizes)
    config = variant.default_config(one.problem()) | {"PARTITION_SIZE": 256}
    problem = one.problem(config)
    report = variant.run(config, problem, one.inputs(problem), sim, statistics=True)
    least = one.minimum_bytes(problem)
    assert least == 2 * 256 * 72 + 2 * 2 * 128 + 4 * (16 + 1)
    assert 32 * report.global_load_sectors <= 1.1 * least


def caches(layout="nhd", **changes):
    one = paged.case("small", seq_lens=(17, 3), kv_cache_dtype="nvfp4", layout=layout)
    t = one.inputs(one.problem())
    given = {name: getattr(t, name) for name in ("query", "key_cache", "value_cache", "block_tables", "seq_lens")}
    return given | {"layout": layout, "kv_cache_dtype": "nvfp4", "k_scale": t.k_scale, "v_scale": t.v_scale} | changes


@pytest.mark.parametrize("variant", [long_if(True, "torch"), "cuda_scaled_groups"])
def test_opcheck(variant):
    given = caches()
    for name in ("key_cache", "value_cache"):  # the utility compares by arithmetic: no NaN in unused slots
        nvfp4.split(given[name], "nhd")[1].view(torch.uint8).clamp_(max=0x7E)
    given["query"] = given["query"].contiguous()
    scale, out = 0.125, torch.zeros_like(given["query"])
    tensors = [given.pop(name) for name in ("query", "key_cache", "value_cache", "block_tables", "seq_lens")]
    torch.library.opcheck(OP.library_op(), (*tensors, scale, out), given | {"variant": variant})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "x"}, r"key_cache: .*5-D"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "key_cache: .*float8_e4m3fn"),
        ({"k_scale": torch.ones(6, 16, 2)}, "k_scale: .*nvfp4, which has a scale for every 16 elements"),
        ({"v_scale": -1.0}, "v_scale: .*above 0"),
        ({"variant": "cuda_partitioned"}, r"variant: .*lacks.*nvfp4.*cuda_scaled_groups, triton_scaled_groups"),
        ({"variant": "triton_partitioned"}, "variant: .*lacks features: nvfp4 is one of"),
    ],
)
def test_refusals(changes, message):
    given = caches()
    if "k_scale" in changes and torch.is_tensor(changes["k_scale"]):
        changes = {"k_scale": torch.ones(len(given["key_cache"]), 16, 2)}
    with pytest.raises(ArgumentError, match=message):
        paged_attention(**(given | changes))


def test_other_refusals():
    given = caches()
    narrow = {name: given[name][..., :35].contiguous() for name in ("key_cache", "value_cache")}
    with pytest.raises(ArgumentError, match=r"key_cache: got 35 bytes.*head_size / 2 \+ head_size / 16"):
        paged_attention(**(given | narrow))
    five = torch.zeros(4, 2, 4, 16, 16, dtype=torch.uint8)
    with pytest.raises(ArgumentError, match=r"layout: got 'x' for nvfp4.*nhd.*fp8_e4m3"):
        paged_attention(**(given | {"key_cache": five, "value_cache": five[:, :, :, 0], "layout": None}))
    one = paged.case("small")
    t = one.inputs(one.problem())
    plain = t.query, t.key_cache, t.value_cache, t.block_tables, t.seq_lens
    with pytest.raises(ArgumentError, match=r"it needs nvfp4.*allowed: torch, cuda_thread_group"):
        paged_attention(*plain, variant="cuda_scaled_groups")
    odd = dataclasses.replace(paged.case("small", kv_cache_dtype="nvfp4", layout="nhd").problem(), head_size=72)
    for variant in READERS:
        with pytest.raises(ConfigurationError, match="whole groups"):
            variant.check(variant.default_config(odd), odd)
    for fields, message in (({"scales": "token"}, "scales: .*nvfp4"), ({"head_size": 24}, "head_size: .*16 for nvfp4")):
        with pytest.raises(ArgumentError, match=message):
            paged.case("small", kv_cache_dtype="nvfp4", layout="nhd", **fields)


@pytest.mark.parametrize("layout", nvfp4.LAYOUTS)
def test_what_is_written_is_read(layout):
    """Numbers that NVFP4 holds come back as they were, through a write, two reads and FlashInfer's views."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 8, (2, 19, 2, 32), generator=generator)
    signs = 1 - 2 * torch.randint(0, 2, codes.shape, generator=generator)
    codes[..., ::16] = 7  # a 6 in every group, which determines its scale
    scales = torch.randint(40, 120, (2, 19, 2, 2), generator=generator).to(torch.uint8).view(torch.float8_e4m3fn)
    values = torch.tensor(nvfp4.VALUES)[codes] * signs * scales.float().repeat_interleave(16, -1)
    key, value = values * 0.25
    shape = (4, 8, 2, 18) if layout == "nhd" else (4, 2, 8, 18)
    cache = [torch.zeros(shape, dtype=torch.uint8) for _ in range(2)]
    slots = torch.randperm(32, generator=generator)[:19]
    options = {"layout": layout, "kv_cache_dtype": "nvfp4", "k_scale": 0.25, "v_scale": 0.25}
    reshape_and_cache(key, value, *cache, slots, **options)
    for tokens, one, scale in zip((key, value), cache, scales, strict=True):
        rows = nvfp4.load_rows(one, layout, slots // 8, slots % 8)
        assert torch.equal(nvfp4.dequantize_rows(rows) * 0.25, tokens)
        elements, factors = nvfp4.split(one, layout)
        assert elements.data_ptr() == one.data_ptr()
        assert factors.data_ptr() == one.data_ptr() + 8 * 2 * 2 * 8  # the groups of a page, 8 bytes each
        if layout == "hnd":
            factors = factors.transpose(1, 2)
        found = factors.view(torch.uint8)[slots // 8, slots % 8]
        assert torch.equal(found, scale.view(torch.uint8))
        assert torch.equal(nvfp4.from_rows(nvfp4.to_rows(one, layout), layout), one)
    whole = torch.arange(4, dtype=torch.int32)[None]
    read = gather_cache(*cache, whole, torch.tensor([32], dtype=torch.int32), **options)
    assert torch.equal(read[0][slots], key)
    assert torch.equal(read[1][slots], value)
