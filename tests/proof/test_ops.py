"""``wb.prove`` of an op: launches from its declarations, with the sizes of a case as symbols; and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.cli import main

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

FILE = Path(__file__).parent / "own_ops.py"


@pytest.fixture(scope="module")
def ops():
    from workbench.ops.own.files import load_op

    return {name: load_op(f"{FILE}:{name}") for name in ("scaled", "product")}


@pytest.mark.parametrize(("variant", "status"), [
    ("right", "proved"), ("one_too_many", "refuted"), ("triton", "proved"), ("triton_wide", "refuted"),
])  # fmt: skip
def test_the_variants_of_an_op(ops, variant, status):
    proofs = wb.prove(ops["scaled"], variants=variant)
    (proof,) = proofs
    assert proof.status == status, proof
    assert "cols" in proof.conditions
    assert proofs.exit_status == {"proved": 0, "refuted": 1}[status]


def test_sizes_that_are_numbers_become_symbols_as_far_as_the_reference_lets_them(ops):
    (proof,) = wb.prove(ops["product"])
    assert proof.ok, proof
    assert "n24, n40, n56 >= 1" in proof.conditions


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
