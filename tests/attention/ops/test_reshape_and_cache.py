"""Writing tokens into pages: every variant bit for bit, and what it asks of memory."""

import dataclasses
import itertools

import pytest
import torch
from declarations import default_of, judge_drawn

import workbench
from workbench import ops
from workbench.attention import reshape_and_cache
from workbench.attention.cache_formats.layouts import LAYOUTS, PagedGeometry, x_of
from workbench.attention.ops.reshape_and_cache import VARIANTS, ReshapeAndCacheCase, case

VARIANTS = tuple(one for one in VARIANTS if not one.needs)  # those of nvfp4: test_nvfp4.py
TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_sizes_layouts_and_dtypes(variant, judge):
    sizes = itertools.cycle(itertools.product((64, 80, 112, 120, 256), (1, 3), (8, 16, 32)))
    for layout, dtype in itertools.product(LAYOUTS, ("float32", "float16", "bfloat16")):
        size, heads, page = next(sizes)
        runs = (1, page - 1, page, page + 1, 2 * page + 3)
        one = ReshapeAndCacheCase(
            "grid", heads, size, runs, skipped=2, dtype=dtype, layout=layout, block_size=page, seed=size
        )
        verdict = judge(variant, default_of(variant, one), one, checks=variant.language != "torch")
        assert verdict.ok, f"{one}: {verdict}"


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        layout, dtype = rng.choice(LAYOUTS), rng.choice(variant.dtypes)
        size = rng.choice((32, 64, 96, 128)) if layout == "x" else rng.choice((5, 20, 36, 64, 80))
        return ReshapeAndCacheCase(
            "sample", 2, size, (1, 19, 8, 0, 33), skipped=3, dtype=dtype, layout=layout, seed=number
        )

    judge_drawn(variant, count, draw, judge)


