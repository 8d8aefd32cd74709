"""The kernels of causal attention: values on a grid of sizes, strides, banks, bytes, machine code, gradients."""

import itertools
import math
from collections import Counter

import pytest
import torch
from declarations import assert_rules, judge_drawn
from sampling import long_if

import workbench
from workbench.attention import causal_attention, causal_attention_backward
from workbench.attention.ops.causal_attention import CausalAttentionCase, case
from workbench.attention.ops.causal_attention.api import OP
from workbench.attention.ops.causal_attention.cuda_mma import VARIANT as CUDA
from workbench.attention.ops.causal_attention.triton_descriptors import VARIANT as DESCRIPTORS
from workbench.attention.ops.causal_attention.triton_flash import VARIANT as TRITON
from workbench.attention.ops.causal_attention_backward import CausalAttentionBackwardCase
from workbench.attention.ops.causal_attention_backward.api import OP as BACKWARD
from workbench.attention.ops.causal_attention_backward.triton_flash import VARIANT as GRADIENTS
from workbench.errors import ArgumentError, ConfigurationError
from workbench.launch.sim import Simulator
from workbench.toolchain.sass_counts import counts_by_ptx_line

pytestmark = pytest.mark.usefixtures("own_home")

KERNELS = (CUDA, TRITON, DESCRIPTORS)
ARCHS = {DESCRIPTORS: "sm_90"}  # the others' is sm_80
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = {"BLOCK_M": 32, "BLOCK_N": 32, "NUM_STAGES": 2, "NUM_THREADS": 64}
LENGTHS = {"num_seqs": 4, "query_lens": (70, 1, 33, 0), "seq_lens": (70, 90, 64, 0), "num_queries": 70}

SIZES = {  # heads, KV heads, head size, tokens, then fields of the case
    "one tile": (4, 4, 64, 64, {}),
    "a token past a tile": (8, 2, 64, 65, {"dtype": "bfloat16"}),
    "a token short of two tiles": (4, 1, 64, 127, {"lse": True}),
    "one token": (2, 2, 64, 1, {"lse": True}),
    "the newest token": (8, 1, 64, 130, {"num_queries": 1}),
    "a cached prefix": (4, 1, 64, 200, {"num_queries": 40, "dtype": "bfloat16", "lse": True}),
    "queries across tiles": (2, 2, 64, 131, {"num_queries": 67}),
    "lengths": (4, 1, 64, 90, {**LENGTHS, "dtype": "bfloat16", "lse": True}),
    "a group of 8": (8, 1, 128, 130, {"lse": True}),
    "128 in bfloat16": (4, 2, 128, 100, {"dtype": "bfloat16"}),
    "16": (2, 2, 16, 90, {"lse": True}),
    "32": (2, 1, 32, 90, {"dtype": "bfloat16"}),
    "40": (2, 1, 40, 90, {**LENGTHS}),
    "72": (2, 1, 72, 130, {"lse": True}),
    "80": (3, 1, 80, 90, {"dtype": "bfloat16"}),
    "96": (2, 1, 96, 90, {}),
    "192": (2, 1, 192, 90, {**LENGTHS, "lse": True}),
    "256": (2, 1, 256, 90, {"dtype": "bfloat16", "lse": True}),
}


def of_sizes(name, kind=CausalAttentionCase):
    heads, kv_heads, head_size, tokens, fields = SIZES[name]
    return kind(name, heads, kv_heads, head_size, tokens, **{"num_seqs": 1, "dtype": "float16", **fields})


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.sampled(54)
def test_sizes(variant, name, judge):
    one = of_sizes(name)
    arch = ARCHS.get(variant, "sm_80")
    verdict = judge(variant, variant.default_config(one.problem(arch=arch)), one, checks=True, arch=arch)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.long
