"""Verdicts on kernels that are right, and on each with one slip: never proved, and found by the machine."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import workbench as wb

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

HERE = Path(__file__).parent
ROWS = {"out": "float32[rows, cols]", "x": "float32[rows, cols]"}
PICKED = ("cdiv(cols, 128)", "n")
FAMILIES = {
    "add": {"grid": "cdiv(n, 256)", "block": 256, "args": dict.fromkeys("xyz", "float32[n]")},
    "add_by_fours": {"grid": "cdiv(n, 128)", "block": 128, "args": dict.fromkeys("xz", "float32[n, 4]")},
    "strided_add": {"grid": "blocks", "block": 256, "args": dict.fromkeys("xz", "float32[n]")},
    "turned": {
        "grid": ("cdiv(cols, 16)", "cdiv(rows, 16)"), "block": (16, 16),
        "args": {"out": "float32[cols, rows]", "x": "float32[rows, cols]"},
    },
    "wide_turned": {"grid": ("cdiv(cols, 256)", "rows"), "block": 256, "args": ROWS},
    "block_sum": {"grid": "cdiv(n, 128)", "block": 128, "args": {"out": "float32[cdiv(n, 128)]", "x": "float32[n]"}},
    "row_sum": {"grid": "rows", "block": 64, "args": {"out": "float32[rows]", "x": "float32[rows, cols]"}},
    "swapped_in_warp": {
        "grid": "blocks", "block": 128, "args": dict.fromkeys(("out", "x"), "float32[blocks, 128]"),
        "facts": "blocks < 2**20",
    },
    "early": {"grid": "cdiv(n, 64)", "block": 64, "args": dict.fromkeys(("out", "x"), "float32[n]")},
    "branched": {"grid": 1, "block": 64, "args": dict.fromkeys(("out", "x"), "float32[64]")},
    "searched": {"grid": 1, "block": 64, "args": {"out": "float32[64]", "x": "float32[64, cols]"}},
    "rounds": {"grid": 1, "block": 64, "args": {"out": "float32[64]", "x": "float32[n, 64]"}},
    "gathered": {
        "grid": PICKED, "block": 128, "facts": {"index": "0 <= v < rows"},
        "args": {"index": "int32[n]", "x": "float32[rows, cols]", "out": "float32[n, cols]"},
    },
    "scattered": {
        "grid": PICKED, "block": 128, "facts": {"index": "-1 <= v < rows, distinct or -1"},
        "args": {"index": "int32[n]", "x": "float32[n, cols]", "out": "float32[rows, cols]"},
    },
    "own_index": {
        "grid": "cdiv(n, 64)", "block": 64, "facts": {"index": "v == i"},
        "args": {"out": "float32[n]", "index": "int32[n]"},
    },
    "counted": {"grid": "cdiv(n, 256)", "block": 256, "args": {"bins": "int32[256]", "x": "int32[n]"}},
    "product": {
        "grid": ("cdiv(N, 8)", "cdiv(M, 8)"), "block": (8, 8),
        "args": {"c": "float32[M, N]", "a": "float32[M, K]", "b": "float32[K, N]"},
    },
    "staged": {
        "grid": "blocks", "block": 64, "args": {"out": "float32[blocks, 64]", "x": "float32[blocks, tiles, 256]"},
    },
}  # fmt: skip
REFUTED = {
    "add": {1: "bounds"}, "add_by_fours": {1: "bounds"}, "strided_add": {1: "races"},
    "turned": {1: "races", 2: "bounds"}, "block_sum": {1: "races"}, "row_sum": {1: "races"},
    "swapped_in_warp": {1: "races"}, "branched": {1: "barriers"}, "searched": {1: "barriers"},
    "rounds": {1: "barriers", 2: "races"}, "own_index": {1: "bounds"}, "counted": {1: "races"},
    "product": {1: "bounds", 2: "races"}, "staged": {1: "races", 2: "races"},
}  # fmt: skip
"""The property that each slip breaks."""


@functools.cache
def module(slip: int = 0):
    return wb.load_cuda(HERE / "kernels.cu", device="sim", macros={"SLIP": slip})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_right_kernel_is_proved(name):
    proof = wb.prove(getattr(module(), name), **FAMILIES[name])
    assert proof.ok, proof


@pytest.mark.parametrize(("name", "slip"), [(name, slip) for name, slips in REFUTED.items() for slip in slips])
def test_a_slip_is_refuted_by_a_launch_in_which_the_machine_finds_it(name, slip):
    proof = wb.prove(getattr(module(slip), name), **FAMILIES[name])
    assert proof.status == "refuted", proof
    (example,) = proof.counterexamples
    assert example.kind == REFUTED[name][slip], proof
    assert example.confirmed is not None
    assert not example.confirmed.ok


def test_what_threads_do_before_they_end_is_ordered_by_no_barrier():
    proof = wb.prove(module(1).early, **FAMILIES["early"])
    assert proof.status == "unknown", proof
    assert proof.properties["barriers"] == "unknown"
