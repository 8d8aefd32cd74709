"""Arguments of launches are found by the kernel's own parameters; what nothing is declared for is named."""

from __future__ import annotations

import dataclasses
import re

import pytest

from workbench import ops
from workbench.attention.ops.copy_blocks import case
from workbench.errors import ArgumentError
from workbench.ops.values import Restriction

CUDA, TRITON = (ops.variant("copy_blocks", name) for name in ("cuda_vectors", "triton_vectors"))


def changed(variant, **fields):
    (step,) = variant.steps
    return dataclasses.replace(variant, steps=(dataclasses.replace(step, **fields),))


def without(variant, name):
    return changed(variant, arguments={key: value for key, value in variant.steps[0].arguments.items() if key != name})


def launch(variant):
    one = case("small")
    problem = one.problem()
    return variant.launch(variant.default_config(problem), problem, one.inputs(problem))


@pytest.mark.parametrize("variant", [CUDA, TRITON], ids=lambda variant: variant.name)
def test_a_parameter_that_nothing_is_declared_for_is_named(variant):
    assert len(launch(variant).arguments) == {"cuda": 8, "triton": 7}[variant.language]
    with pytest.raises(ArgumentError, match=r"a parameter 'target_places'.*source_places"):
        launch(without(variant, "target_places"))


def test_the_order_is_the_kernels_own(tmp_path):
    source = tmp_path / CUDA.source.name
    text = CUDA.source.read_text()
    swapped = re.sub(r"(const Byte\* sources), (Byte\* targets)", r"\2, \1", text)
    assert swapped != text
    source.write_text(swapped)
    there = launch(dataclasses.replace(CUDA, source=source)).arguments
    here = launch(CUDA).arguments
    assert [one.shape for one in there[:2]] == [one.shape for one in here[1::-1]]
    assert there[0].dtype == here[1].dtype
    assert len(there) == len(here)


def test_a_parameter_of_triton_needs_a_type():
    types = TRITON.steps[0].types(case("small").problem())
    lacking = changed(TRITON, types=lambda problem: {key: kind for key, kind in types.items() if key != "pairs"})
    problem = case("small").problem()
    with pytest.raises(ArgumentError, match=r"copy_pages\(\): got a parameter 'pairs'"):
        lacking.compile(lacking.default_config(problem), problem)


def test_a_rule_is_its_formula():
    rule = Restriction.of("fits", "cdiv(page_bytes, CHUNK) <= 4 and is_power_of_two(num_warps)", "four chunks")
    problem = case("small").problem()
    assert (rule.name, str(rule)) == ("fits", f"fits: {rule.rule}")
    assert rule.rule.startswith("cdiv(page_bytes, CHUNK) <= 4")
    assert rule.rule.endswith(": four chunks")
    assert problem.page_bytes == 2560
    assert rule.holds({"CHUNK": 640, "num_warps": 4}, problem)
    assert not rule.holds({"CHUNK": 639, "num_warps": 4}, problem)
    assert not rule.holds({"CHUNK": 640, "num_warps": 3}, problem)


def test_a_rule_is_an_expression_like_those_of_own_ops():
    problem = case("small").problem()
    with pytest.raises(ArgumentError, match="which has Lambda"):
        Restriction.of("fits", "(lambda: True)()")
    with pytest.raises(ArgumentError, match="'page_byte"):
        Restriction.of("fits", "page_byte > 0").holds({}, problem)
    rule = Restriction.of("fits", lambda page_bytes: {"a": 1}["b"] > page_bytes)
    with pytest.raises(ArgumentError, match="KeyError: 'b'"):
        rule.holds({}, problem)