def test_sizes_of_gradients(name, judge):
    one = of_sizes(name, CausalAttentionBackwardCase)
    verdict = judge(GRADIENTS, GRADIENTS.default_config(one.problem()), one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize("variant", [*KERNELS, GRADIENTS], ids=str)
@pytest.mark.long
def test_random_legal_configurations(variant, judge):
    kind = CausalAttentionBackwardCase if variant is GRADIENTS else CausalAttentionCase

    def draw(rng, number):
        group, size, tokens = rng.choice((1, 4, 8)), rng.choice((32, 64, 128)), rng.choice((33, 128, 150))
        fields = {"num_seqs": 1, "dtype": rng.choice(variant.dtypes), "lse": True, "num_queries": rng.choice((33, 17))}
        return kind("random", group, 1, size, tokens, **fields)

    judge_drawn(variant, 30, draw, judge, arch=ARCHS.get(variant, "sm_80"))


# -- the op -------------------------------------------------------------------------------------------------------


def inputs(queries=70, tokens=90, dtype=torch.float16):
    """As a fused projection gives them: sequence, token, then query, key and value of each head."""
    generator = torch.Generator().manual_seed(0)
    fused = torch.randn(2, tokens, 8, 64, generator=generator, dtype=torch.float64).to(dtype)
    query, key, value = (part.transpose(1, 2) for part in fused.split((4, 2, 2), dim=2))
    return query[:, :, -queries:], key, value


@pytest.mark.parametrize(
    "variant", ["cuda_mma", *(long_if(True, name) for name in ("triton_flash", "triton_descriptors", "tuned"))]
)
def test_strides_lengths_and_the_logarithm(variant):
    """Of views, with NaN for padding; an element of lse is as exact as a sum in fp32."""
    query, key, value = inputs()
    exact = [side.double() for side in (query, key, value)]
    for lengths in ({}, {"seq_lens": torch.tensor([90, 33], dtype=torch.int32)}):
        expected = causal_attention(*exact, return_lse=True, **lengths)
        if lengths:
            key[1, :, 33:] = value[1, :, 33:] = torch.nan
            query[1, :, 33:] = torch.nan
        out, lse = causal_attention(query, key, value, variant=variant, return_lse=True, **lengths)
        torch.testing.assert_close(out.double(), expected[0], rtol=0, atol=2e-3)
        torch.testing.assert_close(lse.double(), expected[1], rtol=0, atol=4e-6)
        assert out.is_contiguous()
        if lengths:
            assert not out[1, :, 33:].any()
            assert (lse[1, :, 33:] == -torch.inf).all()


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.sampled(3)
def test_scores_of_several_hundred_and_any_scale(variant):
    query, key, value = inputs()
    for scale in (30.0, -0.5, 0.0):
        expected = causal_attention(query.double(), key.double(), value.double(), scale=scale)
        out = causal_attention(query, key, value, scale=scale, variant=variant.name)
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.sampled(3)
def test_later_tokens_have_no_influence(variant):
    query, key, value = inputs(queries=90)
    before = causal_attention(query, key, value, variant=variant.name)
    key[:, :, 20:] = value[:, :, 20:] = 100.0
    after = causal_attention(query, key, value, variant=variant.name)
    assert torch.equal(before[:, :, :20], after[:, :, :20])
    assert not torch.allclose(before[:, :, 20:], after[:, :, 20:])


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.sampled(3)
def test_rows_past_2_to_the_31_elements(variant):
    """Tokens 2**26 elements apart in memory that is never touched in between: 32-bit arithmetic would miss them."""
    one = CausalAttentionCase("far", 2, 1, 64, 40, num_seqs=1, dtype="float16")
    problem = one.problem(arch=ARCHS.get(variant, "sm_80"))
    t = one.inputs(problem)
    storage = torch.empty(2**26 * 40, dtype=torch.float16)
    for at, name in enumerate(("query", "key", "value")):
        near = getattr(t, name)
        far = storage.as_strided(near.shape, (0, 128, 2**26, 1), 512 * at)
        setattr(t, name, far.copy_(near))
    variant.run(variant.default_config(problem), problem, t, Simulator(arch=problem.arch))
    assert one.check(t.out).ok


def grads(dtype, lengths, **options):
    """Of a sum over output and lse with weights, through views."""
    query, key, value = (side.to(dtype).requires_grad_() for side in inputs(queries=40, tokens=50))
    out, lse = causal_attention(query, key, value, return_lse=True, **lengths, **options)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (out, lse)]
    loss = (out * weights[0]).sum() + (lse.masked_fill(lse == -torch.inf, 0.0) * weights[1]).sum()
    return torch.autograd.grad(loss, (query, key, value))


