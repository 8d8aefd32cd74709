"""The imported function: what it refuses (writing nothing), what it chooses, and that torch can compile it."""

import dataclasses
import math

import pytest
import torch
from arguments import assert_refused, every_other, misaligned, with_entry

from workbench import WorkbenchError, ops
from workbench.attention import paged_attention
from workbench.attention.ops.paged_attention import OP, case
from workbench.errors import ArgumentError, ConfigurationError, UnknownNameError
from workbench.ops.dispatch import choose

pytestmark = pytest.mark.usefixtures("own_home")

ONE = case("small", dtype="float16")
GOOD = {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 8, "V_VEC_SIZE": 8, "NUM_THREADS": 128}


def arguments(one=ONE, block_size=16):
    t = one.inputs(one.problem({"BLOCK_SIZE": block_size}))
    return {name: getattr(t, name) for name in ("query", "key_cache", "value_cache", "block_tables", "seq_lens")}


BAD = {
    "query dtype": ("query", lambda a: {"query": a["query"].double()}, "float16"),
    "query shape": ("query", lambda a: {"query": a["query"][0]}, r"\[num_seqs, num_heads, head_size\]"),
    "query stride": ("query", lambda a: {"query": every_other(a["query"], 1)}, "contiguous"),
    "query innermost stride": ("query", lambda a: {"query": every_other(a["query"], 2)}, "contiguous"),
    "query device": ("key_cache", lambda a: {"query": a["query"].to("meta")}, "Move it"),
    "key dtype": ("key_cache", lambda a: {"key_cache": a["key_cache"].float()}, "float16"),
    "value dtype": ("value_cache", lambda a: {"value_cache": a["value_cache"].bfloat16()}, "float16"),
    "no tensor": ("query", lambda a: {"query": a["query"].float().numpy()}, "torch.Tensor"),
    "a list": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].tolist()}, "torch.Tensor"),
    "key device": ("key_cache", lambda a: {"key_cache": a["key_cache"].to("meta")}, "cpu"),
    "key shape": ("key_cache", lambda a: {"key_cache": a["key_cache"][:, :, :-1]}, "value cache"),
    "key dimensions": ("layout", lambda a: {"key_cache": a["key_cache"][0]}, "nhd"),
    "value shape": ("key_cache", lambda a: {"value_cache": a["value_cache"][:-1]}, "value cache"),
    "value dimensions": ("key_cache", lambda a: {"value_cache": a["value_cache"][0]}, "4-D"),
    "key strides": ("key_cache", lambda a: {"key_cache": every_other(a["key_cache"], 3)}, "contiguous"),
    "value strides": ("value_cache", lambda a: {"value_cache": every_other(a["value_cache"], 2)}, "contiguous"),
    "key address": ("key_cache", lambda a: {"key_cache": misaligned(a["key_cache"])}, "16 bytes"),
    "head size": ("key_cache", lambda a: {"query": a["query"][..., :32].contiguous()}, "head_size"),
    "heads do not divide": ("query", lambda a: {"query": a["query"][:, :7].contiguous()}, "multiple"),
    "unknown layout": ("layout", lambda a: {"layout": "hdn"}, "x, nhd, hnd"),
    "layout of another": ("key_cache", lambda a: {"layout": "nhd"}, "4-D"),
    "table dtype": ("block_tables", lambda a: {"block_tables": a["block_tables"].long()}, "int32"),
    "table shape": ("block_tables", lambda a: {"block_tables": a["block_tables"][:-1]}, "num_seqs = 8"),
    "table stride": ("block_tables", lambda a: {"block_tables": every_other(a["block_tables"], 1)}, "contiguous"),
    "table entry": (
        "block_tables[7, 8]",
        lambda a: {"block_tables": with_entry(a["block_tables"], (7, 8), len(a["key_cache"]))},
        "pages of the cache",
    ),
    "table entry below 0": (
        "block_tables[0, 0]",
        lambda a: {"block_tables": with_entry(a["block_tables"], (0, 0), -1)},
        "first 1 entries",
    ),
    "lengths dtype": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"].long()}, "int32"),
    "lengths shape": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"][None]}, "num_seqs"),
    "length beyond the table": (
        "seq_lens[2]",
        lambda a: {"seq_lens": with_entry(a["seq_lens"], 2, a["block_tables"].shape[1] * 16 + 1)},
        "Widen",
    ),
    "negative length": ("seq_lens[5]", lambda a: {"seq_lens": with_entry(a["seq_lens"], 5, -3)}, "0 to"),
    "scale": ("scale", lambda a: {"scale": math.nan}, "finite"),
    "window": ("sliding_window", lambda a: {"sliding_window": 0}, "1 or more"),
    "cap": ("soft_cap", lambda a: {"soft_cap": -1.0}, "positive"),
    "slopes": ("alibi_slopes", lambda a: {"alibi_slopes": torch.ones(3)}, "one per head"),
    "slopes apart": ("alibi_slopes", lambda a: {"alibi_slopes": torch.ones(16)[::2]}, "contiguous"),
    "sinks dtype": ("sinks", lambda a: {"sinks": torch.ones(8, dtype=torch.float16)}, "float32"),
    "cache dtype": ("kv_cache_dtype", lambda a: {"kv_cache_dtype": "fp4"}, "fp8_e4m3"),
    "cache not quantized": ("key_cache", lambda a: {"kv_cache_dtype": "int8"}, "torch.int8"),
    "scale without quantization": ("k_scale", lambda a: {"k_scale": 2.0}, "kv_cache_dtype"),
    "unknown variant": ("variant", lambda a: {"variant": "cuda_fast"}, "cuda_thread_group"),
    "illegal configuration": (
        "config of paged_attention/cuda_thread_group",
        lambda a: {"variant": "cuda_thread_group", "config": {**GOOD, "VEC_SIZE": 16}},
        "VEC_SIZE",
    ),
    "configuration for another page size": (
        "config of paged_attention/cuda_thread_group",
        lambda a: {"variant": "cuda_thread_group", "config": {**GOOD, "BLOCK_SIZE": 32}},
        "page size",
    ),
    "configuration without variant": ("config", lambda a: {"config": GOOD}, "Name a variant"),
    "configuration with a text": (
        "config of paged_attention/cuda_thread_group",
        lambda a: {"variant": "cuda_thread_group", "config": {**GOOD, "VEC_SIZE": "wide"}},
        "a whole number above 0",
    ),
    "feature that the variant lacks": (
        "variant",
        lambda a: {"variant": "cuda_thread_group", "soft_cap": 5.0},
        "soft_cap.*allowed: torch",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    given = arguments()
    query = given["query"]
    given.update(change(given))
    out = (
        None
        if given["query"].shape != query.shape or given["query"].device != query.device
        else torch.full_like(query, 7.0)
    )
    out = None if given["query"].dtype != query.dtype else out
    with pytest.raises(WorkbenchError) as caught:
        paged_attention(**given, out=out)
    assert_refused(caught.value, argument, message)
    if out is not None:
        assert (out == 7.0).all(), "something was written"


@pytest.mark.parametrize(
    "bad",
    [
        lambda q: torch.empty(q.shape, dtype=torch.float32),
        lambda q: torch.empty(q.shape[0], q.shape[1], q.shape[2] * 2, dtype=q.dtype)[..., ::2],
        lambda q: torch.empty_like(q)[:-1],
        lambda q: misaligned(q),
        lambda q: q,
    ],
    ids=["dtype", "strides", "shape", "address", "query"],
)
def test_bad_out(bad):
    given = arguments()
    with pytest.raises(ArgumentError, match=r"^out: got"):
        paged_attention(**given, out=bad(given["query"]))


def test_a_four_dimensional_cache_needs_its_layout():
    given = arguments(dataclasses.replace(ONE, layout="hnd"))
    with pytest.raises(ArgumentError, match=r"layout.*name the layout"):
        paged_attention(**given)
    assert ONE.check(paged_attention(**given, layout="hnd")).ok


def test_out_is_filled_and_returned():
    given = arguments()
    out = torch.full_like(given["query"], torch.nan)
    assert paged_attention(**given, out=out) is out
    assert ONE.check(out).ok


def test_rows_of_the_query_may_be_apart():
    given = arguments()
    fused = torch.randn(len(ONE.seq_lens), 20, ONE.head_size).half()
    fused[:, :8] = given["query"]
    given["query"] = fused[:, :8]
    for variant in ("torch", "cuda_thread_group", "triton_online_softmax"):
        assert ONE.check(paged_attention(**given, variant=variant)).ok, variant


def test_pages_may_be_apart():
    """Keys and values of a page side by side, [num_blocks, 2, ...], as vLLM allocates them."""
    one = dataclasses.replace(ONE, layout="nhd")
    given = arguments(one)
    both = torch.stack([given["key_cache"], given["value_cache"]], 1)
    given |= {"key_cache": both[:, 0], "value_cache": both[:, 1]}
    for variant in ("torch", "triton_online_softmax"):
        assert one.check(paged_attention(**given, variant=variant, layout="nhd")).ok, variant


def test_an_empty_batch():
    given = arguments()
    for name in ("query", "block_tables", "seq_lens"):
        given[name] = given[name][:0]
    for variant in ("auto", "cuda_thread_group", "triton_online_softmax"):
        assert paged_attention(**given, variant=variant).shape == (0, 8, 64)


@pytest.mark.parametrize("variant", ["torch", "cuda_thread_group", "triton_online_softmax"])
def test_sequences_of_no_tokens(variant):
    given = arguments()
    given["seq_lens"] = torch.zeros_like(given["seq_lens"])
    given["block_tables"] = torch.full_like(given["block_tables"], -1)
    out = paged_attention(**given, variant=variant)
    assert (out == 0).all()


@pytest.mark.parametrize("variant", ["auto", "tuned", "torch", "cuda_thread_group", "triton_online_softmax"])
def test_every_choice_computes_the_same(variant):
    for block_size in (16, 64):
        assert ONE.check(paged_attention(**arguments(block_size=block_size), variant=variant)).ok


@pytest.mark.parametrize("variant", ["triton_partitioned", "triton_online_softmax"])
def test_code_is_for_an_architecture_that_has_what_the_cache_needs(variant):
    """Triton reads fp8_e4m3 from sm_89 on."""
    one = case("small", dtype="float16", kv_cache_dtype="fp8_e4m3", seq_lens=(33, 5))
    given = arguments(one) | {"kv_cache_dtype": "fp8_e4m3"}
    torch.testing.assert_close(paged_attention(**given, variant=variant), paged_attention(**given), rtol=0, atol=2e-3)
    shown = ops.get("paged_attention").variant(variant)
    assert shown.machine_arch(one.problem()) == "sm_89"
    assert shown.machine_arch(ONE.problem()) == "sm_80"


def test_a_given_configuration_is_the_one_that_runs(monkeypatch):
    ran = []
    cuda = ops.variant("paged_attention", "cuda_thread_group")
    original = type(cuda).run

    def spy(self, config, problem, tensors, device, **options):
        ran.append((self.name, dict(config)))
        return original(self, config, problem, tensors, device, **options)

    monkeypatch.setattr(type(cuda), "run", spy)
    assert ONE.check(paged_attention(**arguments(), variant="cuda_thread_group", config=GOOD)).ok
    assert ran == [("cuda_thread_group", GOOD)]


def test_choices():
    problem = dataclasses.replace(ONE.problem(), block_size=16)
    assert choose(OP, problem, "auto", None, device="sim")[0].name == "torch"
    variant, config = choose(OP, problem, "cuda_thread_group", None, device="sim")
    assert config == variant.default_config(problem)
    variant, config = choose(OP, problem, "tuned", None, device="sim")
    assert variant.language != "torch"
    with pytest.raises(UnknownNameError, match=r"auto, tuned, .*triton_online_softmax"):
        choose(OP, problem, "triton", None, device="sim")
    with pytest.raises(ConfigurationError, match="exactly the tunables"):
        choose(OP, problem, "triton_online_softmax", {"BLOCK_SIZE": 16}, device="sim")
    with pytest.raises(ArgumentError, match="allowed: none"):
        choose(OP, dataclasses.replace(problem, features=("int8", "a scale per bit")), "tuned", None, device="sim")


def test_opcheck():
    given = arguments()
    out = torch.empty_like(given["query"])
    torch.library.opcheck(OP.library_op(), (*given.values(), 0.125, out))
    one = case("small", kv_cache_dtype="int8", alibi=True, sinks=True)
    t = one.inputs(one.problem({"BLOCK_SIZE": 16}))
    torch.library.opcheck(
        OP.library_op(),
        (t.query, t.key_cache, t.value_cache, t.block_tables, t.seq_lens, 0.125, out),
        {
            "alibi_slopes": t.alibi_slopes,
            "sliding_window": 9,
            "soft_cap": 30.0,
            "sinks": t.sinks,
            "kv_cache_dtype": "int8",
            "k_scale": t.k_scale,
            "v_scale": t.v_scale,
        },
    )


@pytest.mark.parametrize("variant", ["auto", "cuda_thread_group"])
def test_compiles_without_a_graph_break(variant):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(query, *cache):
        return paged_attention(query + 0, *cache, variant=variant) * 2

    given = arguments()
    assert ONE.check(layer(*given.values()) / 2).ok
    given["seq_lens"] = given["seq_lens"] * 0 - 1
    with pytest.raises(ArgumentError, match="seq_lens"):
        layer(*given.values())


@pytest.mark.long
def test_compiles_with_inductor():
    layer = torch.compile(lambda *given: paged_attention(*given) * 2, fullgraph=True)
    assert ONE.check(layer(*arguments().values()) / 2).ok
