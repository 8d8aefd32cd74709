"""Causal attention for Blackwell: values on a grid of sizes, rescaling, architecture, memory facts and machine code."""

import pytest
import torch
from one_architecture import (
    SIZES,
    assert_no_bank_conflicts,
    assert_rules,
    configurations,
    own_home,  # noqa: F401
    refilled,
)
from test_flash_attention import inputs, of_sizes

import workbench
from workbench.attention import causal_attention
from workbench.attention.ops.causal_attention import CausalAttentionCase, case
from workbench.attention.ops.causal_attention.cuda_tcgen05 import VARIANT
from workbench.errors import ConfigurationError
from workbench.ptx import Program

ARCH = "sm_100"
SMALL = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2, "RESCALE_ABOVE": 0}
CONFIGURATIONS = configurations(VARIANT, ARCH)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.sampled(11)
def test_sizes(name, judge):
    one = of_sizes(name)
    verdict = judge(VARIANT, VARIANT.default_config(one.problem(arch=ARCH)), one, checks=True, arch=ARCH)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("config", "head_size"), CONFIGURATIONS)
@pytest.mark.long
def test_configurations(config, head_size, judge):
    verdict = judge(VARIANT, config, refilled(config, head_size), checks=True, arch=ARCH)
    assert verdict.ok, verdict


def test_in_whatever_order():
    """Copies late or early, the first warp first or the last, strictly: the same to the last bit, nothing is found."""
    one = CausalAttentionCase("order", 1, 1, 64, 300, num_seqs=1, num_queries=270, dtype="float16")
    config = {**SMALL, "BLOCK_M": 256}  # the groups of a block see more or fewer tiles
    problem, found = one.problem(arch=ARCH), []
    kernel = VARIANT.kernels(config, problem, ARCH, machine_code=False)[0]
    for order in ({}, {"last_warp_first": True}, {"copies_early": True}, {"strict": True}):
        tensors = one.inputs(problem)
        launch = VARIANT.launch(config, problem, tensors)
        report = Program.from_text(kernel.ptx)[kernel.name].launch(
            launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, checks=True, **order
        )
        assert report.findings == []
        found.append(tensors.output)
    assert all(torch.equal(one, found[0]) for one in found)
    assert one.check(found[0]).ok


@pytest.mark.parametrize("scale", [-0.5, 30.0, 0.0])
@pytest.mark.parametrize("slack", [0, 8])
@pytest.mark.sampled(6)
def test_any_scale_and_strides(scale, slack):
    """Take views through the op's function; with a large scale a row's maximum grows by more than the slack."""
    query, key, value = (side[:1] for side in inputs(queries=20))
    expected = causal_attention(query.double(), key.double(), value.double(), scale=scale)
    config = {**SMALL, "RESCALE_ABOVE": slack}
    out = causal_attention(query, key, value, scale=scale, variant="cuda_tcgen05", config=config)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


def test_slack():
    """A row's output is rescaled where its maximum grows by more than the slack allows, and right either way."""
    one = CausalAttentionCase("growing", 1, 1, 64, 300, num_seqs=1, num_queries=40, dtype="float16", lse=True)
    problem, executed = one.problem(arch=ARCH), []
    for slack in (0, 8):
        config = {**SMALL, "RESCALE_ABOVE": slack}
        kernel = VARIANT.kernels(config, problem, ARCH, machine_code=False)[0]
        tensors = one.inputs(problem)
        launch = VARIANT.launch(config, problem, tensors)
        report = Program.from_text(kernel.ptx)[kernel.name].launch(
            launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, checks=True, statistics=True
        )
        assert report.findings == []
        assert one.check(tensors.out).ok
        executed.append(sum(line.executions for line in report.lines if line.text.startswith("tcgen05.st")))
    assert executed[0] > executed[1] > 0


# -- its architecture ---------------------------------------------------------------------------------------------


def test_it_runs_on_its_architecture_alone():
    assert VARIANT.machine_arch(case("tiles").problem()) == ARCH
    assert workbench.compile("causal_attention", variant="cuda_tcgen05").arch == "sm_100a"
    rule = "arch is sm_100, which alone has tcgen05"
    for arch in ("sm_80", "sm_90", "sm_120"):
        with pytest.raises(ConfigurationError, match=rule):
            workbench.compile("causal_attention", variant="cuda_tcgen05", arch=arch)


@pytest.mark.long
def test_checked():
    found = workbench.check("causal_attention", variants="cuda_tcgen05", cases=["tiles", "padded"])
    assert found.ok, found


# -- memory facts and machine code --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced():
    return workbench.trace("causal_attention", "tiles", variant="cuda_tcgen05")


def test_no_bank_conflicts(traced):
    assert_no_bank_conflicts(traced)


@pytest.mark.parametrize(("config", "head_size"), CONFIGURATIONS)
@pytest.mark.sampled(len(CONFIGURATIONS))
def test_machine_code(config, head_size):
    """No spills, and all tensor memory that the blocks of a multiprocessor allocate is there."""
    problem = CausalAttentionCase("code", 2, 1, head_size, 200, dtype="bfloat16").problem(arch=ARCH)
    kernel = VARIANT.compile(config, problem, ARCH)
    assert kernel.spill_bytes == 0
    assert kernel.static_shared_bytes + kernel.dynamic_shared_bytes <= 227 * 1024
    blocks = kernel.occupancy.blocks_per_sm
    assert blocks >= 1
    columns = config["BLOCK_M"] // 128 * (config["BLOCK_N"] + head_size)
    assert blocks * 2 ** (columns - 1).bit_length() <= 512
    assert kernel.sass.count("UTCHMMA") >= (head_size + config["BLOCK_N"]) // 16


def test_each_rule_is_named():
    broken = {
        "arch": ({}, {"arch": "sm_90"}),
        "16-byte rows": ({}, {"alignment": 8}),
        "head size": ({}, {"head_size": 80}),
        "groups": ({"BLOCK_M": 64}, {}),
        "whole tiles": ({"BLOCK_N": 96}, {}),
        "tensor memory": ({}, {"head_size": 256}),
        "slack": ({"RESCALE_ABOVE": 15}, {}),
        "shared memory": ({"NUM_STAGES": 4}, {"head_size": 128}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    assert_rules(VARIANT, ARCH, broken)


def test_defaults_are_legal():
    for head_size in (64, 128, 256):
        problem = CausalAttentionCase("defaults", 4, 2, head_size, 512, dtype="float16").problem(arch=ARCH)
        VARIANT.check(VARIANT.default_config(problem), problem)
