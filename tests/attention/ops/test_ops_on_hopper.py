"""The ops' Triton variants as Triton compiles them for sm_90, where `tl.dot` is wgmma and a descriptor is TMA."""

from __future__ import annotations

import pytest
from example_ops import OPS
from sampling import long_if

from workbench.launch.sim import Simulator
from workbench.toolchain.triton_aot import reachable
from workbench.tuning.measuring.measure import evaluate

VARIANTS = [(op.name, variant.name) for op in OPS.values() for variant in op.variants if variant.language == "triton"]
EVERY_RUN = {("causal_attention", "triton_descriptors"), ("paged_attention", "triton_grouped")}
# A product of a warp group has 64 rows; of the query heads that share a KV head there are 16 at most.
OTHER_PRODUCTS = dict.fromkeys(
    (("paged_attention", "triton_grouped"), ("paged_attention", "triton_descriptors")), "mma.sync"
)


@pytest.mark.parametrize(("op", "variant"), [long_if(one not in EVERY_RUN, *one, id=" ".join(one)) for one in VARIANTS])
def test_a_triton_variant_on_sm_90(op: str, variant: str) -> None:
    made = OPS[op].variant(variant)
    fields = {"layout": "nhd"} if "nhd" in made.layouts[:1] else {}
    case = OPS[op].case(None, **fields, **({"kv_cache_dtype": "nvfp4"} if made.needs else {}))
    config = made.default_config(case.problem(arch="sm_90"))
    trial = evaluate(made, config, case, Simulator(arch="sm_90"))
    assert trial.outcome == "ok", trial.message
    assert trial.prediction
    products = OTHER_PRODUCTS.get((op, variant), "wgmma.mma_async")
    problem = case.problem(config, arch="sm_90")
    for step, kernel in zip(made.steps, made.kernels(config, problem, "sm_90", machine_code=False), strict=True):
        written = "".join(function.src for function in reachable(step.function))
        assert (products in kernel.ptx) == ("tl.dot(" in written), kernel.name
        described = step.constants(config, problem).get("DESCRIPTORS", "tensor_descriptor(" in written)
        assert ("cp.async.bulk.tensor" in kernel.ptx) == described, kernel.name
