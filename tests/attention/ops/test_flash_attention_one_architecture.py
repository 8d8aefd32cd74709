"""Causal attention for Hopper and for Blackwell: values on a grid of sizes, orders, strides, rules, banks."""

import functools
import itertools

import pytest
import torch
from declarations import assert_rules
from test_flash_attention import inputs, of_sizes

import workbench
from workbench.attention import causal_attention
from workbench.attention.ops.causal_attention import CausalAttentionCase, case
from workbench.attention.ops.causal_attention.cuda_tcgen05 import VARIANT as BLACKWELL
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT as HOPPER
from workbench.errors import ConfigurationError
from workbench.ptx import Program

pytestmark = pytest.mark.usefixtures("own_home")
ARCHS = {HOPPER: "sm_90", BLACKWELL: "sm_100"}
SMALL = {
    HOPPER: {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2},
    BLACKWELL: {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2, "RESCALE_ABOVE": 0},
}
SIZES = (
    "lengths", "one tile", "a token past a tile", "a token short of two tiles", "one token", "the newest token",
    "a cached prefix", "queries across tiles", "a group of 8", "128 in bfloat16", "256",
)  # fmt: skip
BOTH = pytest.mark.parametrize("variant", ARCHS, ids=str)


def configurations(variant, arch):
    """Return the legal configurations for each head size, as parameters."""
    return [
        pytest.param(config, head_size, id="-".join(map(str, (*config.values(), head_size))))
        for config, head_size in itertools.product(variant.all_configurations(), (64, 128, 256))
        if not variant.broken(config, CausalAttentionCase("", 1, 1, head_size, 200, dtype="float16").problem(arch=arch))
    ]


def refilled(config, head_size):
    """Return a case with so many tiles that every stage is filled again."""
    tokens = config["BLOCK_N"] * config["NUM_STAGES"] + 90
    return CausalAttentionCase("tiles", 2, 1, head_size, tokens, num_queries=70, num_seqs=1, dtype="bfloat16", lse=True)


@BOTH
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.sampled(11)
def test_sizes(variant, name, judge):
    one, arch = of_sizes(name), ARCHS[variant]
    verdict = judge(variant, variant.default_config(one.problem(arch=arch)), one, checks=True, arch=arch)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("variant", "config", "head_size"),
    [
        pytest.param(variant, *one.values, id=f"{variant}-{one.id}")
        for variant, arch in ARCHS.items()
        for one in configurations(variant, arch)
    ],
)
@pytest.mark.long
def test_configurations(variant, config, head_size, judge):
    verdict = judge(variant, config, refilled(config, head_size), checks=True, arch=ARCHS[variant])
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("variant", "config", "heads", "fields"),
    [
        (HOPPER, SMALL[HOPPER], (2, 1), {}),
        # the groups of a block see more or fewer tiles
        (BLACKWELL, {**SMALL[BLACKWELL], "BLOCK_M": 256}, (1, 1), {"num_queries": 270}),
    ],
    ids=["Hopper", "Blackwell"],
)
def test_in_whatever_order(variant, config, heads, fields):
    """Copies late or early, the first warp first or the last, strictly: the same to the last bit, nothing is found."""
    one, arch = CausalAttentionCase("order", *heads, 64, 300, num_seqs=1, dtype="float16", **fields), ARCHS[variant]
    problem, found = one.problem(arch=arch), []
    kernel = variant.kernels(config, problem, arch, machine_code=False)[0]
    for order in ({}, {"last_warp_first": True}, {"copies_early": True}, {"strict": True}):
        tensors = one.inputs(problem)
        launch = variant.launch(config, problem, tensors)
        report = Program.from_text(kernel.ptx)[kernel.name].launch(
            launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, checks=True, **order
        )
        assert report.findings == []
        found.append(tensors.output)
    assert all(torch.equal(one, found[0]) for one in found)
    assert one.check(found[0]).ok


