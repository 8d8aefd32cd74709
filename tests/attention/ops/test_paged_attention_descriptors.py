"""Pages by TMA: values, features, how often a page is asked for, and rules."""

import dataclasses

import pytest
from sampling import long_if
from test_paged_attention_grouped import FEATURES, LENGTHS

from workbench.attention.ops.paged_attention import case
from workbench.attention.ops.paged_attention.triton_descriptors import VARIANT
from workbench.launch.sim import Simulator

SMALL = {"BLOCK_SIZE": 16, "TILE_TOKENS": 16, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 3}


@pytest.mark.long
@pytest.mark.parametrize("name", FEATURES)
def test_features(name, judge):
    one = case("small", dtype="bfloat16", layout="hnd", seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(VARIANT, SMALL, one, checks=True, arch="sm_90")
    assert verdict.ok, verdict


@pytest.mark.parametrize("layout", ["nhd", pytest.param("hnd", marks=pytest.mark.long)])
def test_a_page_is_one_copy(layout):
    """Of keys and of values, for each KV head; its bytes come once, whatever the query heads."""
    one = case("small", dtype="float16", layout=layout, seq_lens=(130, 64), num_heads=8, num_kv_heads=2, head_size=64)
    problem = one.problem(SMALL, arch="sm_90")
    (kernel,) = VARIANT.kernels(SMALL, problem, "sm_90", machine_code=False)
    assert "cp.async.cg" not in kernel.ptx
    tensors = one.inputs(problem)
    report = VARIANT.run(SMALL, problem, tensors, Simulator(arch="sm_90"), statistics=True)
    assert one.check(tensors.out).ok
    copies = [line for line in report.lines if "cp.async.bulk.tensor" in line.text and line.space == "global"]
    pages = 2 * (-(-130 // 16) + 64 // 16)  # of both KV heads
    assert sum(line.bytes for line in copies) == 2 * pages * 16 * 64 * 2


def test_each_rule_is_named():
    base = case("small", layout="nhd").problem(arch="sm_90")
    assert not VARIANT.broken(SMALL, base)
    broken = {
        "TMA": ({}, {"arch": "sm_89"}),
        "a tile is a page": ({"TILE_TOKENS": 32}, {}),
        "features": ({}, {"features": ("int8",)}),
        "products": ({"BLOCK_SIZE": 8, "TILE_TOKENS": 8}, {"block_size": 8}),
    }
    for name, (changes, sizes) in broken.items():
        rules = VARIANT.broken({**SMALL, **changes}, dataclasses.replace(base, **sizes))
        assert name in {rule.name for rule in rules}


@pytest.mark.parametrize(
    ("head_size", "config"),
    [(64, {}), long_if(True, 256, {"num_stages": 7}), long_if(True, 128, {"BLOCK_SIZE": 64, "TILE_TOKENS": 64})],
)
def test_shared_memory_is_no_more_than_the_rule_counts(head_size, config):
    config = SMALL | config
    problem = case("small", head_size=head_size, layout="nhd").problem(config, arch="sm_90")
    (kernel,) = VARIANT.kernels(config, problem, "sm_90", machine_code=False)
    (rule,) = [rule for rule in VARIANT.restrictions if rule.name == "shared memory"]
    assert rule.holds(config, problem)
    assert kernel.dynamic_shared_bytes <= VARIANT.footprint(config, problem).shared_bytes
