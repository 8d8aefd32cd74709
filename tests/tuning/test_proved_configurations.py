"""``tune(prove=True)``: configurations that a proof refutes are not run, and the report says why."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.errors import ArgumentError

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

SOURCE = r"""
extern "C" __global__ void scale(float *out, const float *x, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
    if (i < n)
        for (int j = 0; j < VEC; ++j) out[i + j] = 2 * x[i + j];
}
"""


def scaling(name, **more):
    """Twice its argument, VEC elements a thread, of which the first alone is guarded."""
    op = wb.op(lambda x: 2 * x, name=name)
    op.case("small", x=wb.randn("n"), n=256)
    op.cuda(SOURCE, grid="cdiv(x.shape[0], 64 * VEC)", block=64, args=("out", "x", "x.shape[0]"), **more)
    return op


@pytest.fixture
def run(tmp_path):
    def tuned(op, **options):
        return wb.tune(op, device="sim", store=tmp_path / "store.sqlite", record=False, **options)

    return tuned


def test_a_refuted_configuration_is_not_timed_and_the_report_says_why(run):
    op = scaling("own_scaling", tune={"VEC": (1, 2)})
    assert run(op).outcomes == {"ok": 2}
    found = run(op, prove=True)
    assert (found.outcomes, found.new, found.reused) == ({"ok": 1, "refuted": 1}, 1, 1)
    (wrong,) = (one for one in found.trials if not one.ok)
    assert (wrong.config, wrong.seconds) == ({"VEC": 2}, None)
    assert wrong.message.startswith("scale: line 5 reads x out of bounds (n = ")
    assert found.best.config == {"VEC": 1}
    assert any("for all sizes of the op: 1 proved, 1 refuted, 0 unknown" in note for note in found.notes)
    assert 'refuted: scale {"VEC":2}: scale: line 5 reads x' in str(found)
    assert run(op).outcomes == {"ok": 2}  # the store has no row of it


def test_rules_of_the_legal_configurations_are_facts_of_the_proof(run):
    op = scaling("own_ruled_scaling", tune={"VEC": (2,)}, where="x.shape[0] % VEC == 0")
    found = run(op, prove=True)
    assert found.outcomes == {"ok": 1}
    assert any("1 proved, 0 refuted, 0 unknown" in note for note in found.notes)


def test_what_proofs_cannot_take_is_refused(run):
    with pytest.raises(ArgumentError, match=r"prove: got True, for .* of paged_attention; allowed: variants in CUDA"):
        run("paged_attention", quick=True, prove=True)
