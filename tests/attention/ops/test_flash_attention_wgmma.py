"""Causal attention for Hopper: values on a grid of sizes, architecture, memory facts and machine code."""

import itertools
import re

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
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT
from workbench.errors import ArgumentError, ConfigurationError
from workbench.ptx import Program
from workbench.tuning import tune

ARCH = "sm_90"
SMALL = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2}
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
    """Copies late or early, the first warp first or the last: the same to the last bit, and nothing is found."""
    one = CausalAttentionCase("order", 2, 1, 64, 300, num_seqs=1, dtype="float16")
    problem, found = one.problem(arch=ARCH), []
    kernel = VARIANT.kernels(SMALL, problem, ARCH, machine_code=False)[0]
    for order in ({}, {"last_warp_first": True}, {"copies_early": True}):
        tensors = one.inputs(problem)
        launch = VARIANT.launch(SMALL, problem, tensors)
        report = Program.from_text(kernel.ptx)[kernel.name].launch(
            launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, checks=True, **order
        )
        assert report.findings == []
        found.append(tensors.output)
    assert all(torch.equal(one, found[0]) for one in found)
    assert not found[0].isnan().any()


@pytest.mark.parametrize("scale", [-0.5, 30.0, 0.0])
@pytest.mark.sampled(3)
def test_any_scale_and_strides(scale):
    """Take views through the op's function."""
    query, key, value = (side[:1] for side in inputs(queries=20))
    expected = causal_attention(query.double(), key.double(), value.double(), scale=scale)
    out = causal_attention(query, key, value, scale=scale, variant="cuda_wgmma", config=SMALL)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


@pytest.mark.long
def test_rows_past_2_to_the_31_elements(judge):
    """Tokens 2**26 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    one = CausalAttentionCase("far", 2, 1, 64, 40, num_seqs=1, dtype="float16")
    problem = one.problem(arch=ARCH)
    t = one.inputs(problem)
    storage = torch.empty(2**26 * 40, dtype=torch.float16)
    for at, name in enumerate(("query", "key", "value")):
        near = getattr(t, name)
        far = storage.as_strided(near.shape, (0, 128, 2**26, 1), 512 * at)
        setattr(t, name, far.copy_(near))
    VARIANT.run(VARIANT.default_config(problem), problem, t, workbench.launch.devices.simulator(ARCH))
    assert one.check(t.out).ok


# -- its architecture ---------------------------------------------------------------------------------------------


def test_it_runs_on_hopper_alone():
    """Without a GPU it is compiled for that by itself; for another architecture it is refused with the reason."""
    assert VARIANT.machine_arch(case("tiles").problem()) == ARCH
    assert workbench.compile("causal_attention", variant="cuda_wgmma").arch == "sm_90a"
    rule = "arch is sm_90, which alone has wgmma"
    for arch in ("sm_80", "sm_89", "sm_100", "sm_120"):
        with pytest.raises(ConfigurationError, match=rule):
            workbench.compile("causal_attention", variant="cuda_wgmma", arch=arch)
    with pytest.raises(ArgumentError, match=rule):
        tune("causal_attention", "tiles", variants="cuda_wgmma", device="sim", model="a100-sxm-80gb")


@pytest.mark.long
def test_compared_and_tuned():
    case = CausalAttentionCase("small", 1, 1, 64, 70, num_seqs=1, dtype="float16")
    found = workbench.compare("causal_attention", case, ["torch_naive", "cuda_wgmma"], device="sim", model="h100-sxm")
    assert found.all_correct
    assert found.trials[1].arch == ARCH
    run = tune(
        "causal_attention", case, variants="cuda_wgmma", device="sim", model="h100-sxm", budget=2, isolation="none",
        record=False,
    )  # fmt: skip
    assert [trial.outcome for trial in run.trials] == ["ok", "ok"]


@pytest.mark.long
def test_checked():
    found = workbench.check("causal_attention", variants="cuda_wgmma", cases=["tiles", "padded"])
    assert found.ok, found


# -- memory facts and machine code --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced():
    return workbench.trace("causal_attention", "tiles", variant="cuda_wgmma")


def test_no_bank_conflicts(traced):
    assert_no_bank_conflicts(traced)


def test_bytes(traced):
    """Queries once, keys and values once per block of queries that sees them, in whole sectors; no row that is none."""
    one = case("tiles")
    loads = [line for line in traced.report.lines if "cp.async.bulk.tensor" in line.text]
    row = 64 * 2
    inside = one.num_heads * row * (130 + 2 * (128 + 130))
    assert sum(line.bytes for line in loads) == sum(line.sectors for line in loads) * 32 == inside


@pytest.mark.parametrize(("config", "head_size"), CONFIGURATIONS)
@pytest.mark.parametrize("dtype", VARIANT.dtypes)
@pytest.mark.sampled(2 * len(CONFIGURATIONS))
def test_machine_code(config, head_size, dtype):
    """No spills, no products that the assembler has parted, and the softmax beneath the product with the values."""
    problem = CausalAttentionCase("code", 2, 1, head_size, 200, dtype=dtype).problem(arch=ARCH)
    kernel = VARIANT.compile(config, problem, ARCH)
    assert kernel.spill_bytes == 0
    assert kernel.registers == {64: 128, 128: 168, 192: 128}[config["BLOCK_M"]]
    assert kernel.static_shared_bytes + kernel.dynamic_shared_bytes <= 227 * 1024
    assert kernel.occupancy.blocks_per_sm >= 1
    steps, tokens = head_size // 16, config["BLOCK_N"] // 16
    order = re.findall(r"(WARPGROUP\.DEPBAR|HGMMA|MUFU\.EX2)", kernel.sass)
    assert [len(list(run)) for name, run in itertools.groupby(order) if name == "HGMMA"] == [
        steps, steps + tokens, tokens
    ]  # fmt: skip
    waits = [at for at, name in enumerate(order) if name == "WARPGROUP.DEPBAR"]
    assert len(waits) == 4
    assert order[waits[1] : waits[2]].count("MUFU.EX2") == config["BLOCK_N"] // 2 + 2


def test_defaults_are_legal():
    for head_size, dtype in itertools.product((64, 128, 256), VARIANT.dtypes):
        problem = CausalAttentionCase("defaults", 4, 2, head_size, 512, dtype=dtype).problem(arch=ARCH)
        VARIANT.check(VARIANT.default_config(problem), problem)


def test_each_rule_is_named():
    broken = {
        "arch": ({}, {"arch": "sm_80"}),
        "16-byte rows": ({}, {"alignment": 8}),
        "head size": ({}, {"head_size": 80}),
        "large heads": ({"BLOCK_M": 64}, {"head_size": 256}),
        "warp groups": ({"BLOCK_M": 96}, {}),
        "whole tiles": ({"BLOCK_N": 96}, {}),
        "registers": ({"BLOCK_M": 192, "BLOCK_N": 128}, {"head_size": 128}),
        "shared memory": ({"NUM_STAGES": 4}, {"head_size": 128}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    assert_rules(VARIANT, ARCH, broken)
