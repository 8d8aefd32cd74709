"""Kernels of the running example are proved for all sizes, with facts about their tables, slots and lengths."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from benchmarks.own_kernels import OWN as OLDER
from benchmarks.own_kernels_2026 import OWN_2026
from workbench.proof.proving import HIGHEST, attempt
from workbench.proof.solver import Effort

OWN = OLDER | OWN_2026
UNKNOWN = ("reshape_and_cache, layout x: CUDA", "gated_delta_step: CUDA", "top_k_positions: CUDA")
QUICK = (
    "copy_blocks: CUDA", "copy_blocks: Triton", "swap_blocks: CUDA", "reshape_and_cache, layout hnd: Triton",
    "reshape_and_cache, layout hnd, int8: CUDA", "gather_cache, layout hnd: Triton", "paged_attention: CUDA",
    "contiguous_attention: CUDA", "conv_step: CUDA",
)  # fmt: skip


def tried(name, facts=None):
    family = OWN[name].family(facts)
    return attempt(family, HIGHEST, Effort(60_000_000, models=False), lambda made, failure: True)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.long]) for one in OWN if one not in UNKNOWN]
)
def test_it_is_proved_for_all_sizes(name):
    found = tried(name)
    assert found.proved, found


@pytest.mark.parametrize(("name", "tensor", "weaker"), [
    ("copy_blocks: CUDA", "pairs", "0 <= v < num_blocks"),
    ("reshape_and_cache, layout hnd: Triton", "slot_mapping", "-1 <= v < num_blocks * 16"),
    ("gather_cache, layout hnd: Triton", "starts", "0 <= v <= num_tokens"),
    ("contiguous_attention: CUDA", "cache_rows", "0 <= v <= rows"),
    ("conv_step: CUDA", "slots", "-1 <= v < num_slots"),
    ("paged_attention: CUDA", "block_tables", "0 <= v <= num_blocks"),
    pytest.param("paged_attention: Triton", "block_tables", "0 <= v <= num_blocks", marks=pytest.mark.long),
])  # fmt: skip
def test_it_is_not_proved_with_less(name, tensor, weaker):
    *others, data = OWN[name].facts
    assert not tried(name, (*others, data | {tensor: weaker})).proved
