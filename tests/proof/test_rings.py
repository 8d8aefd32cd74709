"""Verdicts on kernels whose threads have roles, and on each with one slip."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from test_rules import changed

from workbench.proof.family import Family
from workbench.proof.kept import key_of
from workbench.proof.proving import HIGHEST, attempt
from workbench.proof.solver import Effort

HERE = Path(__file__).parent
RING = {
    "grid": "blocks", "block": 96, "args": {"out": "float32[blocks, 64]", "x": "float32[blocks, tiles, 256]"},
}  # fmt: skip
MATRIX = "TensorMap(float32[rows, cols], [16, 16])"
FAMILIES = {
    "tile_ring": RING | {"args": {"out": "float32[blocks, 64]", "x": MATRIX}},
    "ring": RING, "counted_ring": RING,
    "changed_in_place": {"grid": 1, "block": 64, "args": {"out": "float32[64]", "x": "float32[tiles, 64]"}},
    "multiplied": {
        "grid": "blocks", "block": 160, "facts": ["1 <= steps < 2**24", "blocks < 2**24"],
        "args": {
            "out": "TensorMap(float32[rows, 8], [64, 8])", "a": "TensorMap(float16[rows, k], [64, 64], swizzle=128)",
            "b": "TensorMap(float16[8, k], [8, 64], swizzle=128)",
        },
    },
    "elected": {"grid": 1, "block": 64, "args": {"out": "float32[2]"}},
    "grouped": {"grid": 1, "block": 128, "args": dict.fromkeys(("out", "x"), "float32[128]")},
    "weighted": {"grid": 1, "block": 64, "args": dict.fromkeys(("out", "x"), "float32[32]")},
    "dispatched": {"grid": 1, "block": 96, "args": dict.fromkeys(("out", "x"), "float32[64]")},
    "late": {"grid": 1, "block": 64, "args": dict.fromkeys(("out", "x"), "float32[64]")},
    "told": {"grid": 1, "block": 128, "args": {"out": "float32[2]"}},
}  # fmt: skip
LONG = ("counted_ring", "ring")
LONG_SLIPS = {"tile_ring": {2, 3, 5, 6, 8, 9, 10, 11, 12, 14}, "multiplied": {1, 2, 3, 6, 7, 9, 10, 11, 12}}
"""Slips whose rules others need as well."""


@functools.cache
def module(slip: int = 0):
    return wb.load_cuda(HERE / "rings.cu", device="sim", arch="sm_90a", macros={"SLIP": slip})


def marked(name: str, *values: object):
    rare = name in LONG or LONG_SLIPS.get(name, set()).intersection(values[:1])
    return pytest.param(name, *values, marks=[pytest.mark.long] if rare else [])


@pytest.mark.parametrize("name", [marked(name) for name in FAMILIES])
def test_a_right_kernel_is_proved(name):
    proof = wb.prove(getattr(module(), name), **FAMILIES[name])
    assert proof.ok, proof
    assert bool(proof.covered) == (name == "elected")  # without roles; else checks of runs leave nothing out


@pytest.mark.parametrize("name", FAMILIES)
def test_the_machine_finds_nothing_in_right_kernels(name):
    threads = FAMILIES[name]["block"]
    for tiles in (1, 2, 3, 7):
        x, out = torch.randn(1, tiles, 256), torch.zeros(1, 64)
        mapped = wb.TensorMap.of(torch.randn(16, 16 * tiles), (16, 16))
        args = {
            "ring": [out, x, tiles],
            "tile_ring": [out, mapped, tiles],
            "counted_ring": [out, x, tiles],
            "changed_in_place": [out, x, tiles],
        }
        a, b = (torch.randn(count, 64 * tiles).half() for count in (64, 8))
        args["multiplied"] = [
            wb.TensorMap.of(torch.zeros(64, 8), (64, 8)),
            *(wb.TensorMap.of(one, (len(one), 64), swizzle=128) for one in (a, b)),
            tiles,
        ]
        args["elected"] = args["told"] = [torch.zeros(2)]
        given = args.get(name, [torch.zeros(128), torch.randn(128)])
        report = wb.check_kernel(getattr(module(), name), grid=1, block=threads, args=given)
        assert report.ok, report


REFUTED = {
    "tile_ring": range(1, 14), "ring": range(1, 14), "counted_ring": (1, 2), "changed_in_place": (2, 3),
    "multiplied": (1, 2, 3, *range(5, 13)), "grouped": (1, 2, 3), "elected": (1,), "weighted": (1,),
    "dispatched": (2, 3), "late": (1,), "told": (1,),
}  # fmt: skip


@pytest.mark.parametrize(("name", "slip"), [marked(name, slip) for name, slips in REFUTED.items() for slip in slips])
def test_a_slip_is_refuted_by_a_launch_in_which_the_machine_finds_it(name, slip):
    proof = wb.prove(getattr(module(slip), name), **FAMILIES[name])
    assert proof.status == "refuted", proof


NOT_PROVED = [
    ("changed_in_place", 1, "races"), ("tile_ring", 14, "bounds"), ("multiplied", 4, "races"),
    ("dispatched", 1, "races"), ("weighted", 2, "races"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "slip", "property"), [marked(*one) for one in NOT_PROVED])
def test_a_slip_that_no_run_shows_alone_is_not_proved(name, slip, property):
    """A copy over ordinary stores without a fence, a tile at no multiple of 128 bytes, products without a commit."""
    proof = wb.prove(getattr(module(slip), name), **FAMILIES[name])
    assert proof.properties[property] == "unknown", proof


def is_proved(kernel, family) -> bool:
    made = Family(kernel, family["grid"], family.get("block"), family["args"], family.get("facts", ()))
    return attempt(made, HIGHEST, Effort(20_000_000, models=False), lambda made, failure: True).proved


RULES = (
    ("products._multiply", "(operands[1], _ROWS, ", "(operands[1], 32, ", "short_matrix", 0),
    ("obligations.Obligations._arrivals", "weight * len", "32 * len", "weighted", 1),
    ("obligations.Obligations._most_ahead", "not self._asked_for(other, one.at)", "False", "late", 1),
    ("order.HappensBefore._is_later", "return self._later[key]", "return True", "changed_in_place", 1),
    ("passed_bytes.PassedBytes._at", "max((one", "min((one", "told", 1),
    ("passed_bytes.PassedBytes._sure", "run.holds(one.path, mine)", "True", "dispatched", 1),
)
OTHERS = {"short_matrix": {"grid": 1, "block": 128, "args": {"out": "float32[128]"}}}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0].rpartition(".")[2])
def test_a_faulty_kernel_is_proved_only_with_a_broken_rule(rule):
    where, old, new, name, slip = rule
    kernel, family = getattr(module(slip), name).compiled, (FAMILIES | OTHERS)[name]
    assert not is_proved(kernel, family)
    with changed(where, old, new):
        assert is_proved(kernel, family)


def test_a_verdict_is_kept_for_the_boxes_and_layouts_of_its_maps():
    kernel, keys = module().tile_ring.compiled, set()
    for mapped in (MATRIX, MATRIX.replace("16]", "8]"), MATRIX.replace("])", "], swizzle=64)")):
        family = Family(kernel, 1, 160, {"out": "float32[128]", "x": mapped})
        keys.add(key_of(kernel.ptx, kernel.name, family.specification(), 1))
    assert len(keys) == 3


def test_a_text_that_is_no_tensor_map():
    family = FAMILIES["tile_ring"] | {"args": {"x": "TensorMap(float32[rows, cols], [16])"}}
    with pytest.raises(ArgumentError, match="extents of a box"):
        wb.prove(module().tile_ring, **family)
    with pytest.raises(ArgumentError, match="128"):
        wb.prove(module().tile_ring, **family | {"args": {"out": "TensorMap(float32[rows], [16])"}})
