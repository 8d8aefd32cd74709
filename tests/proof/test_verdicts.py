"""Verdicts on kernels that are right, and on each with one slip: never proved, and found by the machine."""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
from pathlib import Path

import pytest

import workbench as wb

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from workbench.proof import proving
from workbench.proof.family import Family
from workbench.proof.proving import attempt
from workbench.proof.solver import Effort

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
    "listed": {
        "grid": "cdiv(n, 256)", "block": 64, "facts": ["n < 2**30", {"index": "0 <= v < rows"}],
        "args": {"index": "int32[n]", "x": "float32[rows]", "out": "float32[n]"},
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
    "ringed": {
        "grid": "blocks", "block": 64, "args": {"out": "float32[blocks, 64]", "x": "float32[blocks, tiles, 256]"},
    },
    "joined_copies": {"grid": 1, "block": 64, "args": {"out": "float32[64]", "x": "float32[64, 4]"}},
    "two_names": {
        "grid": 1, "block": 64, "args": dict.fromkeys(("out", "x"), "float32[64]"), "shared_bytes": 256,
    },
    "divided": {"grid": "cdiv(n, 64)", "block": 64, "args": dict.fromkeys(("out", "x"), "float32[n]")},
    "carried": {"grid": 1, "block": 64, "args": {"out": "float32[n + 1, 64]", "index": "int32[n]"}},
    "chosen_by_a_float": {"grid": 2, "block": 64, "args": {"out": "float32[128]", "x": "float32[64]"}},
    "asserted": {
        "grid": 1, "block": 64, "facts": "n >= 64",
        "args": {"out": "float32[64]", "x": "float32[n]", "index": "int32[64]"},
    },
}  # fmt: skip
LAUNCH = {"grid": "cdiv(n, 64)", "block": 64}
REFUTED = {
    "add": {1: "bounds"}, "add_by_fours": {1: "bounds"}, "strided_add": {1: "races"},
    "turned": {1: "races", 2: "bounds"}, "block_sum": {1: "races"}, "row_sum": {1: "races"},
    "swapped_in_warp": {1: "races"}, "branched": {1: "barriers"}, "searched": {1: "barriers"},
    "rounds": {1: "barriers", 2: "races"}, "own_index": {1: "bounds"}, "counted": {1: "races"},
    "product": {1: "bounds", 2: "races"}, "staged": {1: "races", 2: "races"},
    "ringed": {1: "races", 2: "races", 3: "races"},
    "joined_copies": {1: "races", 2: "races"},
    "two_names": {1: "races"}, "divided": {1: "bounds"}, "carried": {1: "bounds"},
    "asserted": {1: "bounds"}, "chosen_by_a_float": {1: "barriers"},
}  # fmt: skip
"""The property that each slip breaks."""


@functools.cache
def module(slip: int = 0):
    return wb.load_cuda(HERE / "kernels.cu", device="sim", macros={"SLIP": slip})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_right_kernel_is_proved(name):
    proof = wb.prove(getattr(module(), name), **FAMILIES[name])
    assert proof.ok, proof


