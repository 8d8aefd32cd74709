"""The ops' Triton variants as Triton compiles them for sm_90, where `tl.dot` is wgmma."""

from __future__ import annotations

import pytest

from workbench.devices.sim import Simulator
from workbench.ops import OPS
from workbench.tuning.measure import evaluate

VARIANTS = [(op.name, variant.name) for op in OPS.values() for variant in op.variants if variant.language == "triton"]


@pytest.mark.parametrize(
    ("op", "variant"), [pytest.param(*one, marks=pytest.mark.sampled(4), id=" ".join(one)) for one in VARIANTS]
)
def test_a_triton_variant_on_sm_90(op: str, variant: str) -> None:
    made, layout = OPS[op].variant(variant), {"layout": "nhd"} if variant == "triton_grouped" else {}
    case = OPS[op].case(None, **layout)
    config = made.default_config(case.problem(arch="sm_90"))
    trial = evaluate(made, config, case, Simulator(arch="sm_90"))
    assert trial.outcome == "ok", trial.message
    assert trial.prediction
