"""Registers hold in the machine what a proof knows of them, in random programs."""

from __future__ import annotations

import pytest

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from random_values import compare

from workbench.proof import values
from workbench.proof.terms import Arena, Term, quotient, ratio, term

PROGRAMS = 25


def test_registers_of_random_programs_hold_what_a_proof_says():
    found = compare(range(PROGRAMS))
    assert not found.wrong, found.wrong[0]
    assert found.registers > 20_000
    of_one_lane = {*values._RULES, "setp", "cvt"} - {"shfl"}
    assert not of_one_lane - found.rules, "rules for instructions that no program needs"


@pytest.mark.long
@pytest.mark.parametrize("part", range(40))
def test_registers_of_1000_random_programs_hold_what_a_proof_says(part):
    found = compare(range(100 + part * PROGRAMS, 100 + (part + 1) * PROGRAMS))
    assert not found.wrong, found.wrong[0]


@pytest.mark.long
@pytest.mark.parametrize("rule", sorted(values._RULES.keys() - {"cvta"}))
def test_a_rule_that_gives_another_value_is_noticed(rule, monkeypatch):
    right = values._RULES[rule]

    def wrong(operation):
        value = right(operation)
        return value + 1 if isinstance(value, Term) and "pred" not in operation.parts else value

    monkeypatch.setitem(values._RULES, rule, wrong)
    assert compare(range(3 * PROGRAMS)).wrong


@pytest.mark.parametrize(("dividend", "divisor", "expected"), [(7, 2, 3), (-7, 2, 0), (7, 0, 0), (7, -1, 0)])
def test_a_quotient_by_a_term_that_becomes_a_number(dividend, divisor, expected):
    assert ratio(term(dividend), term(divisor)).constant == expected


def test_a_quotient_by_a_number_of_what_may_be_negative_stays_one():
    size = Arena().atom("param", "n", (), -8, 8)
    assert ratio(size, term(2)).atom.kind == "ratio"
    assert ratio(size * size, term(2)).atom.kind == "ratio"
    assert ratio(size + 8, term(2)) == quotient(size + 8, 2)
