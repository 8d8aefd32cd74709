"""Sizes, configurations and checks that the variants of causal attention for one architecture have in common."""

import dataclasses
import itertools

import pytest

from workbench.attention.ops.causal_attention import CausalAttentionCase, case

SIZES = (
    "lengths", "one tile", "a token past a tile", "a token short of two tiles", "one token", "the newest token",
    "a cached prefix", "queries across tiles", "a group of 8", "128 in bfloat16", "256",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def own_home(tmp_path_factory):
    """No tuned table of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        yield


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


def assert_no_bank_conflicts(traced):
    """Assert that no access to shared memory has one: the output there has the swizzle of the queries."""
    shared = [line for line in traced.report.lines if line.requests and line.space == "shared"]
    assert {line.text.split(".")[0] for line in shared} >= {"st", "ld"}
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared)


def assert_rules(variant, arch, broken):
    """Assert that ``broken`` has each rule's name, with changes of the defaults and of the problem that break it."""
    base = case("tiles").problem(arch=arch)
    good = variant.default_config(base)
    assert not variant.broken(good, base)
    assert {rule.name for rule in variant.restrictions} == set(broken)
    for name, (changes, sizes) in broken.items():
        found = variant.broken({**good, **changes}, dataclasses.replace(base, **sizes))
        assert name in {one.name for one in found}
