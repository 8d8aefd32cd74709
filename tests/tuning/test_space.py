"""The constrained space is what brute force finds, and says why a point is not in it."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

pytest.importorskip("hypothesis", reason='no Hypothesis: python -m pip install -e ".[test]"')

import numpy as np
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ArgumentError, ConfigurationError
from workbench.ops.variant import Restriction
from workbench.tuning import Space

PARAMETERS = {"A": (1, 2, 3, 4, 6), "B": (1, 2, 4), "C": (0, 1), "D": (8, 16, 32)}

RULES = {
    "two": lambda c, p: c["A"] % c["B"] == 0,
    "one": lambda c, p: c["D"] != 16,
    "short circuit": lambda c, p: c["C"] == 0 or c["A"] * c["D"] <= 48,
    "get": lambda c, p: c.get("B") < 4 and c.get("NONE", 1) == 1,
    "in": lambda c, p: "A" in c and "NONE" not in c,
    "all": lambda c, p: sum(c.values()) % 3 != 0,
    "as keywords": lambda c, p: (lambda A, B, C, D: A + D > B)(**c),
    "equal": lambda c, p: c != {"A": 2, "B": 1, "C": 1, "D": 8},
    "merged": lambda c, p: (c | {"A": 1})["B"] + ({"E": 3} | c)["D"] < 30,
    "as text": lambda c, p: len(repr(c)) % 7 != 0,
    "forgiving": lambda c, p: _forgiving(c),
    "by value": lambda c, p: c["B"] > 1 if c["A"] > 2 else c["D"] < 32 or (c["C"] == 1 and c["B"] == 4),
    "of the problem": lambda c, p: p["page"] in (None, c["D"]),
    "nothing": lambda c, p: True,
}


def _forgiving(config) -> bool:
    try:
        return config["A"] > 1
    except Exception:
        return False


def restriction(name: str) -> Restriction:
    return Restriction(name, f"rule {name}", RULES[name])


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(RULES)), unique=True, max_size=5),
    parameters=st.lists(st.sampled_from(sorted(PARAMETERS)), min_size=4, max_size=4, unique=True),
    page=st.sampled_from([None, 8, 32]),
)
def test_enumeration_is_brute_force(names, parameters, page):
    domain = {name: PARAMETERS[name] for name in parameters}
    rules = [restriction(name) for name in names]
    problem = {"page": page}
    expected = [
        config
        for config in (dict(zip(domain, values, strict=True)) for values in itertools.product(*domain.values()))
        if all(rule.holds(config, problem) for rule in rules)
    ]
    space = Space(domain, rules, lambda config: problem)
    assert list(space) == expected
    assert len(space) == len(expected)
    assert sum(space.rejected.values()) == space.raw_size - len(expected)
    for at, config in enumerate(expected):
        assert space.index(config) == at
        assert not space.explain(config)


def test_rules_over_too_many_combinations_for_a_table_and_slabs(monkeypatch):
    monkeypatch.setattr("workbench.tuning.search.space._TABLE_LIMIT", 5)
    monkeypatch.setattr("workbench.tuning.search.space._SLAB", 7)
    rules = [restriction("two"), restriction("all"), restriction("one")]
    space = Space(PARAMETERS, rules)
    brute = [dict(zip(PARAMETERS, values, strict=True)) for values in itertools.product(*PARAMETERS.values())]
    assert list(space) == [config for config in brute if all(rule.holds(config, None) for rule in rules)]


def test_explain_names_what_is_wrong():
    space = Space(PARAMETERS, [restriction("two"), restriction("one")])
    good = {"A": 2, "B": 2, "C": 0, "D": 8}
    assert space.explain(good) == ()
    assert space.explain({**good, "B": 4, "D": 16}) == ("two: rule two", "one: rule one")
    assert "C" in space.explain({"A": 2, "B": 2, "D": 8})[0]
    assert "not a parameter" in space.explain({**good, "E": 1})[0]
    assert "5 is not one of 1, 2, 4" in space.explain({**good, "B": 5})[0]
    with pytest.raises(ConfigurationError, match="two"):
        space.index({**good, "B": 4})


def test_neighbours_step_over_what_is_restricted():
    space = Space(PARAMETERS, [restriction("one")])
    here = {"A": 2, "B": 1, "C": 0, "D": 8}
    near = space.neighbours(here)
    assert {"A": 2, "B": 1, "C": 0, "D": 32} in near, "16 is restricted, so 32 is next to 8"
    assert {"A": 1, "B": 1, "C": 0, "D": 8} in near
    assert len(near) == 5
    assert all(config in space and sum(config[n] != here[n] for n in here) == 1 for config in near)
    assert len(space.neighbours(here, adjacent=False)) == 4 + 2 + 1 + 1


def test_a_million_points_are_enumerated_by_what_their_rules_read():
    parameters = {name: tuple(range(1, 11)) for name in "ABCDEF"}
    calls = Counter()

    def rule(name, holds):
        return Restriction(name, name, lambda c, p: calls.update([name]) or holds(c))

    rules = [
        rule("A % B == 0", lambda c: c["A"] % c["B"] == 0),
        rule("C * D <= 12", lambda c: c["C"] * c["D"] <= 12),
        rule("D + E + F == 12", lambda c: c["D"] + c["E"] + c["F"] == 12),
    ]
    space = Space(parameters, rules)
    assert space.raw_size == 1_000_000
    expected = 27 * sum(c * d <= 12 and d + e + f == 12 for c, d, e, f in itertools.product(range(1, 11), repeat=4))
    assert len(space) == len(space.sample(10**6, random.Random(0))) == expected
    assert sum(calls.values()) < 1500, "each rule once for each combination of what it reads"


def test_an_empty_space_says_which_rules_leave_nothing():
    space = Space({"A": (1, 3)}, [Restriction("even", "A % 2 == 0", lambda c, p: c["A"] % 2 == 0)])
    assert len(space) == 0
    assert "even (A % 2 == 0) takes 2" in space.explain_emptiness()
    with pytest.raises(ArgumentError, match="different values"):
        Space({"A": ()})
    with pytest.raises(ArgumentError, match="different values"):
        Space({"A": (1, 1)})


@pytest.mark.parametrize("values", [([1, 2], [3]), tuple(np.arange(1, 4)), np.arange(1, 4)])
def test_values_that_no_store_could_keep_are_refused(values):
    with pytest.raises(ArgumentError, match=r"space\['A'\].*plain Python values"):
        Space({"A": values})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda c, p: c["NUM_THREAD"] > 1, "KeyError: 'NUM_THREAD', for {}"),
        (lambda c, p: 64 % (c["A"] - 3) == 0, "ZeroDivisionError.* for {'A': 3}"),
    ],
)
def test_a_rule_that_fails_is_named_with_the_configuration(rule, message):
    space = Space({"A": (1, 3), "B": (1, 2)}, [Restriction("threads", "enough of them", rule)])
    with pytest.raises(ArgumentError, match=rf"restriction 'threads' \(enough of them\): got {message}.*A, B"):
        len(space)


def test_space_of_a_variant_holds_for_every_case():
    variant = toy.scale_variant()
    one = Space.of(variant, toy.ToyCase(count=4096))
    both = Space.of(variant, toy.ToyCase(count=4096), toy.ToyCase(count=96))
    assert len(both) < len(one)
    assert all(config in one for config in both)
    assert [dict(config) for config in one] == variant.configurations(toy.ToyCase(count=4096).problem())
    wide = {"VEC_SIZE": 4, "NUM_THREADS": 128, "STRIDED": 0, "MODE": 0}
    assert one.explain(wide) == ("not 4 x 128: VEC_SIZE * NUM_THREADS < 512",)
    assert Space.of(variant, toy.ToyCase(layout="other")).rejected["supported"] == 18


def test_nothing_to_tune_is_a_space_of_one():
    assert list(Space({})) == [{}]