@pytest.mark.parametrize("grid", [
    ("cdiv(x.shape[1], 16)", "cdiv(out.shape[1], 16)"),
    lambda x: (-(-x.shape[1] // 16), x.shape[0] // 16 + 1),
    lambda out, cols: ((cols + 15) // 16, (out.shape[1] + 15) // 16),
], ids=["text", "tensor", "size"])  # fmt: skip
def test_a_grid_may_be_traced_from_shapes(grid):
    proof = wb.prove(module().turned, **FAMILIES["turned"] | {"grid": grid})
    assert proof.ok, proof


def test_a_fact_may_name_a_shape():
    changes = {"facts": {"index": "0 <= v < x.shape[0]"}, "grid": lambda out: (-(-out.shape[1] // 128), out.shape[0])}
    assert wb.prove(module().gathered, **FAMILIES["gathered"] | changes).ok
    wrong = wb.prove(module().gathered, **FAMILIES["gathered"] | changes | {"facts": {"index": "0 <= v <= x.shape[0]"}})
    assert wrong.status == "refuted"


SLIPS = [
    pytest.param(name, slip, marks=[pytest.mark.long] if name == "product" else [])
    for name, slips in REFUTED.items()
    for slip in slips
]


@pytest.mark.parametrize(("name", "slip"), SLIPS)
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


def test_a_barrier_on_some_paths_of_a_loop_orders_nothing():
    proof = wb.prove(module().sometimes, grid=1, block=64, args=dict.fromkeys(("out", "x"), "float32[64]"))
    assert proof.properties["races"] == "refuted", proof


def test_a_loop_that_wraps_is_proved_for_sizes_that_do_not_let_it():
    proof = wb.prove(module().strided_add, **FAMILIES["strided_add"])
    assert "n < 2**30" in proof.preconditions
    unlimited = attempt_without(module().strided_add, FAMILIES["strided_add"])
    assert not unlimited.proved


def attempt_without(kernel, family):
    launches = Family(kernel.compiled, family["grid"], family["block"], family["args"])
    return attempt(launches, 0, Effort(12_000_000), lambda made, failure: True)


def test_a_product_of_32_bits_that_wraps_is_among_the_preconditions():
    wide, narrow = (wb.prove(module(slip).wide_turned, **FAMILIES["wide_turned"]) for slip in (0, 1))
    assert not any("elements" in one for one in wide.preconditions), wide
    assert any(one.startswith("elements of") for one in narrow.preconditions), narrow
    assert "out of bounds" in narrow.overflow


def test_ctrl_c_still_ends_a_system_call_after_a_proof(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    assert wb.prove(module().turned, **FAMILIES["turned"]).questions
    receiving, sending = os.pipe()
    threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    late = threading.Timer(5, os.write, (sending, b"late"))
    late.start()
    with pytest.raises(KeyboardInterrupt):
        os.read(receiving, 1)
    assert late.is_alive(), "the call went on after the signal"
    late.cancel()


def test_a_proof_is_the_same_each_time(tmp_path, monkeypatch):
    proofs = []
    for name in ("one", "other"):
        monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / name))
        proofs.append(wb.prove(module().turned, **FAMILIES["turned"]))
    first, again = proofs
    assert first == again
    assert first.questions == again.questions


def test_a_verdict_is_kept_until_facts_or_the_kernel_change(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    asked = []
    monkeypatch.setattr(proving, "attempt", lambda *given: asked.append(1) or attempt(*given))
    first = wb.prove(module().gathered, **FAMILIES["gathered"])
    before = len(asked)
    again = wb.prove(module().gathered, **FAMILIES["gathered"])
    assert len(asked) == before
    assert (again, str(again), again.seconds) == (first, str(first), first.seconds)
    for changes in ({"facts": {"index": "0 <= v < rows - 1"}}, {"grid": ("cdiv(cols, 64)", "n")}, {"effort": 10**8}):
        wb.prove(module().gathered, **FAMILIES["gathered"] | changes)
        assert len(asked) > before, changes
        before = len(asked)
    assert not wb.prove(module().gathered, **FAMILIES["gathered"] | {"facts": ()}, run=False).ok


@pytest.mark.parametrize(("name", "args", "why"), [
    ("called", {"out": "float32[n]", "x": "float32[n]"}, "_Z3farPKfi was not inlined, which __forceinline__ asks for"),
    ("printed", {"out": "float32[n]"}, "the code of vprintf is not in the PTX"),
    ("pointed", None, "a call through a pointer"),
    ("structured", None, "an address inside the structure structured_param_0"),
    ("led", {"tables": "int64[1]"}, "an address that lies in memory, in tables"),
    ("add", {"z": "float32[n]", "x": "float32[n]"}, "size is unknown"),
])  # fmt: skip
def test_what_is_not_modelled_is_unknown_with_its_line(name, args, why):
    proof = wb.prove(getattr(module(), name), **LAUNCH, args=args)
    assert proof.status == "unknown"
    assert why in str(proof)
    assert "line " in str(proof)
    assert proof.exit_status == 3


@pytest.mark.parametrize(("changes", "message"), [
    ({"args": {"w": "float32[n]"}}, "allowed: z, x, y, n"),
    ({"args": ["float32[n]"]}, "1 arguments; allowed: 4"),
    ({"args": {"x": "float33[n]"}}, "float33"),
    ({"grid": "n / 2"}, "n / 2"),
    ({"facts": "n + 1"}, "a comparison"),
    ({"facts": ["n < 5", "n > 7"]}, "contradict each other"),
    ({"facts": {"x": "v < 0, v >= n"}, "args": {"x": "int32[n]"}}, "a fact that holds for some element"),
    ({"facts": ["n > 4", {"x": "0 <= v < 4, distinct"}], "args": {"x": "int32[n]"}}, "contradict each other"),
    ({"facts": ["n > 4", {"x": "0 <= v < 8, v % 2 == 0, distinct"}], "args": {"x": "int32[n]"}}, "contradict each"),
    ({"facts": {"x": "v % 2**31 == 0, v >= 0, distinct"}, "args": {"x": "int32[n]"}}, "holds for some elements"),
    ({"facts": ["n > 5", {"x": "0 <= v <= 9, apart by y", "y": "v >= 2"}], "args": dict.fromkeys("xy", "int32[n]")},
     "contradict each other"),
    ({"facts": {"x": "0 <= v < n"}}, "a tensor of whole numbers"),
    ({"facts": {"w": "distinct"}}, "a tensor 'w'"),
    ({"facts": {"x": "v + 1"}}, "a comparison of v"),
    ({"facts": {"x": "apart by n"}}, "a tensor of as many elements: z, x, y"),
    ({"grid": None}, "the blocks"),
    ({"grid": lambda w: w}, "a function of 'w'; allowed: n, x, y, z"),
    ({"grid": lambda n: 1 / n}, "a function that does not take symbols"),
    ({"variants": "fast"}, "no value with a kernel"),
    ({"block": "n"}, "one block size"),
])  # fmt: skip
def test_wrong_arguments_are_refused(changes, message):
    given = {"grid": "cdiv(n, 256)", "block": 256, "args": dict.fromkeys("xyz", "float32[n]")}
    with pytest.raises(wb.WorkbenchError, match=re.escape(message)):
        wb.prove(module().add, **given | changes)


def test_sizes_above_those_of_the_preconditions_are_not_proved_by_their_contradiction():
    large = FAMILIES["add"] | {"facts": "n >= 2**30"}
    assert "n < 2**30" not in str(wb.prove(module().add, **large))
    assert not wb.prove(module(1).add, **large, run=False).ok


def test_a_shared_array_that_is_aligned_by_luck_is_not_proved():
    proof = wb.prove(module().vectors_of_floats, grid=1, block=64, args={"out": "float32[64, 4]"})
    assert proof.properties["bounds"] != "proved", proof
