"""The exact column of a verdict: the same computation, another one within the tolerance, no answer."""

from __future__ import annotations

import json

from exact_ops import row_softmax

import workbench as wb
from workbench.judge import Judgement


def test_the_answer_stands_beside_a_right_verdict() -> None:
    found = wb.check(row_softmax, exact=True, elsewhere=False, seeds=[1])
    assert found.ok  # it fails nobody
    answers = {one.variant: one.exact for one in found}
    assert answers["same"].startswith("the same computation in 210 of 210 elements (2 draws")
    assert answers["eps"].startswith("not the same computation: 210 elements differ, first out[0, 0]")
    assert answers["library"].startswith("no answer: it ")
    assert f"exact: {answers['same']}" in str(found)
    assert Judgement.from_dict(json.loads(found.to_json())) == found


def test_without_it_nothing_is_said() -> None:
    found = wb.check(row_softmax, variants="same", elsewhere=False, seeds=[1])
    assert [one.exact for one in found] == [""]


def test_an_op_whose_cases_have_their_answer_is_compared_with_its_formula_in_torch() -> None:
    """The reference is then the op's first variant in plain torch."""
    found = wb.check("contiguous_attention", exact=True, variants="cuda_register_softmax", elsewhere=False, seeds=[1])
    assert [one.exact[:50] for one in found] == ["the same computation in 4,096 of 4,096 elements (2"]


def test_whole_numbers_are_not_compared() -> None:
    found = wb.check("copy_blocks", exact=True, variants="cuda_vectors", elsewhere=False, seeds=[1])
    assert [one.exact for one in found] == ["no answer: its outputs are no floats"]
