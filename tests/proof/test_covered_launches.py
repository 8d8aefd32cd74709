"""Checks with a proof: what it covers is not looked at again, and all else is found as without it.

No launch that breaks a precondition is taken for one that keeps it.
"""

from __future__ import annotations

import functools
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import workbench as wb

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from workbench.launch.sim import machine_kernel
from workbench.proof.certificate import certificate
from workbench.proof.execution import Execution
from workbench.proof.facts import DataFact
from workbench.proof.family import Family
from workbench.proof.solver import Effort
from workbench.proof.specification import Specification
from workbench.ptx.launch import PtxKernel

HERE = Path(__file__).parent
TURNED = {
    "grid": ("cdiv(cols, 16)", "cdiv(rows, 16)"), "block": (16, 16),
    "args": {"out": "float32[cols, rows]", "x": "float32[rows, cols]"},
}  # fmt: skip
PICKED = {
    "grid": "cdiv(n, 64)", "block": 64, "facts": {"index": "0 <= v < rows, distinct"},
    "args": {"out": "float32[n]", "x": "float32[rows]", "index": "int32[n]"},
}  # fmt: skip
LEFT = {
    "scalars": ("float32[blocks, 128]", "float32[128]", 64),
    "vectors": ("float32[blocks, 64, 4]", "float32[64, 4]", 64),
    "guarded": ("float32[blocks, 64]", "float32[64]", 64),
    "copied": ("float32[blocks, 64]", "float32[128]", 64),
    "matrices": ("int32[blocks, 32]", "int32[32, 4]", 32),
    "own_output": ("float32[blocks, 64]", "float32[blocks, 64]", 64),
    "masked": ("float32[blocks, 64]", "float32[blocks, 64]", 64),
}
"""Kernels with what a proof leaves to the checks: output, input, threads."""
BLOCKS = 3


@functools.cache
def kernel(name: str, file: str = "covered.cu", slip: int = 0, strided: bool = False):
    return wb.load_cuda(HERE / file, macros={"SLIP": slip} if slip else {}, device="sim", strided=strided)[name]


@functools.cache
def proof(name: str):
    if name == "turned":
        return wb.prove(kernel("turned", "kernels.cu"), **TURNED)
    if name == "picked":
        return wb.prove(kernel("picked"), **PICKED)
    if name == "counts":
        args = {"bins": "int32[2]", "x": "int32[64]", "out": "float32[64]"}
        return wb.prove(kernel("counts"), grid=1, block=64, args=args, run=False)
    out, x, threads = LEFT[name]
    return wb.prove(kernel(name), grid="blocks", block=threads, args={"out": out, "x": x}, facts="blocks < 2**20")


def checked(name, grid, block, args, file="covered.cu", slip=0, strided=False, **more):
    one = kernel(name, file, slip, strided)
    return wb.check_kernel(one, grid=grid, block=block, args=args, proof=proof(name), **more)