def test_the_answer_itself():
    """The reference against the layouts' formulas, element by element."""
    for layout in LAYOUTS:
        one = ReshapeAndCacheCase("formula", 2, 8, (3, 5), skipped=1, dtype="float32", layout=layout, block_size=4)
        t = one.inputs(one.problem())
        geometry = PagedGeometry(layout, len(t.value_cache), 4, 2, 8)
        keys, values = one.reference().view(torch.float32).chunk(2)
        keys, values = keys.view(geometry.key_shape(torch.float32)), values.view(geometry.value_shape())
        x, written = x_of(torch.float32), 0
        for token, slot in enumerate(t.slot_mapping.tolist()):
            for head, element in itertools.product(range(2), range(8)):
                page, offset = divmod(slot, 4)
                if slot < 0:
                    continue
                at = {
                    "x": ((page, head, element // x, offset, element % x), (page, head, element, offset)),
                    "nhd": ((page, offset, head, element),) * 2,
                    "hnd": ((page, head, offset, element),) * 2,
                }[layout]
                assert keys[at[0]] == t.key[token, head, element]
                assert values[at[1]] == t.value[token, head, element]
                written += 1
        assert int((~keys.isnan()).sum()) == int((~values.isnan()).sum()) == written == 8 * 2 * 8


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_pages_past_2_to_the_31_elements(variant, sim):
    """Pages 2**30 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    one = ReshapeAndCacheCase("far", 1, 16, (1, 1, 1), block_size=4, layout="nhd")
    t = one.inputs(one.problem())
    apart, pages = 2**30, 3
    t.slot_mapping = torch.tensor([9, 2, 7])
    for name in ("key_cache", "value_cache"):
        storage = torch.empty(apart * (pages - 1) + 4 * 16, dtype=torch.float16)
        setattr(t, name, storage.as_strided((pages, 4, 1, 16), (apart, 16, 16, 1)))
    config = variant.default_config(one.problem())
    variant.run(config, one.problem(), t, sim)
    for token, slot in enumerate(t.slot_mapping.tolist()):
        assert torch.equal(t.key_cache[slot // 4, slot % 4], t.key[token])
        assert torch.equal(t.value_cache[slot // 4, slot % 4], t.value[token])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_tokens_may_be_apart_and_badly_aligned(variant, layout, judge):
    """Keys and values inside a fused projection, whose rows start on 2 bytes: narrower accesses, not wrong ones."""
    one = dataclasses.replace(case("small"), layout=layout)
    t = one.inputs(one.problem())
    fused = torch.randn(one.num_tokens, 2 * 2 * 64 + 3).half()
    for name, first in (("key", 1), ("value", 130)):
        part = fused[:, first : first + 128].unflatten(1, (2, 64))
        part.copy_(getattr(t, name))
        setattr(t, name, part)
    reshape_and_cache(t.key, t.value, t.key_cache, t.value_cache, t.slot_mapping, layout=layout, variant=variant.name)
    check = one.check(t.out)
    assert check.ok, check


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_keys_and_values_of_a_page_side_by_side(variant):
    """[num_blocks, 2, ...], as vLLM allocates them: pages of one cache are two pages apart."""
    one = case("nhd")
    t = one.inputs(one.problem())
    both = torch.full((len(t.key_cache), 2, *t.key_cache.shape[1:]), torch.nan, dtype=t.key_cache.dtype)
    reshape_and_cache(t.key, t.value, both[:, 0], both[:, 1], t.slot_mapping, layout="nhd", variant=variant.name)
    out = torch.cat([both[:, i].flatten() for i in range(2)])
    expected = one.reference().view(torch.bfloat16)
    assert torch.equal(out.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_nothing_to_write(variant):
    one = case("small")
    t = one.inputs(one.problem())
    before = t.out.clone()
    caches = (t.key_cache, t.value_cache)
    reshape_and_cache(t.key, t.value, *caches, torch.full_like(t.slot_mapping, -1), variant=variant.name)
    reshape_and_cache(t.key[:0], t.value[:0], *caches, t.slot_mapping[:0], variant=variant.name)
    assert torch.equal(t.out, before)


@pytest.fixture(scope="module")
def report_of(sim):
    def run(variant, one, **changes):
        config = default_of(variant, one, **changes)
        tensors = one.inputs(one.problem())
        report = variant.run(config, one.problem(), tensors, sim, statistics=True)
        assert one.check(tensors.out).ok
        return report

    return run


class TestMemory:
    @staticmethod
    def value_stores(report):
        """Sectors per request of the stores that are not 16 bytes wide: in layout x those of values."""
        stores = [line for line in report.lines if line.space == "global" and line.is_store and line.requests]
        narrow = [line for line in stores if line.bytes / line.requests <= 64]
        return sum(line.sectors for line in narrow) / sum(line.requests for line in narrow)

    def test_a_turned_tile_fills_its_sectors(self, report_of):
        """A prefill of whole pages: two bytes per sector when each token is written alone, full sectors by tiles."""
        one = ReshapeAndCacheCase("pages", 2, 128, (64,))
        assert self.value_stores(report_of(CUDA, one, TILE_TOKENS=1, V_VEC_SIZE=1)) == 32
        assert self.value_stores(report_of(CUDA, one, V_VEC_SIZE=1)) == 2
        assert self.value_stores(report_of(TRITON, one, TURN_VALUES=0)) == 32
        assert self.value_stores(report_of(TRITON, one)) == 2
        wide = report_of(CUDA, one)
        assert {
            line.sectors / line.requests for line in wide.lines if "v4" in line.text and line.space == "global"
        } == {16}

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("variant", KERNELS, **NAME)
    def test_bytes_of_a_prefill(self, variant, layout, report_of):
        one = dataclasses.replace(case("llama-3-8b-prefill"), layout=layout)
        report = report_of(variant, one)
        minimum = one.minimum_bytes(one.problem())
        assert report.unique_bytes_read + report.unique_bytes_written <= 1.03 * minimum
        assert 32 * (report.global_load_sectors + report.global_store_sectors) <= 1.2 * minimum

    def test_a_decode_step_in_layout_x_touches_five_times_the_minimum(self, report_of):
        """The price of that layout when each token goes to a page of its own: 2 bytes of every 32 in V, 16 in K."""
        one = case("llama-3-8b-decode")
        report = report_of(CUDA, one)
        assert 4.5 < (report.unique_bytes_read + report.unique_bytes_written) / one.minimum_bytes(one.problem()) < 5.5
        nhd = dataclasses.replace(one, layout="nhd")
        report = report_of(CUDA, nhd)
        assert (report.unique_bytes_read + report.unique_bytes_written) / one.minimum_bytes(one.problem()) < 1.01


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_are_legal(variant):
    for dtype, size, layout, page, alignment in itertools.product(
        ("float32", "float16", "bfloat16"), (32, 80, 120, 256, 5), LAYOUTS, (1, 8, 12, 16, 128), (2, 4, 8, 16)
    ):
        problem = dataclasses.replace(
            case("small").problem(),
            dtype=dtype,
            head_size=size,
            layout=layout,
            block_size=page,
            alignment=max(alignment, 4) if dtype == "float32" else alignment,
        )
        rules = {rule.name for rule in variant.broken(variant.default_config(problem), problem)}
        assert rules <= ({"whole x groups"} if size == 5 else set())


def test_compare_and_tune_need_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    assert workbench.compare("reshape_and_cache", device="sim").all_correct
    record = case("small").to_dict()
    assert ops.get("reshape_and_cache").restore_case(record) == case("small")