@pytest.mark.parametrize("scale", [-0.5, 30.0, 0.0])
@pytest.mark.parametrize(
    ("variant", "changes"),
    [(HOPPER, {}), (BLACKWELL, {"RESCALE_ABOVE": 0}), (BLACKWELL, {"RESCALE_ABOVE": 8})],
    ids=["Hopper", "Blackwell", "slack"],
)
@pytest.mark.sampled(4)
def test_any_scale_and_strides(variant, changes, scale):
    """Take views through the op's function; with a large scale a row's maximum grows by more than the slack."""
    query, key, value = (side[:1] for side in inputs(queries=20))
    expected = causal_attention(query.double(), key.double(), value.double(), scale=scale)
    config = {**SMALL[variant], **changes}
    out = causal_attention(query, key, value, scale=scale, variant=variant.name, config=config)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


@pytest.mark.parametrize(
    ("variant", "compiled", "instructions", "others"),
    [
        (HOPPER, "sm_90a", "wgmma", ("sm_80", "sm_89", "sm_100", "sm_120")),
        (BLACKWELL, "sm_100a", "tcgen05", ("sm_80", "sm_90", "sm_120")),
    ],
    ids=["Hopper", "Blackwell"],
)
def test_it_runs_on_its_architecture_alone(variant, compiled, instructions, others):
    """Without a GPU it is compiled for that by itself; for another architecture it is refused with the reason."""
    assert variant.machine_arch(case("tiles").problem()) == ARCHS[variant]
    assert workbench.compile("causal_attention", variant=variant.name).arch == compiled
    rule = f"arch is {ARCHS[variant]}, which alone has {instructions}"
    for arch in others:
        with pytest.raises(ConfigurationError, match=rule):
            workbench.compile("causal_attention", variant=variant.name, arch=arch)


@BOTH
@pytest.mark.long
def test_checked(variant):
    found = workbench.check("causal_attention", variants=variant.name, cases=["tiles", "padded"])
    assert found.ok, found


@functools.cache
def traced(variant):
    return workbench.trace("causal_attention", "tiles", variant=variant.name)


@BOTH
def test_no_bank_conflicts(variant):
    """No access to shared memory has one: the output there has the swizzle of the queries."""
    shared = [line for line in traced(variant).report.lines if line.requests and line.space == "shared"]
    assert {line.text.split(".")[0] for line in shared} >= {"st", "ld"}
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared)


def test_bytes_on_hopper():
    """Queries once, keys and values once per block of queries that sees them, in whole sectors; no row that is none."""
    one = case("tiles")
    loads = [line for line in traced(HOPPER).report.lines if "cp.async.bulk.tensor" in line.text]
    row = 64 * 2
    inside = one.num_heads * row * (130 + 2 * (128 + 130))
    assert sum(line.bytes for line in loads) == sum(line.sectors for line in loads) * 32 == inside


@BOTH
@pytest.mark.parametrize("head_size", [64, 128, 256])
def test_defaults_are_legal(variant, head_size):
    for dtype in variant.dtypes:
        problem = CausalAttentionCase("defaults", 4, 2, head_size, 512, dtype=dtype).problem(arch=ARCHS[variant])
        variant.check(variant.default_config(problem), problem)


BROKEN = {
    "16-byte rows": ({}, {"alignment": 8}),
    "head size": ({}, {"head_size": 80}),
    "whole tiles": ({"BLOCK_N": 96}, {}),
    "shared memory": ({"NUM_STAGES": 4}, {"head_size": 128}),
    "grid": ({}, {"num_seqs": 70_000}),
}
BROKEN_ON = {
    HOPPER: {
        "arch": ({}, {"arch": "sm_80"}),
        "large heads": ({"BLOCK_M": 64}, {"head_size": 256}),
        "warp groups": ({"BLOCK_M": 96}, {}),
        "registers": ({"BLOCK_M": 192, "BLOCK_N": 128}, {"head_size": 128}),
    },
    BLACKWELL: {
        "arch": ({}, {"arch": "sm_90"}),
        "groups": ({"BLOCK_M": 64}, {}),
        "tensor memory": ({}, {"head_size": 256}),
        "slack": ({"RESCALE_ABOVE": 15}, {}),
    },
}


@BOTH
def test_each_rule_is_named(variant):
    base = case("tiles").problem(arch=ARCHS[variant])
    assert_rules(variant, variant.default_config(base), base, BROKEN | BROKEN_ON[variant])
