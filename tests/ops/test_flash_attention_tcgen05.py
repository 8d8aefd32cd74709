"""Causal attention for Blackwell: values on a grid of sizes, rescaling, architecture, memory facts and machine code."""

import dataclasses
import itertools
import re

import pytest
import torch
from test_flash_attention import inputs, of_sizes

import workbench
from workbench.attention import causal_attention
from workbench.attention.ops.causal_attention import CausalAttentionCase, case
from workbench.attention.ops.causal_attention.cuda_tcgen05 import VARIANT
from workbench.errors import ArgumentError, ConfigurationError
from workbench.ptx import Program
from workbench.tuning import tune

ARCH = "sm_100"
SMALL = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2, "RESCALE_ABOVE": 0}
SIZES = (
    "lengths", "one tile", "a token past a tile", "a token short of two tiles", "one token", "the newest token",
    "a cached prefix", "queries across tiles", "a group of 8", "128 in bfloat16", "256",
)  # fmt: skip
CONFIGURATIONS = [
    pytest.param(config, head_size, id="-".join(map(str, (*config.values(), head_size))))
    for config, head_size in itertools.product(VARIANT.all_configurations(), (64, 128, 256))
    if not VARIANT.broken(config, CausalAttentionCase("", 1, 1, head_size, 200, dtype="float16").problem(arch=ARCH))
]


@pytest.fixture(autouse=True, scope="module")
def own_home(tmp_path_factory):
    """No tuned table of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.sampled(11)
def test_sizes(name, judge):
    one = of_sizes(name)
    verdict = judge(VARIANT, VARIANT.default_config(one.problem(arch=ARCH)), one, checks=True, arch=ARCH)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("config", "head_size"), CONFIGURATIONS)
@pytest.mark.long
def test_configurations(config, head_size, judge):
    """Of enough tiles that every stage is filled again."""
    tokens = config["BLOCK_N"] * config["NUM_STAGES"] + 90
    one = CausalAttentionCase("tiles", 2, 1, head_size, tokens, num_queries=70, num_seqs=1, dtype="bfloat16", lse=True)
    verdict = judge(VARIANT, config, one, checks=True, arch=ARCH)
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
    """Of views, through the op's function."""
    query, key, value = (side[:1] for side in inputs(queries=20))
    expected = causal_attention(query.double(), key.double(), value.double(), scale=scale)
    out = causal_attention(query, key, value, scale=scale, variant="cuda_tcgen05", config=SMALL)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


