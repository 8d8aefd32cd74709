"""Bytes in flight: what Little's law asks for, what each variant declares, and that the compiler keeps to it."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.analysis.device_models import device_model
from workbench.attention.bench.paged_attention import BenchmarkCell, grid
from workbench.attention.bench.paged_attention.contender import Ours, ours
from workbench.attention.bench.paged_attention.in_flight import bytes_in_flight, needed, needed_of_gpu, noted
from workbench.attention.bench.paged_attention.ledger import LedgerRow
from workbench.attention.bench.paged_attention.peers import TorchSdpa
from workbench.attention.ops.paged_attention import OP

H200 = device_model("h200")
SMS = int(H200.multiprocessors)


def test_what_an_h200_needs_follows_from_its_model():
    least, certain = needed(H200)
    idle = 4.8e12 / 132 * 479 / 1.83e9
    assert (least / idle, certain / idle) == pytest.approx((2.6, 4.2))
    assert 24_500 < least < 25_000
    assert 39_500 < certain < 40_500
    assert needed_of_gpu("NVIDIA H200") == needed_of_gpu(H200.name) == needed(H200)
    assert needed_of_gpu("told") is None


@pytest.mark.parametrize("one", ours(), ids=lambda one: one.name)
def test_no_default_is_below_what_an_h200_needs(one):
    """In every cell of the grid that is long enough: with as many blocks as multiprocessors, and 8192 tokens."""
    least, seen = needed(H200)[0], 0
    for cell in grid():
        problem = cell.problem(one.form, "sm_90")
        config = one.variant.default_config(problem)
        if one.variant.broken(config, problem) or cell.context < 8192:
            continue
        if one.variant.footprint(config, problem).blocks < 2 * SMS:
            continue
        if one.name == "cuda_thread_group" and cell.block_size == 1:
            continue  # in its layout the values of a page of one token are 2 bytes in a row
        seen += 1
        assert bytes_in_flight(one.variant, config, problem, SMS) >= least, (cell.label, config)
    assert seen >= 60


CELLS = (
    BenchmarkCell(cache="fp8"),
    BenchmarkCell(cache="int8", block_size=64),
    BenchmarkCell(64, 8, 8, 32768, block_size=32),
)


@pytest.mark.parametrize("one", ours(), ids=lambda one: one.name)
@pytest.mark.sampled(3)
def test_what_the_compiler_takes_is_within_what_a_variant_declares(one):
    kernel = assert_within(one, BenchmarkCell())
    if one.variant.language == "triton":  # what is under way has a place in shared memory
        assert kernel.dynamic_shared_bytes >= one.variant.footprint(*configured(one, BenchmarkCell())).bytes_in_flight


@pytest.mark.long
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.label)
@pytest.mark.parametrize("one", ours(), ids=lambda one: one.name)
def test_what_the_compiler_takes_is_within_what_a_variant_declares_for_more_cells(one, cell):
    assert_within(one, cell)


def configured(one, cell):
    problem = cell.problem(one.form, "sm_90")
    return one.variant.default_config(problem), problem


def assert_within(one, cell):
    config, problem = configured(one, cell)
    if one.variant.broken(config, problem):
        pytest.skip("; ".join(str(rule) for rule in one.variant.broken(config, problem)))
    declared = one.variant.footprint(config, problem)
    kernel = one.variant.compile(config, problem, "sm_90")
    assert kernel.registers <= declared.registers
    assert kernel.static_shared_bytes + kernel.dynamic_shared_bytes <= declared.shared_bytes
    assert kernel.spill_bytes <= 8  # cuda_grouped_mma with int8 and pages of 64, at its bound of 168 registers
    return kernel


@pytest.mark.parametrize(
    ("name", "config", "block_bytes"),
    [
        # 4 warps of 2 stages ahead of 16 tokens, keys and values of 256 bytes
        ("cuda_grouped_mma", {"TILE_TOKENS": 16, "NUM_STAGES": 3, "NUM_THREADS": 128}, 4 * 2 * 16 * 2 * 256),
        ("cuda_grouped_mma", {"NUM_STAGES": 4, "NUM_THREADS": 64}, 2 * 3 * 16 * 2 * 256),
        ("cuda_grouped_mma", {"PARTITION_SIZE": 128, "NUM_STAGES": 4, "NUM_THREADS": 256}, 128 * 2 * 256),
        ("cuda_partitioned", {}, 128 * (8 * 16 + 8 * 16)),
        ("cuda_thread_group", {}, 128 * 128),
        ("triton_grouped", {"TILE_TOKENS": 64, "num_stages": 5}, 2 * 64 * 2 * 256),
        ("triton_grouped", {"TILE_TOKENS": 64, "num_stages": 1}, 64 * 2 * 256),
        ("triton_partitioned", {"TILE_TOKENS": 64, "num_stages": 3}, 2 * 2 * 64 * 256),
        ("triton_online_softmax", {"TILE_TOKENS": 64, "num_stages": 1}, 64 * 256),
    ],
)
def test_bytes_in_flight_of_a_block_by_hand(name, config, block_bytes):
    one = Ours(OP.variant(name))
    problem = BenchmarkCell().problem(one.form, "sm_90")
    footprint = one.variant.footprint({**one.variant.default_config(problem), **config}, problem)
    assert footprint.bytes_in_flight == block_bytes


def test_a_busy_multiprocessor_has_no_more_than_its_share_of_the_blocks():
    variant = OP.variant("triton_online_softmax")
    few, many = (BenchmarkCell(num_seqs=count).problem("nhd", "sm_90") for count in (1, 64))
    one_block = variant.footprint(variant.default_config(few), few).bytes_in_flight
    assert bytes_in_flight(variant, variant.default_config(few), few, SMS) == one_block
    assert bytes_in_flight(variant, variant.default_config(many), many, SMS) == 4 * one_block
    assert bytes_in_flight(OP.variant("torch"), {}, many, SMS) is None


def test_a_thread_group_has_more_warps_where_logits_leave_room_for_few_blocks():
    variant = OP.variant("cuda_thread_group")

    def threads(**changes):
        return variant.default_config(dataclasses.replace(BenchmarkCell(), **changes).problem("x", "sm_90"))[
            "NUM_THREADS"
        ]

    assert threads() == threads(context=1024) == 128
    assert threads(context=32768) == 256
    assert threads(context=32768, cache="fp8") == 512
    assert threads(context=256, cache="fp8", block_size=64) == 128, "every warp has pages"


def test_rows_of_ours_with_a_time_are_noted():
    one = Ours(OP.variant("cuda_grouped_mma"))
    config = one.variant.default_config(BenchmarkCell().problem(one.form, "sm_90"))
    row = LedgerRow(BenchmarkCell(), one.name, True, "measured", seconds=1.0, config=config)
    assert noted(row, one, "sm_90", SMS).bytes_in_flight == 2 * 4 * 2 * 16 * 2 * 256
    blank = dataclasses.replace(row, seconds=None)
    assert noted(blank, one, "sm_90", SMS) == blank
    peer = LedgerRow(BenchmarkCell(), "torch_sdpa", False, "measured", seconds=1.0)
    assert noted(peer, TorchSdpa(True), "sm_90", SMS) == peer
