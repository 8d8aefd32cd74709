"""Causal attention for Hopper: far rows, other GPUs, tuning and machine code."""

import itertools
import re

import pytest
import torch
from test_flash_attention_one_architecture import configurations

import workbench
from workbench.attention.ops.causal_attention import CausalAttentionCase
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT
from workbench.errors import ArgumentError
from workbench.tuning import tune

pytestmark = pytest.mark.usefixtures("own_home")
ARCH = "sm_90"
CONFIGURATIONS = configurations(VARIANT, ARCH)


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


def test_it_is_not_tuned_for_another_gpu():
    with pytest.raises(ArgumentError, match="arch is sm_90, which alone has wgmma"):
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