@pytest.mark.parametrize("variant", ["cuda_mma", long_if(True, "triton_flash")])
@pytest.mark.parametrize("lengths", [{}, {"seq_lens": torch.tensor([50, 33], dtype=torch.int32)}], ids=["all", "some"])
@pytest.mark.sampled(2)
def test_autograd(variant, lengths):
    """Beside autograd of the formula in float64; no further from it than twice that of the formula in float16."""
    exact, same = (grads(dtype, lengths) for dtype in (torch.float64, torch.float16))
    for got, expected, naive in zip(grads(torch.float16, lengths, variant=variant), exact, same, strict=True):
        assert (got.double() - expected).abs().max() <= 2 * (naive.double() - expected).abs().max() + 1e-5


@pytest.mark.long
def test_opcheck_and_compilation():
    given = [side[:, :, :20] for side in inputs()]
    with_gradients = [side.clone().requires_grad_() for side in given]
    torch.library.opcheck(OP.library_op(), (*with_gradients, 0.125, None, None, "triton_flash", None))
    found = OP.library_op()(*given, 0.125, None, None, "cuda_mma", None)
    torch.library.opcheck(BACKWARD.library_op(), (*given, *found, *found, 0.125, None, None, "triton_flash", None))

    def loss(*sides):
        return causal_attention(*(side + 0 for side in sides), variant="cuda_mma").float().sum() * 2

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    sides = [side.detach().requires_grad_() for side in given]
    expected, got = (torch.autograd.grad(function(*sides), sides) for function in (loss, compiled))
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.long
def test_compare():
    for op in ("causal_attention", "causal_attention_backward"):
        assert workbench.compare(op, "tiles", device="sim").all_correct


def test_no_queries():
    query, key, value = inputs()
    assert causal_attention(query[:, :, :0], key, value, variant="cuda_mma").shape == (2, 4, 0, 64)
    none = causal_attention(query[:, :, :0], key, value)
    gradients = causal_attention_backward(query[:, :, :0], key, value, none, none[..., 0].float(), none)
    assert [one.shape for one in gradients] == [(2, 4, 0, 64), key.shape, value.shape]
    assert not any(one.any() for one in gradients)


def lengths(*values):
    return torch.tensor(values, dtype=torch.int32)


