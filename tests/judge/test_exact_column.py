"""The exact column of a verdict: the same computation, another one within the tolerance, no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from exact_ops import row_softmax

import workbench as wb
from workbench.analysis.exact import compared
from workbench.attention.ops.paged_attention.cases import PagedAttentionCase
from workbench.judge import Judgement
from workbench.ops import registry
from workbench.ops.exact_runs import side_of


def test_the_answer_stands_beside_a_right_verdict() -> None:
    found = wb.check(row_softmax, exact=True, elsewhere=False, seeds=[1])
    assert found.ok  # it fails nobody
    answers = {one.variant: one.exact for one in found}
    assert answers["same"].startswith("the same computation in 210 of 210 elements (2 draws")
    assert answers["eps"].startswith("not the same computation: 210 elements differ, first out[0, 0]")
    assert answers["library"] == answers["same"]
    assert f"exact: {answers['same']}" in str(found)
    assert Judgement.from_dict(json.loads(found.to_json())) == found


def test_without_it_nothing_is_said() -> None:
    found = wb.check(row_softmax, variants="same", elsewhere=False, seeds=[1])
    assert [one.exact for one in found] == [""]


def test_an_op_whose_cases_have_their_answer_is_compared_with_its_formula_in_torch() -> None:
    """The reference is then the op's first variant in plain torch."""
    found = wb.check("contiguous_attention", exact=True, variants="cuda_register_softmax", elsewhere=False, seeds=[1])
    assert [one.exact[:50] for one in found] == ["the same computation in 4,096 of 4,096 elements (2"]


def test_a_difference_from_a_formula_of_bytes_is_no_answer() -> None:
    """A latent cache has fp8 codes, scales and bfloat16 numbers in its bytes, which the formula takes apart itself."""
    case = registry.get("mla_decode").case("fp8", seq_lens=(3, 1), num_heads=4)
    variant = registry.get("mla_decode").variant("cuda_latent_mma")
    config = variant.default_config(variant.machine_problem(case))
    formula = registry.get("mla_decode").variant("torch")
    found = compared(side_of(formula, config, case), side_of(variant, config, case))
    assert str(found).startswith("no answer: results differ, and torch computes with the bytes of ")


def test_whole_numbers_are_not_compared() -> None:
    found = wb.check("copy_blocks", exact=True, variants="cuda_vectors", elsewhere=False, seeds=[1])
    assert [one.exact for one in found] == ["no answer: its outputs are no floats"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("variant", "features", "answer"),
    [
        ("cuda_partitioned", {"kv_cache_dtype": "fp8_e4m3", "scales": "tensor"}, "the same computation in 512 of 512"),
        ("cuda_partitioned", {"kv_cache_dtype": "int8"}, "no answer: it computes with a float made of an integer's"),
        ("cuda_scaled_groups", {"kv_cache_dtype": "nvfp4"}, "the same computation in 512 of 512"),
        ("cuda_grouped_mma", {"soft_cap": 30.0}, "; not seen: what lies before tanh where an exponential follows"),
    ],
)
def test_right_kernels_of_every_cache_never_differ(variant: str, features: dict[str, Any], answer: str) -> None:
    case = PagedAttentionCase("short", num_heads=4, num_kv_heads=2, head_size=64, seq_lens=(1, 17), **features)
    [found] = wb.check("paged_attention", cases=[case], exact=True, variants=variant, elsewhere=False, seeds=[1])
    assert found.ok
    assert answer in found.exact
