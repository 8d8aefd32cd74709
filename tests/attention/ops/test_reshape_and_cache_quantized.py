"""Writing tokens into one-byte caches: every rounding bit for bit, every granularity of scales, full sectors."""

import functools
import itertools

import pytest
import torch
from mutants.ptx import Setting, judge_of_bits, outcomes, shortcomings

from workbench.attention import reshape_and_cache
from workbench.attention.cache_formats.layouts import LAYOUTS, PagedGeometry, canonical_keys, canonical_values
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, EIGHT_BITS
from workbench.attention.ops.reshape_and_cache import (
    VARIANTS,
    ReshapeAndCacheCase,
    ReshapeAndCacheProblem,
    ReshapeAndCacheTensors,
)
from workbench.attention.ops.reshape_and_cache.cases import SCALES
from workbench.launch.sim import Simulator

TORCH, CUDA, TRITON = (one for one in VARIANTS if not one.needs)
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


def rounded(variant, numbers, kind, device, **options):
    """What a kernel stores for numbers and their negatives, and what it should: two tensors of bytes."""
    key = torch.nn.functional.pad(numbers, (0, -len(numbers) % 1024)).view(-1, 4, 256)
    slots = torch.randperm(len(key), generator=torch.Generator().manual_seed(0))
    caches = [torch.zeros(-(-len(key) // 16), 16, 4, 256, dtype=CACHE_DTYPES[kind]) for _ in range(2)]
    problem = ReshapeAndCacheProblem(
        len(key), 4, 256, "float32", "nhd", kv_cache_dtype=kind, features=(kind,), arch=device.arch
    )
    tensors = ReshapeAndCacheTensors(key, -key, *caches, slots)
    variant.run(variant.default_config(problem), problem, tensors, device, **options)
    found = [cache.view(torch.uint8).view(-1, 4, 256)[slots] for cache in caches]
    return torch.stack(found), torch.stack([codes_of(key, kind), codes_of(-key, kind)])


def every_number(dtype):
    """All 65,536 bit patterns of a two-byte type, as float32."""
    return torch.arange(65536).to(torch.int16).view(dtype).float()


def around_every_code(kind):
    """Every code, the midpoint to its neighbour and the float32 numbers beside that; overflow, tiny numbers."""
    codes = torch.arange(256, dtype=torch.uint8).view(CACHE_DTYPES[kind]).float()
    codes = codes[codes.isfinite()].unique()
    middle = (codes[1:] + codes[:-1]) / 2
    infinity = torch.tensor(torch.inf)
    above, below = torch.nextafter(middle, infinity), torch.nextafter(middle, -infinity)
    others = torch.tensor([-0.0, 1e-45, 1e-38, 464.0, 61440.0, torch.finfo(torch.float32).max, torch.inf, torch.nan])
    return torch.cat([codes, middle, above, below, others])


def codes_of(numbers, kind):
    """The bytes that torch's own conversion gives, with our rule for what it has none or another for."""
    if kind == "int8":
        return numbers.nan_to_num(0.0).round().clamp(-127, 127).to(torch.int8).view(torch.uint8)
    largest = torch.finfo(CACHE_DTYPES[kind]).max
    codes = numbers.clamp(-largest, largest).to(CACHE_DTYPES[kind]).view(torch.uint8)
    return torch.where(numbers.isnan(), 0x7F, codes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["int8", "fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("how", ["default", "number", "tensor", "head", "token"])
def test_round_trip(kind, how, layout):
    dtype = CACHE_DTYPES[kind]
    key, value = torch.randn(2, 9, 2, 32, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    slots = torch.tensor([5, 3, -1, 0, 1, 2, 15, 8, 4])
    geometry = PagedGeometry(layout, 4, 4, 2, 32)
    caches = [
        torch.zeros(shape, dtype=torch.uint8).view(dtype)
        for shape in (geometry.key_shape(dtype), geometry.value_shape())
    ]
    scales = {
        "default": None,
        "number": 0.05,
        "tensor": torch.tensor([0.05]),
        "head": torch.tensor([0.05, 0.03]),
        "token": 0.03 + 0.02 * torch.rand(4, 4, 2),
    }[how]
    reshape_and_cache(key, value, *caches, slots, kv_cache_dtype=kind, k_scale=scales, v_scale=scales, layout=layout)
    kept = slots >= 0
    per_slot = torch.ones(16, 2, 1)
    if scales is not None:
        per_slot = per_slot * (scales.view(16, 2, 1) if how == "token" else torch.as_tensor(scales).view(-1, 1))
    for cache, canonical, tokens in zip(caches, (canonical_keys, canonical_values), (key, value), strict=True):
        found = canonical(cache.view(torch.uint8), layout).reshape(16, 2, 32).view(dtype).float()
        expected = tokens[kept] / per_slot[slots[kept]]
        step = {"int8": 0.5 + 1e-3, "fp8_e4m3": 0.0, "fp8_e5m2": 0.0}[kind]
        relative = {"int8": 0.0, "fp8_e4m3": 2**-4, "fp8_e5m2": 2**-3}[kind]
        error = (found[slots[kept]] - expected).abs()
        assert (error <= step + relative * expected.abs() + 2**-10).all()
        unwritten = torch.ones(16, dtype=torch.bool)
        unwritten[slots[kept]] = False
        assert (found[unwritten] == 0).all()


def test_saturation():
    key = torch.tensor([1e6, -1e6, 1.0, 0.0]).view(1, 1, 4)
    for kind, dtype in (("int8", torch.int8), ("fp8_e4m3", torch.float8_e4m3fn)):
        caches = [torch.zeros(1, 16, 1, 4, dtype=torch.uint8).view(dtype) for _ in range(2)]
        reshape_and_cache(
            key, key, *caches, torch.tensor([2]), kv_cache_dtype=kind, layout="nhd", k_scale=0.5, v_scale=1.0
        )
        limit = 127.0 if kind == "int8" else 448.0
        assert caches[0].float()[0, 2, 0].tolist() == [limit, -limit, 2.0, 0.0]
        assert caches[1].float()[0, 2, 0].tolist() == [limit, -limit, 1.0, 0.0]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_every_granularity(variant, scales, judge):
    """Bit for bit what the definition says; one kernel serves all granularities, told by strides."""
    for layout, dtype, kind in zip(LAYOUTS, ("float16", "bfloat16", "float32"), EIGHT_BITS, strict=True):
        one = ReshapeAndCacheCase(
            "grid", 3, 48, (1, 15, 16, 17, 35), 2, dtype, layout, kv_cache_dtype=kind, scales=scales
        )
        verdict = judge(variant, variant.default_config(one.problem()), one, checks=True)
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("variant", "arch"), [(CUDA, "sm_80"), (CUDA, "sm_90"), (TRITON, "sm_80")], **NAME)
@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_every_rounding(variant, arch, kind):
    """All float16 and bfloat16 numbers, and around every code: the same bits as torch, saturated, NaN as 0x7F."""
    numbers = torch.cat([every_number(torch.float16), every_number(torch.bfloat16), around_every_code(kind)])
    found, expected = rounded(variant, numbers, kind, Simulator(arch=arch))
    assert torch.equal(found, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("kind", ["fp8_e5m2", "int8"])
def test_wrong_rounding_is_caught(kind, variant):
    judge = judge_of_bits(functools.partial(rounded, variant, around_every_code(kind), kind))
    words = shortcomings(outcomes(Setting(str(variant), kind, (judge,)), 0, count=3))
    assert not words, "\n".join(words)


@pytest.mark.long
def test_sectors(sim):
    """Half the bytes of float16: full sectors, a page of values in rows of 16 bytes, as many requests as of K."""
    for layout, variant in itertools.product(LAYOUTS, KERNELS):
        one = ReshapeAndCacheCase("pages", 4, 128, (256,), layout=layout, kv_cache_dtype="fp8_e5m2", scales="token")
        config = variant.default_config(one.problem())
        report = variant.run(config, one.problem(), one.inputs(one.problem()), sim, statistics=True)
        assert report.global_store_sectors == 2 * 256 * 4 * 128 // 32
        # Where Triton stores 16 codes per lane it loads 32 bytes in two halves, and asks for each sector twice.
        again = 2 if variant is TRITON else 1
        assert 32 * report.global_load_sectors <= 1.1 * again * (256 * 4 * 2 * (2 * 128 + 4))
        if variant is CUDA and layout == "x":
            stores = [line for line in report.lines if line.space == "global" and line.is_store and line.requests]
            assert {line.sectors / line.requests for line in stores} == {16}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_static_side(arch):
    one = ReshapeAndCacheCase("pages", 8, 128, (256,), kv_cache_dtype="fp8_e4m3")
    kernel = CUDA.compile(CUDA.default_config(one.problem()), one.problem(arch=arch), arch)
    assert kernel.spill_bytes == 0
    assert ("cvt.rn.satfinite.e4m3x2.f32" in kernel.ptx) == (arch == "sm_90")
