"""Reading tokens out of pages: every variant bit for bit, and what it asks of memory."""

import dataclasses
import itertools

import pytest
import torch
from declarations import default_of, judge_drawn

import workbench
from workbench import ops
from workbench.attention import gather_cache, reshape_and_cache
from workbench.attention.cache_formats.layouts import LAYOUTS, from_paged
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, EIGHT_BITS
from workbench.attention.ops.gather_cache import VARIANTS, GatherCacheCase, case
from workbench.attention.ops.gather_cache.api import OP
from workbench.attention.ops.gather_cache.cases import SCALES

VARIANTS = tuple(one for one in VARIANTS if not one.needs)  # those of nvfp4: test_nvfp4.py
TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_sizes_layouts_dtypes_and_scales(variant, judge):
    sizes = itertools.cycle(itertools.product((64, 80, 112, 256), (1, 3), (8, 16, 32)))
    kinds = itertools.cycle(("auto", *EIGHT_BITS))
    scales = itertools.cycle(SCALES)
    for layout, dtype in itertools.product(LAYOUTS, ("float32", "float16", "bfloat16")):
        (size, heads, page), kind = next(sizes), next(kinds)
        lengths = (1, page - 1, page, page + 1, 2 * page + 3, 0)
        one = GatherCacheCase("grid", heads, size, lengths, dtype, layout, page, kind, next(scales), seed=size)
        verdict = judge(variant, default_of(variant, one), one, checks=variant.language != "torch")
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        layout, kind = rng.choice(LAYOUTS), rng.choice(("auto", *EIGHT_BITS))
        size = rng.choice((32, 64, 96, 128)) if layout == "x" else rng.choice((5, 20, 36, 64, 80))
        dtype = rng.choice(variant.dtypes)
        return GatherCacheCase("sample", 2, size, (1, 19, 8, 0, 33), dtype, layout, kv_cache_dtype=kind)

    judge_drawn(variant, count, draw, judge)


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_every_code(variant, kind):
    """All 256 codes, as torch converts them; times a scale that leaves no fp32 product exact."""
    codes = torch.arange(256, dtype=torch.uint8)
    caches = [order.view(1, 1, 1, 256).view(CACHE_DTYPES[kind]) for order in (codes.clone(), codes.flip(0))]
    table = torch.zeros(1, 1, dtype=torch.int32)
    one = torch.ones(1, dtype=torch.int32)
    for scale in (None, 0.1):
        options = {"kv_cache_dtype": kind, "k_scale": scale, "v_scale": scale, "layout": "nhd", "variant": variant.name}
        found = gather_cache(*caches, table, one, **options)
        for got, cache in zip(found, caches, strict=True):
            expected = cache.view(1, 1, 256).float() * (1.0 if scale is None else torch.tensor(scale))
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(got.signbit() & (got == 0), expected.signbit() & (expected == 0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_answer_itself(layout):
    """What `reshape_and_cache` wrote, and the paged layouts' own way back."""
    one = GatherCacheCase("formula", 2, 16, (3, 5, 0, 9), "float32", layout, 4)
    t = one.inputs(one.problem())
    keys, values = gather_cache(t.key_cache, t.value_cache, t.block_tables, t.seq_lens, layout=layout)
    expected = from_paged(t.key_cache, t.value_cache, t.block_tables, one.seq_lens, layout=layout)
    assert torch.equal(keys, torch.cat(expected[0]))
    assert torch.equal(values, torch.cat(expected[1]))
    slots = torch.cat([table[: -(-n // 4)].repeat_interleave(4)[:n] * 4 + torch.arange(n) % 4
                       for table, n in zip(t.block_tables.long(), one.seq_lens, strict=True)])  # fmt: skip
    t.key_cache.zero_(), t.value_cache.zero_()
    reshape_and_cache(values, keys, t.key_cache, t.value_cache, slots, layout=layout)
    found = gather_cache(t.key_cache, t.value_cache, t.block_tables, t.seq_lens, layout=layout)
    assert torch.equal(found[0], values)
    assert torch.equal(found[1], keys)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_pages_past_2_to_the_31_elements(variant):
    apart = 2**30
    storage = torch.empty(apart * 2 + 4 * 16, dtype=torch.float16)
    cache = storage.as_strided((3, 4, 1, 16), (apart, 16, 16, 1))
    cache[0], cache[2] = torch.randn(2, 4, 1, 16).half()
    table, length = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([7], dtype=torch.int32)
    keys, _ = gather_cache(cache, cache, table, length, layout="nhd", variant=variant.name)
    assert torch.equal(keys, torch.cat([cache[2], cache[0, :3]]))


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_keys_and_values_of_a_page_side_by_side(variant):
    """[num_blocks, 2, ...], as vLLM allocates them; and a table whose rows are apart."""
    one = case("nhd")
    t = one.inputs(one.problem())
    both = torch.stack([t.key_cache, t.value_cache], 1)
    wide = torch.full((3, 8), -1, dtype=torch.int32)
    wide[:, :3] = t.block_tables
    found = gather_cache(both[:, 0], both[:, 1], wide[:, :3], t.seq_lens, layout="nhd", variant=variant.name)
    assert one.check(torch.stack([side.flatten().view(torch.uint8) for side in found])).ok


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_nothing_to_read(variant):
    one = case("small")
    t = one.inputs(one.problem())
    for table, lengths in ((t.block_tables, t.seq_lens * 0), (t.block_tables[:0], t.seq_lens[:0])):
        keys, values = gather_cache(t.key_cache, t.value_cache, table, lengths, variant=variant.name)
        assert keys.shape == values.shape == (0, 2, 64)


class TestMemory:
    @pytest.mark.parametrize("kind", ["auto", "int8"])
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("variant", KERNELS, **NAME)
    def test_full_sectors(self, variant, layout, kind, sim):
        """Whole pages: every byte once, stores of 16 bytes per lane."""
        one = GatherCacheCase("pages", 4, 128, (256,), layout=layout, kv_cache_dtype=kind)
        report = variant.run(default_of(variant, one), one.problem(), one.inputs(one.problem()), sim, statistics=True)
        written = 2 * 256 * 4 * 128 * 2
        assert report.unique_bytes_read + report.unique_bytes_written <= 1.03 * one.minimum_bytes(one.problem())
        if variant is CUDA:
            assert report.global_store_sectors == written // 32
            cached = written // 2 if kind == "int8" else written
            assert 32 * report.global_load_sectors <= 1.1 * cached
            stores = [line for line in report.lines if line.space == "global" and line.is_store and line.requests]
            assert {line.sectors / line.requests for line in stores} == {16}
        else:  # where it loads 16 codes per lane, it stores their 32 bytes in two halves
            assert 32 * report.global_store_sectors <= (2 if kind == "int8" else 1) * written


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_are_legal(variant):
    for dtype, kind, size, layout, page in itertools.product(
        ("float32", "float16"), ("auto", "int8"), (32, 80, 256, 1024, 5), LAYOUTS, (1, 8, 12, 16, 128)
    ):
        problem = dataclasses.replace(
            case("small").problem(), dtype=dtype, kv_cache_dtype=kind, head_size=size, layout=layout, block_size=page
        )
        rules = {rule.name for rule in variant.broken(variant.default_config(problem), problem)}
        assert rules <= ({"whole x groups"} if size == 5 else set())


def test_compare_and_restore(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    assert workbench.compare("gather_cache", device="sim").all_correct
    assert ops.get("gather_cache").restore_case(case("int8").to_dict()) == case("int8")


def reading(name="small"):
    t = case(name).inputs(case(name).problem())
    return {name: getattr(t, name) for name in ("key_cache", "value_cache", "block_tables", "seq_lens")}, t.out


@pytest.mark.parametrize("variant", ["auto", "tuned", "torch", "cuda_tiled", "triton_tiled"])
def test_every_choice_reads_the_same(variant):
    given, _ = reading()
    found = gather_cache(**given, variant=variant)
    assert case("small").check(torch.stack([side.flatten().view(torch.uint8) for side in found])).ok


@pytest.mark.parametrize("kind", ["auto", "int8", "fp8_e5m2"])
@pytest.mark.parametrize("variant", ["torch", "cuda_tiled"])
@pytest.mark.sampled(3)
def test_opcheck(variant, kind):
    one = dataclasses.replace(case("small"), kv_cache_dtype=kind, scales="head", seq_lens=(3, 17))
    t = one.inputs(one.problem())
    out = torch.zeros_like(t.keys), torch.zeros_like(t.values)  # opcheck would not take views of one tensor
    caches = [cache.view(torch.uint8).nan_to_num(0).view(cache.dtype) if kind != "auto" else cache.nan_to_num(0.0)
              for cache in (t.key_cache, t.value_cache)]  # fmt: skip
    checks = ["test_autograd_registration", "test_faketensor"]
    if kind != "fp8_e5m2":  # the other two compare tensors by arithmetic, which torch has none of for float8
        checks += ["test_schema", "test_aot_dispatch_dynamic"]
    options = {"kv_cache_dtype": kind, "k_scale": t.k_scale, "v_scale": t.v_scale, "variant": variant}
    torch.library.opcheck(OP.library_op(), (*caches, t.block_tables, t.seq_lens, *out), options, test_utils=checks)


def test_compiles_without_a_graph_break():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(keys, values, **given):
        gather_cache(**given, out=(keys, values))
        return keys * 2

    given, _ = reading()
    expected = gather_cache(**given)
    out = [torch.empty_like(side) for side in expected]
    layer(*out, **given)
    assert torch.equal(out[0], expected[0])
    assert torch.equal(out[1], expected[1])


BAD_READS = {
    "cache dtype": (
        "key_cache",
        lambda a: {**reading("nhd")[0], "key_cache": torch.zeros(8, 16, 4, 80, dtype=torch.int8), "layout": "nhd"},
        "kv_cache_dtype is 'auto'",
    ),
    "value cache dtype": ("value_cache", lambda a: {"value_cache": a["value_cache"].float()}, "float16"),
    "unknown cache dtype": ("kv_cache_dtype", lambda a: {"kv_cache_dtype": "fp4"}, "fp8_e4m3"),
    "dtype of the result": ("out[0]", lambda a: {"dtype": torch.float32}, "float16"),
    "dtype beside out": ("dtype", lambda a: {"dtype": torch.float32, "out": (torch.ones(1).half(),) * 2}, "Leave"),
    "lengths dtype": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].long()}, "int32"),
    "rows": ("block_tables", lambda a: {"block_tables": a["block_tables"][1:]}, "One row"),
    "negative length": ("seq_lens[2]", lambda a: {"seq_lens": a["seq_lens"] - (a["seq_lens"] == 0).int()}, "0 to 48"),
    "length beyond the table": ("seq_lens[5]", lambda a: {"block_tables": a["block_tables"][:, :2]}, "0 to 32"),
    "entry in use": (
        "block_tables[0, 0]",
        lambda a: {"block_tables": a["block_tables"] * 0 + 99},
        "pages of the cache",
    ),
    "size of out": ("out", lambda a: {"out": (torch.ones(78, 2, 64).half(), torch.ones(78, 2, 64).half())}, "79"),
    "one tensor for both": ("out[1]", lambda a: {"out": (torch.ones(79, 2, 64).half(),) * 2}, r"memory that out\[0\]"),
    "a result in the cache": (
        "out[0]",
        lambda a: {"out": (a["key_cache"].view(-1)[: 79 * 128].view(79, 2, 64), torch.ones(79, 2, 64).half())},
        "memory that key_cache has too",
    ),
    "scale without quantization": ("k_scale", lambda a: {"k_scale": 2.0}, "kv_cache_dtype"),
    "unknown variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_tiled"),
}


@pytest.mark.parametrize("what", BAD_READS)
def test_bad_read(what):
    argument, change, message = BAD_READS[what]
    given, _ = reading()
    given.update(change(given))
    with pytest.raises(workbench.WorkbenchError, match=message) as refused:
        gather_cache(**given)
    assert refused.value.argument == argument
    assert refused.value.remedy