def turned(rows=40, cols=23, grid=None, out=None, x=None, slip=0, block=(16, 16), **more):
    x = torch.rand(rows, cols) if x is None else x
    out = torch.zeros(cols, rows) if out is None else out
    grid = (-(-cols // 16), -(-rows // 16)) if grid is None else grid
    return checked("turned", grid, block, [out, x, rows, cols], "kernels.cu", slip, **more), out, x


def test_a_launch_that_keeps_the_preconditions_is_covered():
    report, out, x = turned()
    use = report.launch.proof
    assert (use.refused, use.whole, use.sizes) == ("", True, {"rows": 40, "cols": 23})
    assert report.launch.shadow_bytes == 0
    assert report.ok
    assert torch.equal(out, x.T)
    assert "proof: proved are bounds, races and barriers." in str(report)
    assert "uninitialised reads" in report._repr_html_()


def overlapping():
    memory = torch.zeros(4000)
    return {"x": memory[:920].view(40, 23), "out": memory[400:1320].view(23, 40)}


def shorter():
    return {"x": torch.zeros(40 * 23 - 1)}


def misaligned():
    return {"x": torch.zeros(40 * 23 + 1)[1:].view(40, 23)}


BROKEN = {
    "grid off by one": (lambda: {"grid": (3, 3)}, "the grid is (3, 3, 1), not (2, 3, 1)"),
    "grid too small": (lambda: {"grid": (2, 2)}, "the grid is (2, 2, 1), not (2, 3, 1)"),
    "other block": (lambda: {"block": (16, 8)}, "the block is (16, 8, 1), not (16, 16, 1)"),
    "overlapping tensors": (overlapping, "x and out overlap"),
    "one element too few": (shorter, "x has 3,676 bytes, not 3,680"),
    "misaligned": (misaligned, "x does not begin at a multiple of 16 bytes"),
    "other PTX": (lambda: {"slip": 2}, "it is about other PTX"),
    "strict": (lambda: {"strict": True}, "strict checks, statistics and recordings see every access"),
    "columns apart": (lambda: {"x": torch.zeros(40, 46)[:, ::2], "strided": True}, "x is not contiguous memory"),
    "a size beyond its bound": (lambda: {"rows": 40, "cols": 0, "grid": (1, 3)}, "cols is 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_launch_that_breaks_a_precondition_is_checked_in_full(name):
    make, words = BROKEN[name]
    given = make()
    report, *_ = turned(**given)
    assert report.launch.proof.refused == words
    assert f"proof: checked in full, as the proof does not cover this: {words}" in str(report)
    assert report.launch.shadow_bytes > 0 or not given.get("cols", 1)
    assert [one.kind for one in report.findings] == [one.kind for one in turned(**given)[0].findings]


def own_output(grid=3, block=64):
    """A thread for each element of out, in three blocks of 64."""
    return checked("own_output", grid, block, [torch.zeros(3, 64), torch.rand(3, 64), 1])


def vectors(first=0):
    x = torch.rand(64 * 4 + first)[first:].view(64, 4)
    return checked("vectors", 2, 64, [torch.zeros(2, 64, 4), x, 1])


FAULTS = {
    "a size": (lambda: turned(rows=41, x=torch.rand(40, 23))[0], "x has 3,680 bytes, not 3,772", "out-of-bounds"),
    "a tensor's size": (lambda: turned(**shorter())[0], "x has 3,676 bytes, not 3,680", "out-of-bounds"),
    "grid": (lambda: own_output(grid=4), "the grid is (4, 1, 1), not (3, 1, 1)", "out-of-bounds"),
    "block": (lambda: own_output(block=128), "the block is (128, 1, 1), not (64, 1, 1)", "global race"),
    "data": (lambda: picked([4, 2, 0, 1, 5]), "elements of index are not 0 <= v < rows, distinct", "out-of-bounds"),
    "alignment": (lambda: vectors(first=1), "x does not begin at a multiple of 16 bytes", "misaligned"),
    "tensors apart": (lambda: turned(**overlapping())[0], "x and out overlap", "global race"),
    "the PTX": (lambda: turned(slip=1)[0], "it is about other PTX", "shared race"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_a_broken_precondition_lets_in_is_found(name):
    run, words, kind = FAULTS[name]
    report = run()
    assert report.launch.proof.refused == words
    assert kind in {one.kind for one in report.findings}


def test_what_is_covered_is_not_looked_at():
    """A false proof hides a race."""
    wrong = kernel("turned", "kernels.cu", 1)
    assert wb.prove(wrong, **TURNED).accesses is None
    family = Family(wrong.compiled, **TURNED)
    made = family.specification()
    execution = Execution(family.module, family.kernel.name, made, Effort(10**8))
    execution.run()
    false = replace(proof("turned"), accesses=certificate(wrong.compiled, made, execution, []))
    args = {"grid": (2, 3), "block": (16, 16), "args": [torch.zeros(23, 40), torch.rand(40, 23), 40, 23]}
    assert "shared race" in {one.kind for one in wb.check_kernel(wrong, **args).findings}
    assert "shared race" not in {one.kind for one in wb.check_kernel(wrong, **args, proof=false).findings}


def test_a_launch_on_elements_of_a_ring_is_checked_in_full():
    arguments = [torch.zeros(23, 40), torch.rand(40, 23), 40, 23]
    report = machine_kernel(kernel("turned", "kernels.cu").compiled).launch(
        (2, 3), (16, 16), arguments, checks=True, exact=True, proved=proof("turned").covered
    )
    assert report.proof.refused == "its floats are elements of a ring"
    assert report.shadow_bytes


def picked(index):
    return checked("picked", 1, 64, [torch.zeros(5), torch.arange(5.0), torch.tensor(index, dtype=torch.int32), 5, 5])


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ([4, 2, 0, 1, 3], ""),
        ([4, 2, 0, 1, 5], "elements of index are not 0 <= v < rows, distinct"),
        ([4, -1, 0, 1, 3], "elements of index are not 0 <= v < rows, distinct"),
        ([4, 2, 2, 1, 3], "elements of index are not 0 <= v < rows, distinct"),
    ],
)
def test_facts_about_elements_are_compared(index, words):
    report = picked(index)
    assert report.launch.proof.refused == words
    assert report.ok == (min(index) >= 0 and max(index) < 5)


@pytest.mark.parametrize(
    ("starts", "lengths", "kept"),
    [
        ([0, 2, 3], [2, 1, 4], True),
        ([3, 0, 2], [4, 2, 1], True),
        ([0, 2, 3], [3, 1, 4], False),
        ([1, 1, 3], [1, 1, 4], False),
        ([1, 1, 3], [0, 1, 4], True),
        ([0, 9, 5], [6, 1, 1], False),
    ],
)
def test_elements_apart_by_lengths_are_compared(starts, lengths, kept):
    """`x` holds the lengths, as bits of floats."""
    accesses = proof("picked").accesses
    (fact,) = accesses.elements
    apart = replace(fact, text="apart by x", condition=("true",), distinct=False, apart="x")
    stated = replace(proof("picked"), accesses=replace(accesses, elements=(apart,)))
    x, index = torch.tensor(lengths, dtype=torch.int32).view(torch.float32), torch.tensor(starts, dtype=torch.int32)
    args = [torch.zeros(3), x, index, 3, 3]
    report = wb.check_kernel(kernel("picked"), grid=1, block=64, args=args, proof=stated)
    assert report.launch.proof.refused == ("" if kept else "elements of index are not apart by x")


@pytest.mark.parametrize("all_written", [True, False])
@pytest.mark.parametrize("name", LEFT)
def test_what_a_proof_leaves_is_found_as_in_full_checks(name, all_written):
    assert proof(name).ok, proof(name)
    uninitialised = [0] if name == "own_output" else []

    def run(**more):
        tensors = [tensor(one) for one in LEFT[name][:2]]
        report = wb.check_kernel(
            kernel(name), grid=BLOCKS, block=LEFT[name][2], args=[*tensors, int(all_written)],
            uninitialised=uninitialised, **more,
        )  # fmt: skip
        return report, tensors[0]

    (full, expected), (covered, out) = run(), run(proof=proof(name))
    assert covered.launch.proof.whole
    assert covered.launch.shadow_bytes == 0
    assert covered.findings == full.findings
    assert bool(full.findings) != all_written
    assert covered.notes == full.notes
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


def tensor(text: str) -> torch.Tensor:
    dtype, _, sizes = text.rstrip("]").partition("[")
    shape = [BLOCKS if one.strip() == "blocks" else int(one) for one in sizes.split(",")]
    return torch.arange(torch.Size(shape).numel()).to(getattr(torch, dtype)).view(shape)


@pytest.mark.parametrize("all_written", [True, False])
def test_an_array_with_atomics_stays_with_the_checks(all_written):
    found = []
    for given in ({}, {"proof": proof("counts")}):
        args = [torch.zeros(2, dtype=torch.int32), torch.arange(64, dtype=torch.int32), torch.zeros(64)]
        found.append(wb.check_kernel(kernel("counts"), grid=1, block=64, args=[*args, int(all_written)], **given))
    full, part = found
    assert not part.launch.proof.refused
    assert not part.launch.proof.whole
    assert "bins were checked" in str(part)
    assert part.findings == full.findings
    assert bool(full.findings) != all_written


def test_what_a_proof_may_rely_on_is_compared_with_launches():
    """A new kind of fact or precondition needs its comparison in `workbench.ptx.covering`, and then its name here."""
    compared = {"arguments", "block", "data", "facts", "grid", "repeats", "shared_bytes", "sizes", "tensors"}
    others = {"arena", "launches", "maps", "stand_ins", "stated"}  # kernels with tensor maps are not covered
    assert {one.name for one in fields(Specification)} == compared | others
    of_data = {"apart", "condition", "count", "distinct", "free", "length", "signed", "size", "tensor", "text", "value"}
    assert {one.name for one in fields(DataFact)} == of_data


def test_a_proof_that_proves_nothing_is_refused():
    unknown = wb.prove(kernel("turned", "kernels.cu", 1), **TURNED)
    with pytest.raises(wb.WorkbenchError, match="a proof that covers the accesses of some array"):
        wb.check_kernel(kernel("turned", "kernels.cu"), grid=1, block=1, args=[], proof=unknown)


def sampled(grid, sample, all_written=1):
    """Check `scalars`, whose blocks write 128 elements each, on a sample of blocks."""
    x, out = torch.rand(128), torch.zeros(grid, 128)
    report = checked("scalars", grid, 64, [out, x, all_written], sample=sample)
    rows = torch.cat([x.view(8, 16).T.reshape(-1)[:64], x[3].expand(64)])
    return report, [block for block in range(grid) if torch.equal(out[block], rows)], out


def test_a_sample_of_blocks_with_the_corners_runs_where_all_is_proved():
    report, right, out = sampled(200, 8)
    assert report.ok
    assert {0, 199} < {*right}
    assert 8 <= len(right) == report.launch.blocks_run <= 10
    assert not out[[block for block in range(200) if block not in right]].any()
    assert f"{len(right)} of 200 blocks ran; the others wrote no results." in str(report)


def test_a_sample_finds_what_no_proof_has():
    report, *_ = sampled(200, 8, all_written=0)
    assert {one.kind for one in report.findings} == {"uninitialised shared read"}


def test_a_grid_that_is_not_larger_than_the_sample_runs_in_full():
    report, right, _ = sampled(6, 8)
    assert len(right) == 6
    assert str(report).endswith("All blocks ran.")


def test_no_sample_of_a_launch_that_a_proof_does_not_cover_as_a_whole():
    report, out, x = turned(grid=(3, 3), sample=2)
    assert torch.equal(out, x.T)
    assert report.launch.proof.refused
    args = [torch.zeros(2, dtype=torch.int32), torch.arange(64, dtype=torch.int32), torch.zeros(64), 1]
    part = wb.check_kernel(kernel("counts"), grid=1, block=64, args=args, proof=proof("counts"), sample=1)
    assert str(part).endswith("All blocks ran.")
    with pytest.raises(wb.WorkbenchError, match="a number of blocks, with a proof="):
        wb.check_kernel(kernel("counts"), grid=1, block=64, args=args, sample=4)


@pytest.mark.parametrize(("name", "runs"), [("scalars", 1), ("masked", 2), ("counts", 2)])
def test_a_second_order_is_left_out_where_a_proof_covers_all_and_no_lane_sees_another(name, runs, monkeypatch):
    orders = []
    run = PtxKernel.run
    monkeypatch.setattr(PtxKernel, "run", lambda self, launch: orders.append(launch.options) or run(self, launch))
    if name == "counts":
        args = [torch.zeros(2, dtype=torch.int32), torch.arange(64, dtype=torch.int32), torch.zeros(64), 1]
        checked(name, 1, 64, args)
    else:
        checked(name, BLOCKS, 64, [*map(tensor, LEFT[name][:2]), 1])
    assert len(orders) == runs
