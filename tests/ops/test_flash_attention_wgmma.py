"""Causal attention for Hopper: values on a grid of sizes, architecture, memory facts, machine code, wrong kernels."""

import dataclasses
import itertools
import re

import pytest
import torch
from mutation import Mutant, caught, with_text
from sampling import named
from test_flash_attention import inputs, of_sizes

import workbench
from workbench.attention import causal_attention
from workbench.attention.ops.causal_attention import Case, case
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT
from workbench.errors import ArgumentError, ConfigurationError
from workbench.ptx import Program
from workbench.tuning import tune

ARCH = "sm_90"
SMALL = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2}
SIZES = (
    "lengths", "one tile", "a token past a tile", "a token short of two tiles", "one token", "the newest token",
    "a cached prefix", "queries across tiles", "a group of 8", "128 in bfloat16", "256",
)  # fmt: skip
CONFIGURATIONS = [
    pytest.param(config, head_size, id="-".join(map(str, (*config.values(), head_size))))
    for config, head_size in itertools.product(VARIANT.all_configurations(), (64, 128, 256))
    if not VARIANT.broken(config, Case("", 1, 1, head_size, 200, dtype="float16").problem(arch=ARCH))
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
    one = Case("tiles", 2, 1, head_size, tokens, num_queries=70, num_seqs=1, dtype="bfloat16", lse=True)
    verdict = judge(VARIANT, config, one, checks=True, arch=ARCH)
    assert verdict.ok, verdict


def test_in_whatever_order():
    """Copies late or early, the first warp first or the last: the same to the last bit, and nothing is found."""
    one = Case("order", 2, 1, 64, 300, num_seqs=1, dtype="float16")
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
    out = causal_attention(query, key, value, scale=scale, variant="cuda_wgmma", config=SMALL)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


@pytest.mark.long
def test_rows_past_2_to_the_31_elements(judge):
    """Tokens 2**26 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    one = Case("far", 2, 1, 64, 40, num_seqs=1, dtype="float16")
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
    case = Case("small", 1, 1, 64, 70, num_seqs=1, dtype="float16")
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
    """Not one: of the output on its way through shared memory, which has the swizzle of the queries there."""
    shared = [line for line in traced.report.lines if line.requests and line.space == "shared"]
    assert {line.text.split(".")[0] for line in shared} >= {"st", "ld"}
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared)


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
    problem = Case("code", 2, 1, head_size, 200, dtype=dtype).problem(arch=ARCH)
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
        problem = Case("defaults", 4, 2, head_size, 512, dtype=dtype).problem(arch=ARCH)
        VARIANT.check(VARIANT.default_config(problem), problem)


def test_each_rule_is_named():
    base = case("tiles").problem(arch=ARCH)
    good = VARIANT.default_config(base)
    assert not VARIANT.broken(good, base)
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
    assert {rule.name for rule in VARIANT.restrictions} == set(broken)
    for name, (changes, sizes) in broken.items():
        found = VARIANT.broken({**good, **changes}, dataclasses.replace(base, **sizes))
        assert name in {one.name for one in found}


# -- wrong kernels ------------------------------------------------------------------------------------------------

HEADER = "common/hopper.cuh"
MUTANTS = (
    Mutant("queries of the first block", "first_row + i / PARTS * GROUP_ROWS, head", "i / PARTS * GROUP_ROWS, head"),
    Mutant("queries of the first group", "first_row + i / PARTS * GROUP_ROWS, head", "first_row, head"),
    Mutant("queries of the first head", "* GROUP_ROWS, head, seq,", "* GROUP_ROWS, 0, seq,"),
    Mutant("wrong KV head", "kv_head = head / group", "kv_head = head % group"),
    Mutant("keys of the first sequence", "start, kv_head, seq, full", "start, kv_head, 0, full"),
    Mutant("keys for values", "copy(values + stage * TILE, value,", "copy(values + stage * TILE, key,"),
    Mutant("keys of the first tokens", "key, tile * BLOCK_N, keys", "key, 0, keys"),
    Mutant("padding of values kept", "padding = left < BLOCK_N &&", "padding = false &&"),
    Mutant("padding cleared a row late", "left * COLUMNS)[i / PARTS]", "(left + 1) * COLUMNS)[i / PARTS]"),
    Mutant("padding cleared before it came", "wait(last_values, 0);", ""),
    Mutant("padding cleared a row early", "left * COLUMNS)[i / PARTS]", "(left - 1) * COLUMNS)[i / PARTS]"),
    Mutant("clearing not seen by products", "fence_async();", ""),
    Mutant("stages of keys not awaited", "wait(keys_empty[stage], parity ^ 1);", ""),
    Mutant("stages of values not awaited", "wait(values_empty[stage], parity ^ 1);", ""),
    Mutant("keys not awaited", "wait(keys_full[stage], parity);", ""),
    Mutant("values not awaited", "wait(values_full[before], parity_before);", ""),
    Mutant("queries not awaited", "wait(queries_full, 0);", ""),
    Mutant("last values not awaited", "wait(values_full[stage], parity);\n", ""),
    Mutant("a consumer that does not count", "init(keys_empty[stage], NUM_CONSUMERS)", "init(keys_empty[stage], 1)"),
    Mutant("keys free too early", "wait_for_products<1>();", "wait_for_products<2>();"),
    Mutant("values free too early",
           "wait_for_products<0>();\n      if (tells) arrive(values", "if (tells) arrive(values"),
    Mutant("registers in use", "open_products();\n      multiply_keys(stage);", "multiply_keys(stage);"),
    Mutant("parity not turned", "stage = 0, parity ^= 1;\n      wait(keys", "stage = 0;\n      wait(keys"),
    Mutant("sums of the tile before", "step % 4 * 2, step > 0)", "step % 4 * 2, 1)"),
    Mutant("one step of the head", "descriptor(own_queries + step / 4 * QUERY_PART) + step % 4 * 2",
           "descriptor(own_queries + step / 4 * QUERY_PART)"),
    Mutant("scale missing", "factor = scale * LOG2_E", "factor = LOG2_E"),
    Mutant("base not changed", "factor = scale * LOG2_E", "factor = scale"),
    Mutant("mask missing", "if (on_diagonal) {", "if (false) {"),
    Mutant("mask a token late", "i / 4 * 8 + i % 2 > seen", "i / 4 * 8 + i % 2 > 1 + seen"),
    Mutant("mask a token early", "i / 4 * 8 + i % 2 > seen", "i / 4 * 8 + i % 2 >= seen"),
    Mutant("one mask for both rows", "> seen + i / 2 % 2 * 8)", "> seen)"),
    Mutant("diagonal of the block", "- 1 > position + consumer * GROUP_ROWS;", "- 1 > position + BLOCK_M - 1;"),
    Mutant("causal from the first token", "position = seq_len - query_len + first_row;", "position = first_row;"),
    Mutant("last tile skipped", "(position + num_rows + BLOCK_N - 1) / BLOCK_N", "(position + num_rows) / BLOCK_N"),
    Mutant("lengths of another sequence", "seq_lens[seq]", "seq_lens[0]"),
    Mutant("query lengths ignored", "query_lens ? query_lens[seq] : num_queries", "num_queries"),
    Mutant("maximum of one lane", "new_max = max_over_lanes<1, 4>(new_max);", ""),
    Mutant("maximum not kept", "max_score[half] = new_max;", ""),
    Mutant("sum not rescaled", "sum[half] *= rescale[half];", ""),
    Mutant("output not rescaled", "out[i] *= rescale[i / 2 % 2];", ";"),
    Mutant("rescaled by the other row", "rescale[i / 2 % 2]", "rescale[1 - i / 2 % 2]"),
    Mutant("weights of one tile", "      pack_weights();\n    }\n", "    }\n"),
    Mutant("values of one step", "stage * TILE + step * 16 * COLUMNS", "stage * TILE"),
    Mutant("parts of a head exchanged", "(TILE_BYTES >> 4) << 16", "(2 * TILE_BYTES >> 4) << 16", header=HEADER),
    Mutant("sum of one lane", "sum_over_lanes<1, 4>(sum[half])", "sum[half]"),
    Mutant("not divided", "__fdividef(1.f, total)", "1.f"),
    Mutant("logarithm without the maximum", "(max_score[half] + __log2f(total))", "__log2f(total)"),
    Mutant("logarithm to base 2", "__log2f(total)) * LN_2", "__log2f(total))"),
    Mutant("logarithm of padding", "row < valid_rows ? (max", "true ? (max"),
    Mutant("output of padding", "row < valid_rows ? pair : 0u", "pair"),
    Mutant("rows past the end written", "if (row < rows_to_write)\n", "if (true)\n"),
    Mutant("logarithms past the end", "lane % 4 == 0 && row < rows_to_write", "lane % 4 == 0"),
    Mutant("logarithms that nobody wants", "if (lse && lane", "if (lane"),
    Mutant("no order in a warp's output", "  __syncwarp();\n  constexpr", "  constexpr"),
)  # fmt: skip

# More tiles than stages, padding in both, a group, two KV heads; two parts of a head; no logarithm.
RUNS = [
    (Case("lengths", 4, 2, 64, 240, num_seqs=3, num_queries=150, query_lens=(150, 1, 33), seq_lens=(230, 88, 64),
          dtype="float16", lse=True), SMALL),
    (Case("parts", 2, 1, 128, 210, num_seqs=2, num_queries=140, dtype="bfloat16", lse=True), SMALL),
    (Case("no logarithm", 2, 1, 64, 70, num_seqs=1, dtype="float16"), SMALL),
]  # fmt: skip


@pytest.mark.parametrize("mutant", named(MUTANTS))
@pytest.mark.sampled(len(MUTANTS))
def test_mutant_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(VARIANT, mutant, RUNS, judge, tmp_path, arch=ARCH)
    assert ok, seen


@pytest.mark.long
def test_the_right_kernel_passes_what_catches_the_mutants(judge, tmp_path):
    copy = with_text(VARIANT, VARIANT.source.read_text(), tmp_path)
    for one, config in RUNS:
        verdict = judge(copy, config, one, checks=True, arch=ARCH)
        assert verdict.ok, verdict