BAD = {
    "too many tokens": ({"seq_lens": lengths(90, 91)}, "seq_lens[1]", "0 to 90"),
    "too many queries": ({"query_lens": lengths(71, 1)}, "query_lens[0]", "0 to 70"),
    "queries that are no tokens": (
        {"query_lens": lengths(70, 50), "seq_lens": lengths(90, 49)}, "query_lens[1]", r"at most seq_lens\[1\] = 49"
    ),
    "lengths of another number": ({"seq_lens": lengths(90)}, "seq_lens", "One entry per sequence"),
    "lengths in int64": ({"seq_lens": lengths(90, 90).long()}, "seq_lens", "int32"),
    "a dtype": ({"dtype": torch.float32}, "variant", "torch_naive, torch_blockwise, torch_sdpa"),
    "a configuration of torch": ({"variant": "torch_naive", "config": SMALL}, "config", "Name a kernel"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("variant", ["torch_sdpa", "cuda_mma"])
def test_refusals(what, variant):
    options, argument, message = BAD[what]
    options = {"variant": variant, **options}
    if "dtype" in options and variant == "torch_sdpa":
        return
    given = inputs(dtype=options.pop("dtype", torch.float16))
    with pytest.raises(ArgumentError, match=message) as caught:
        causal_attention(*given, **options)
    assert caught.value.argument == argument
    assert caught.value.remedy


def test_rows_that_are_not_aligned():
    query, key, value = inputs()
    apart = torch.zeros(2, 4, 70, 65, dtype=torch.float16)[..., 1:].copy_(query)
    assert torch.equal(causal_attention(apart, key, value), causal_attention(query, key, value))
    for refused in (apart, query.transpose(2, 3).contiguous().transpose(2, 3)):
        with pytest.raises(ConfigurationError, match="contiguous"):
            causal_attention(refused, key, value, variant="cuda_mma")


GIVEN = inputs(queries=20, tokens=20)
BAD_GRADIENTS = {
    "output": (lambda t: {"output": t["output"][:, :, 1:]}, "Pass it in this shape"),
    "lse": (lambda t: {"lse": t["lse"].half()}, "float32"),
    "d_output": (lambda t: {"d_output": t["d_output"].float()}, "float16"),
    "d_lse": (lambda t: {"d_lse": t["lse"][..., 0]}, "Pass it in this shape"),
    "query_lens": (lambda t: {"seq_lens": lengths(20, 20)}, "both lengths"),
}


@pytest.mark.parametrize("argument", BAD_GRADIENTS)
def test_refusals_of_the_gradients(argument):
    change, message = BAD_GRADIENTS[argument]
    output, lse = causal_attention(*GIVEN, return_lse=True)
    right = dict(zip(("query", "key", "value"), GIVEN, strict=True), output=output, lse=lse, d_output=output)
    with pytest.raises(ArgumentError, match=message) as caught:
        causal_attention_backward(**{**right, **change(right)})
    assert caught.value.argument == argument


# -- what the kernels do to memory, and the static side -----------------------------------------------------------


def statistics(variant, one, config, sim):
    tensors = one.inputs(one.problem())
    report = variant.run(config, one.problem(), tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    return report, [line for line in report.lines if line.requests]


@pytest.mark.parametrize("head_size", [64, 128, 32, 80, 256])
@pytest.mark.sampled(5)
def test_no_bank_conflicts(head_size, sim):
    """Not one: of matrix loads from swizzled tiles, and of the output on its way through shared memory."""
    one = CausalAttentionCase("banks", 2, 1, head_size, 130, num_seqs=1, dtype="float16")
    _, lines = statistics(CUDA, one, CUDA.default_config(one.problem()), sim)
    shared = [line for line in lines if line.space == "shared"]
    kinds = Counter(line.text.split(".")[0] for line in shared)
    assert kinds["ldmatrix"] >= 2 * head_size // 16
    assert set(kinds) == {"ldmatrix", "st", "ld"}
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared)


def test_bytes(sim):
    """Keys and values are asked for once per block of queries that sees them, in whole sectors; scores not at all."""
    one = CausalAttentionCase("bytes", 2, 1, 64, 128, num_seqs=1, dtype="float16")
    report, lines = statistics(CUDA, one, CUDA.default_config(one.problem()), sim)
    minimum = one.minimum_bytes(one.problem())
    assert minimum <= report.unique_bytes_read + report.unique_bytes_written <= 1.02 * minimum
    copies = [line for line in lines if line.text.startswith("cp.async") and line.space == "global"]
    assert {line.sectors / line.requests for line in copies} == {16.0}
    row = 64 * 2
    assert sum(line.bytes for line in copies) == 2 * row * (128 + 2 * (64 + 128))  # heads; queries, keys and values


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("head_size", "config", "registers"),
    [
        (64, {}, 168),  # three blocks on a multiprocessor
        (128, {}, 232),
        (128, {"BLOCK_M": 128, "NUM_THREADS": 256}, 232),
        (64, {"BLOCK_M": 128}, 255),
        (256, {}, 255),
    ],
)
@pytest.mark.sampled(10)
def test_machine_code(arch, head_size, config, registers):
    """No spills, 16-byte copies and nothing else from global memory, products and matrices, no more than are needed."""
    one = CausalAttentionCase("code", 2, 1, head_size, 200, dtype="bfloat16")
    problem = one.problem(arch=arch)
    config = {**CUDA.default_config(problem), **config}
    kernel = CUDA.compile(config, problem, arch)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= registers
    assert kernel.dynamic_shared_bytes == (config["BLOCK_M"] + 4 * config["BLOCK_N"]) * head_size * 2
    counts = sum(counts_by_ptx_line(kernel).values(), Counter())
    row_tiles, steps = config["BLOCK_M"] // (config["NUM_THREADS"] // 2), head_size // 16
    assert counts["HMMA"] == row_tiles * 2 * (config["BLOCK_N"] // 8) * steps
    queries = row_tiles * steps
    assert counts["LDSM.4"] == 2 * (config["BLOCK_N"] // 16) * steps + queries
    queries, tokens = (config[name] * head_size // 8 // config["NUM_THREADS"] for name in ("BLOCK_M", "BLOCK_N"))
    queries, tokens = (count if count <= 8 else 4 for count in (queries, tokens))  # of more a loop has four
    assert counts["LDGSTS.128"] == queries + 4 * tokens  # the first keys and values, and those ahead
    assert sum(number for name, number in counts.items() if name.startswith("LDGSTS")) == counts["LDGSTS.128"]
    assert not any(name.startswith(("LDL", "STL")) for name in counts)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("variant", [*KERNELS, GRADIENTS], **NAME)
@pytest.mark.long
def test_defaults_do_not_spill(variant, arch):
    if arch < ARCHS.get(variant, "sm_80"):
        return
    for head_size, dtype in itertools.product((64, 80, 128, 256), variant.dtypes):
        problem = CausalAttentionCase("defaults", 4, 2, head_size, 512, dtype=dtype).problem(arch=arch)
        for kernel in variant.kernels(variant.default_config(problem), problem, arch):
            assert kernel.spill_bytes == 0, f"{head_size} {dtype}: {kernel.spill_bytes} bytes"
            assert kernel.occupancy.blocks_per_sm >= 1


@pytest.mark.parametrize("variant", [*KERNELS, GRADIENTS], **NAME)
def test_defaults_are_legal(variant):
    for head_size, dtype in itertools.product((16, 32, 40, 64, 80, 96, 128, 192, 256), variant.dtypes):
        for arch in ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120"):
            if int(arch[3:]) < int(ARCHS.get(variant, "sm_80")[3:]):
                continue
            problem = CausalAttentionCase("defaults", 4, 2, head_size, 512, dtype=dtype).problem(arch=arch)
            variant.check(variant.default_config(problem), problem)


@pytest.mark.parametrize("variant", [*KERNELS, GRADIENTS], **NAME)
def test_each_rule_is_named(variant):
    base = case("tiles").problem(arch=ARCHS.get(variant, "sm_80"))
    broken = {
        "16-byte rows": ({}, {"alignment": 8}),
        "whole 16-byte steps": ({}, {"head_size": 36}),
        "grid": ({}, {"num_seqs": 70_000}),
        "shared memory": ({"BLOCK_M": 128, "BLOCK_N": 128}, {"head_size": 256}),
        # of CUDA
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "whole rows of a warp": ({"BLOCK_M": 32}, {}),
        "whole tiles": ({"BLOCK_N": 24}, {}),
        "stages": ({"NUM_STAGES": 1}, {}),
        "registers": ({"BLOCK_M": 128}, {"head_size": 256}),
        # of Triton
        "TMA": ({}, {"arch": "sm_89"}),
        "products": ({"BLOCK_N": 8}, {}),
        "warps": ({"num_warps": 3}, {}),
        "tiles fit in registers": ({"num_warps": 1, "BLOCK_M": 128, "BLOCK_N": 128}, {}),
    }
    own = {rule.name: broken[rule.name] for rule in variant.restrictions}
    assert_rules(variant, variant.default_config(base), base, own)


def test_lengths_of_a_case():
    one = of_sizes("lengths")
    assert CausalAttentionCase.from_dict(one.to_dict()) == one
    assert one.label == "lengths 4x90 bfloat16 lengths lse"
    with pytest.raises(ArgumentError, match="4 entries"):
        one.override(num_seqs=3)
    reference = one.reference()
    assert reference.shape == (4, 4, 70, 65)
    assert math.isclose(float(reference[1, 0, 0, -1]), float(one.override(lse=True).reference()[1, 0, 0, -1]))
