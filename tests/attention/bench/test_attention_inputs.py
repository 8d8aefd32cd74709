"""The cells, their tensors on any device, and the float64 answer."""

from __future__ import annotations

import pytest
import torch

from workbench.attention.bench.paged_attention import Cell, grid
from workbench.attention.bench.paged_attention.cells import BATCHES, CACHES, CONTEXTS, HEADS, PAGES
from workbench.attention.bench.paged_attention.inputs import Inputs
from workbench.attention.ops.paged_attention import OP
from workbench.errors import ArgumentError

SMALL = Cell(8, 2, num_seqs=5, context=64, head_size=64)


def test_the_grid_is_the_issue_s_and_the_most_telling_cells_come_first():
    cells = grid()
    assert len(set(cells)) == len(HEADS) * len(BATCHES) * len(CONTEXTS) * len(CACHES) * len(PAGES) == 768
    assert set(cells) == {cell for size in (1, 16, 32, 64) for cell in grid(size)}
    centre = cells[0]
    assert (centre.num_heads, centre.num_kv_heads, centre.cache) == (32, 8, "bf16")

    def differs(cell):
        heads = (cell.num_heads, cell.num_kv_heads) != (centre.num_heads, centre.num_kv_heads)
        return heads + sum(
            getattr(cell, name) != getattr(centre, name) for name in ("num_seqs", "context", "cache", "block_size")
        )

    distances = [differs(cell) for cell in cells]
    assert distances == sorted(distances)
    assert distances.count(1) == 3 + 3 + 3 + 2 + 3, "every axis is crossed once before two are"


@pytest.mark.parametrize("block_size", [0, 24, 2048])
def test_pages_are_whole(block_size):
    with pytest.raises(ArgumentError, match="block_size"):
        grid(block_size)


def test_bytes_are_those_of_the_tensors():
    cell = Cell(8, 2, num_seqs=3, context=64, head_size=64)
    for cache in CACHES:
        inputs = Inputs.draw(Cell(8, 2, 3, 64, cache, 64), "cpu")
        pages = cell.num_seqs * cell.pages
        used = 2 * inputs.key_cache[0].numel() * inputs.key_cache.element_size() * pages
        rest = 2 * inputs.query.numel() * 2 + inputs.block_tables.numel() * 4 + inputs.seq_lens.numel() * 4
        assert inputs.cell.kv_bytes == used
        assert inputs.cell.minimum_bytes == used + rest


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("layout", ["nhd", "x", "hnd"])
def test_the_ops_own_torch_variant_passes_in_every_layout(cache, layout):
    inputs = Inputs.draw(Cell(8, 2, 5, 64, cache, 64), "cpu")
    tensors = inputs.tensors(layout)
    assert not inputs.check(tensors.out).ok, "NaN until something is computed"
    OP.variant("torch").run({}, inputs.cell.problem(layout, "sm_80"), tensors)
    check = inputs.check(tensors.out)
    assert check.ok, check


def test_what_a_wrong_kernel_would_compute_is_caught():
    """One token too few, another KV head, another page, no scale: each in one sampled sequence only."""
    inputs = Inputs.draw(Cell(8, 2, 9, 1024, "fp8", 64), "cpu")
    variant, problem = OP.variant("torch"), inputs.cell.problem("nhd", "sm_80")
    right = inputs.tensors("nhd")
    variant.run({}, problem, right)
    seq = inputs.sample[1]
    assert inputs.sample == (0, 3, 5, 8)

    def wrong(**changes):
        tensors = inputs.tensors("nhd")
        for name, value in changes.items():
            setattr(tensors, name, value)
        variant.run({}, problem, tensors)
        out = right.out.clone()
        out[seq] = tensors.out[seq]
        return inputs.check(out)

    tables = inputs.block_tables.clone()
    tables[seq, 7] = tables[seq, 8]
    mistakes = {
        "the last token": {"seq_lens": inputs.seq_lens - 1},
        "a page": {"block_tables": tables},
        "the heads": {"query": inputs.query.roll(4, 1)},
        "the key's scale": {"k_scale": torch.ones(1)},
        "the value's scale": {"v_scale": torch.ones(1)},
    }
    assert inputs.check(right.out).ok
    for what, changes in mistakes.items():
        assert not wrong(**changes).ok, what
    unseen = right.out.clone()
    unseen[1] = torch.nan
    assert not inputs.check(unseen).ok, "sequences that are not sampled are at least numbers"
