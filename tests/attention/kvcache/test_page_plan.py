"""Pages of equal bytes for groups of layers: plans by hand, and the layers of four models."""

import pytest

from workbench.attention.cache_studies.group_waste import LONG, MODELS, GroupWaste, every_token, fill_pool
from workbench.attention.cache_studies.traces import Request
from workbench.attention.kvcache.page_plan import LayerKind, plan_pages
from workbench.errors import ArgumentError

FULL, WINDOW = LayerKind("full", 4, 100), LayerKind("window", 10, 100, 32)


def sizes(plan):
    return [(one.group.name, one.group.block_size, one.num_layers) for one in plan.groups]


def test_layers_are_divided_into_groups_that_fit_the_page():
    plan = plan_pages((FULL, WINDOW), (4, 4))
    assert plan.page_bytes == 16 * 4 * 100
    assert sizes(plan) == [("full 0", 16, 4), ("window 0", 16, 4), ("window 1", 16, 4), ("window 2", 16, 2)]
    assert [one.block_bytes for one in plan.groups] == [6400, 6400, 6400, 3200]
    # Five layers in a page leave 12 tokens, of which blocks of 8 end where those of 16 do; two layers twice as many.
    assert sizes(plan_pages((FULL, WINDOW), (4, 5)))[1:] == [("window 0", 8, 5), ("window 1", 8, 5)]
    assert {size for _, size, _ in sizes(plan_pages((FULL, WINDOW), (4, 2)))} == {16, 32}


def test_blocks_are_long_enough_for_states():
    state = LayerKind("state", 3, 10_000)
    assert sizes(plan_pages((LayerKind("latent", 2, 100), state), (2, 3)))[0] == ("latent 0", 160, 2)
    plan = plan_pages((LayerKind("latent", 2, 100), state), (2, 1))
    assert sizes(plan)[0] == ("latent 0", 64, 2)
    assert plan.page_bytes == 12_800
    assert [one.block_bytes for one in plan.groups[1:]] == [10_000] * 3


@pytest.mark.parametrize(
    ("kinds", "layers", "text"),
    [
        ((LayerKind("state", 2, 100),), (1,), "a kind that keeps tokens"),
        ((FULL, WINDOW), (4,), "2, one per kind"),
        ((FULL, WINDOW), (4, 0), "layers_per_group: got 0"),
        ((FULL, LayerKind("window", 0, 100, 8)), (4, 1), "num_layers: got 0"),
        ((FULL, LayerKind("latent", 100, 100)), (4, 65), "Put fewer layers in a group"),
    ],
)
def test_plans_that_cannot_be(kinds, layers, text):
    with pytest.raises(ArgumentError, match=text):
        plan_pages(kinds, layers)


def test_the_bytes_of_one_request_by_hand():
    plan = plan_pages((FULL, WINDOW), (4, 4))
    pages = 5 + 3 * 3  # 70 tokens in blocks of 16: five, and of a window of 32 the last three
    trace = [Request(69, 1), Request(2000, 1)]
    found = fill_pool((FULL, WINDOW), plan, trace, pool_bytes=20 * plan.page_bytes, chunk=16)
    whole = 20 * 6400
    assert (found.num_seqs, found.tokens) == (1, 70)
    # The next token reads 70 tokens of four layers, and the last 31 of ten; the window's blocks begin at token 32.
    assert found.read == pytest.approx((70 * 400 + 31 * 1000) / whole)
    assert found.behind == pytest.approx((39 - 32) * 1000 / whole)
    assert found.empty == pytest.approx(10 * 1400 / whole)
    assert found.padding == pytest.approx(3 * 3200 / whole)
    assert found.unused == pytest.approx((20 - pages) / 20)


def test_a_state_is_read_whole_and_its_blocks_have_no_empty_part():
    kinds = LayerKind("full", 1, 100), LayerKind("state", 2, 1000)
    plan = plan_pages(kinds, (1, 1))
    found = fill_pool(kinds, plan, [Request(15, 1), Request(900, 1)], pool_bytes=10 * plan.page_bytes)
    assert plan.page_bytes == 1600
    assert found == GroupWaste(1, 16, *(pytest.approx(part / 16_000) for part in (3600, 0, 0, 1200, 11_200)))


def test_layers_that_all_keep_everything():
    (plain,) = every_token((FULL, WINDOW))
    assert (plain.kind, plain.num_layers) == ("full", 14)
    plan = plan_pages((plain,), (14,))
    found = fill_pool((FULL, WINDOW), plan, [Request(79, 1), Request(99, 1)], pool_bytes=7 * plan.page_bytes)
    read, whole = 80 * 400 + 31 * 1000, 7 * 16 * 1400
    assert (found.read, found.behind) == (pytest.approx(read / whole), pytest.approx((80 * 1400 - read) / whole))
    with pytest.raises(ArgumentError, match="layers of equal bytes"):
        every_token(MODELS["Qwen3-Next 80B"])
    with pytest.raises(ArgumentError, match="which all fit"):
        fill_pool((plain,), plan, LONG.trace(2), pool_bytes=2**34)
