"""``wb.prove`` of an op: launches from its declarations, with the sizes of a case as symbols; and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import workbench as wb
from workbench.cli import main
from workbench.ops.tensors.data_facts import check_facts

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from workbench.proof.of_ops import OpFamilies

FILE = Path(__file__).parent / "own_ops.py"


@pytest.fixture(scope="module")
def ops():
    from workbench.ops.files import load_op

    return {name: load_op(f"{FILE}:{name}") for name in ("scaled", "product", "picked")}


@pytest.mark.parametrize(("variant", "status"), [
    ("right", "proved"), ("one_too_many", "refuted"), ("triton", "proved"), ("triton_wide", "refuted"),
])  # fmt: skip
def test_the_variants_of_an_op(ops, variant, status):
    proofs = wb.prove(ops["scaled"], variants=variant)
    (proof,) = proofs
    assert proof.status == status, proof
    assert "cols" in proof.conditions
    assert proofs.exit_status == {"proved": 0, "refuted": 1}[status]


def test_symbols_have_the_names_that_a_declaration_gives_to_sizes(ops):
    op = ops["product"]
    named, unnamed = (OpFamilies(op, op.variant(one), op.quick_case, None, ()) for one in ("product", "triton_ring"))
    assert named.shapes == {"x": ("m", "k"), "y": ("k", "n"), "out": ("m", "n")}
    assert unnamed.shapes["out"] == ("n32", "n64")


@pytest.mark.long  # six seconds
def test_sizes_that_are_numbers_become_symbols_as_far_as_the_reference_lets_them(ops):
    (proof,) = wb.prove(ops["product"], variants="product")
    assert proof.ok, proof
    assert "k, m, n >= 1" in proof.conditions


@pytest.mark.long  # nine seconds; a ring in CUDA runs always
def test_a_ring_of_copies_that_triton_makes_is_proved_for_every_number_of_rounds(ops):
    (proof,) = wb.prove(ops["product"], variants="triton_ring")
    assert proof.ok, proof
    kernel = ops["product"].variant("triton_ring").kernels({"TILE": 16}, ops["product"].quick_case.problem())[0]
    assert "cp.async" in kernel.ptx


def test_facts_of_an_op_are_used_by_proofs_and_checked_by_runs(ops):
    op = ops["picked"]
    (proof,) = wb.prove(op)
    assert proof.ok, proof
    assert "index: 0 <= v < x.shape[0]" in proof.preconditions
    x, index = torch.randn(4, 8), torch.tensor([0, 3, 1], dtype=torch.int32)
    torch.testing.assert_close(op(x, index, variant="picked"), x[index.long()])
    index[1] = 4
    with pytest.raises(wb.WorkbenchError, match=r"index: got element 1 is 4; allowed: elements v with 0 <= v <"):
        op(x, index, variant="picked")


@pytest.mark.parametrize(("fact", "right", "wrong"), [
    ("distinct", [3, 1, 2], [3, 1, 3]),
    ("distinct or -1", [-1, 1, -1], [1, 1, -1]),
    ("-1 <= v < 4 and v != 2", [3, -1, 0], [3, 2, 0]),
    ("v == 2 * i", [0, 2, 4], [0, 2, 5]),
    ("0 <= v, distinct", [5, 0, 1], [5, -1, 0]),
])  # fmt: skip
def test_facts_are_checked_on_elements(fact, right, wrong):
    check_facts({"x": fact}, {"x": torch.tensor(right)})
    with pytest.raises(wb.WorkbenchError, match="x: got element"):
        check_facts({"x": fact}, {"x": torch.tensor(wrong)})


@pytest.mark.parametrize(("starts", "lengths", "wrong"), [
    ([0, 3, 3, 9], [3, 0, 2, 1], None), ([5, 0], [2, 5], None), ([5, 0], [2, 6], 0), ([0, 1, 4], [9, 1, 1], 1),
])  # fmt: skip
def test_elements_are_apart_by_lengths(starts, lengths, wrong):
    arguments = {"x": torch.tensor(starts), "lengths": torch.tensor(lengths)}
    if wrong is None:
        check_facts({"x": "apart by lengths"}, arguments)
        return
    with pytest.raises(wb.WorkbenchError, match=f"x: got element {wrong} is"):
        check_facts({"x": "0 <= v, apart by lengths"}, arguments)


def test_a_fact_of_no_argument_is_refused():
    with pytest.raises(wb.WorkbenchError, match="'indx'"):
        wb.op(lambda x, index: x, name="nothing", facts={"indx": "distinct"})


def test_the_command_prints_the_verdict_and_its_exit_status():
    runner = CliRunner()
    done = runner.invoke(main, ["prove", f"{FILE}:scaled", "--variant", "one_too_many", "--json"])
    assert done.exit_code == 1, done.output
    document = json.loads(done.output)
    assert document["schema"] == "workbench-prove/1"
    (example,) = document["proofs"][0]["counterexamples"]
    assert example["confirmed"]
    assert runner.invoke(main, ["prove", f"{FILE}:scaled", "--variant", "right"]).exit_code == 0


def test_without_z3_the_error_says_how_to_get_it(ops, monkeypatch):
    from workbench.proof import solver

    monkeypatch.setattr(solver, "z3", None)
    with pytest.raises(wb.WorkbenchError, match=r"pip install .*proof"):
        wb.prove(ops["scaled"])


def test_the_package_works_without_z3(monkeypatch):
    monkeypatch.setitem(sys.modules, "z3", None)
    for name in [one for one in sys.modules if one.startswith("workbench.proof")]:
        monkeypatch.delitem(sys.modules, name)
    import workbench.proof

    with pytest.raises(wb.WorkbenchError, match="Z3, which is not installed"):
        workbench.proof.prove("scaled")


def test_the_judge_checks_what_proofs_of_an_op_leave(ops):
    proofs = wb.prove(ops["scaled"], variants="right")
    chosen = ["right", "one_too_many", "triton"]
    found = wb.check(ops["scaled"], variants=chosen, seeds=1, elsewhere=False, proof=proofs).verdicts
    right, wrong, other = found
    assert [one.outcome for one in found] == ["ok", "out_of_bounds", "ok"]
    assert right.notes[0].startswith("scaled, proof: proved are bounds, races and barriers.")
    assert wrong.notes == ()
    assert other.notes[0].endswith("checked in full, as the proof does not cover this: it is about other PTX")
