"""reshape_and_cache and copy_blocks as imported: what they refuse, writing nothing, and that torch compiles them."""

import pytest
import torch
from arguments import assert_refused, every_other, misaligned, with_entry

from workbench.attention import copy_blocks, reshape_and_cache
from workbench.attention.ops.copy_blocks.api import OP as COPY
from workbench.attention.ops.reshape_and_cache import case
from workbench.attention.ops.reshape_and_cache.api import OP
from workbench.errors import ArgumentError, ConfigurationError, UnknownNameError, WorkbenchError

pytestmark = pytest.mark.usefixtures("own_home")


def writing():
    one = case("small")
    t = one.inputs(one.problem())
    names = ("key", "value", "key_cache", "value_cache", "slot_mapping")
    return {name: getattr(t, name) for name in names}, t.out


BAD_WRITES = {
    "key dtype": ("key", lambda a: {"key": a["key"].double()}, "float16"),
    "key shape": ("key", lambda a: {"key": a["key"][0]}, r"\[num_tokens, num_kv_heads, head_size\]"),
    "key strides": ("key", lambda a: {"key": every_other(a["key"], 2)}, "contiguous"),
    "heads apart": ("key", lambda a: {"key": every_other(a["key"], 1)}, "contiguous"),
    "value dtype": ("value", lambda a: {"value": a["value"].float()}, "float16"),
    "value shape": ("value", lambda a: {"value": a["value"][1:]}, "as key"),
    "value device": ("value", lambda a: {"value": a["value"].to("meta")}, "cpu"),
    "slots dtype": ("slot_mapping", lambda a: {"slot_mapping": a["slot_mapping"].int()}, "int64"),
    "slots shape": ("slot_mapping", lambda a: {"slot_mapping": a["slot_mapping"][1:]}, "one slot per token"),
    "slots strides": ("slot_mapping", lambda a: {"slot_mapping": every_other(a["slot_mapping"], 0)}, "contiguous"),
    "slot past the end": (
        "slot_mapping[4]",
        lambda a: {"slot_mapping": with_entry(a["slot_mapping"], 4, len(a["value_cache"]) * 16)},
        "page . block_size . offset",
    ),
    "slot below -1": ("slot_mapping[7]", lambda a: {"slot_mapping": with_entry(a["slot_mapping"], 7, -2)}, "skip"),
    "slot twice": (
        "slot_mapping[80]",
        lambda a: {"slot_mapping": with_entry(a["slot_mapping"], 80, a["slot_mapping"][60])},
        r"as slot_mapping\[60\] has",
    ),
    "cache dtype": ("key_cache", lambda a: {"key_cache": a["key_cache"].float()}, "kv_cache_dtype is 'auto'"),
    "value cache dtype": ("value_cache", lambda a: {"value_cache": a["value_cache"].bfloat16()}, "float16"),
    "unknown cache dtype": ("kv_cache_dtype", lambda a: {"kv_cache_dtype": "fp4"}, "fp8_e4m3"),
    "heads": ("key_cache", lambda a: {n: a[n][:, :1].contiguous() for n in ("key", "value")}, "2 heads of 64"),
    "layout": ("layout", lambda a: {"layout": "xx"}, "x, nhd, hnd"),
    "pages not contiguous": ("key_cache", lambda a: {"key_cache": every_other(a["key_cache"], 3)}, "contiguous"),
    "cache address": ("value_cache", lambda a: {"value_cache": misaligned(a["value_cache"])}, "16 bytes"),
    "tokens in the cache": (
        "key_cache",
        lambda a: {"key": a["key_cache"].view(-1)[: a["key"].numel()].view(a["key"].shape)},
        "memory that key has too",
    ),
    "one cache for both": (
        "value_cache",
        lambda a: dict.fromkeys(("key_cache", "value_cache"), torch.zeros(8, 16, 2, 64).half()) | {"layout": "nhd"},
        "memory that key_cache has too",
    ),
    "scale without quantization": ("k_scale", lambda a: {"k_scale": 2.0}, "kv_cache_dtype"),
    "unknown variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_tiled"),
    "configuration without variant": ("config", lambda a: {"config": {"TILE_TOKENS": 4}}, "Name a variant"),
    "illegal configuration": (
        "config of reshape_and_cache/cuda_tiled",
        lambda a: {
            "variant": "cuda_tiled",
            "config": {"NUM_THREADS": 128, "TILE_TOKENS": 4, "VEC_SIZE": 8, "V_VEC_SIZE": 8},
        },
        "a run of tokens stays in its page",
    ),
}


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (torch.ones(3), "Per tensor"),
        (torch.ones(2, dtype=torch.float64), "float32"),
        (torch.tensor([1.0, 0.0]), "above 0"),
        (torch.tensor([torch.nan, 1.0]), "above 0"),
        (-1.0, "above 0"),
    ],
)
def test_bad_scale(scale, message):
    key = torch.ones(1, 2, 16)
    caches = [torch.zeros(1, 16, 2, 16, dtype=torch.int8) for _ in range(2)]
    with pytest.raises(ArgumentError, match=rf"^v_scale: .*{message}"):
        reshape_and_cache(key, key, *caches, torch.tensor([0]), layout="nhd", kv_cache_dtype="int8", v_scale=scale)
    assert not any(cache.any() for cache in caches)


@pytest.mark.parametrize("variant", ["auto", "cuda_tiled"])
def test_no_tokens_write_nothing_whatever_their_strides(variant):
    given, out = writing()
    before = out.clone()
    for strides in ((0, 0, 0), given["key"].stride()):
        empty = torch.empty_strided((0, *given["key"].shape[1:]), strides, dtype=given["key"].dtype)
        given.update(key=empty, value=empty, slot_mapping=given["slot_mapping"][:0])
        reshape_and_cache(**given, variant=variant)
    assert torch.equal(out, before)


def copying():
    caches = torch.randn(4, 6, 4, 16)
    return {"key_caches": caches[:2], "value_caches": caches[2:], "pairs": torch.tensor([[0, 1], [2, 3]])}, caches


BAD_COPIES = {
    "no layer": ("key_caches", lambda a: {"key_caches": []}, "one cache per layer"),
    "layers": ("value_caches", lambda a: {"value_caches": a["value_caches"][:1]}, "as many as key_caches"),
    "page size": ("value_caches[0]", lambda a: {"value_caches": a["value_caches"][:, :, :2].contiguous()}, "alike"),
    "pages": ("key_caches[1]", lambda a: {"key_caches": [a["key_caches"][0], a["key_caches"][1][:5]]}, "5 pages"),
    "pages not contiguous": ("key_caches[0]", lambda a: {"key_caches": a["key_caches"].transpose(2, 3)}, "contiguous"),
    "no page": ("key_caches[0]", lambda a: {"key_caches": a["key_caches"][:, :0]}, "num_blocks"),
    "address": ("value_caches[0]", lambda a: {"value_caches": misaligned(a["value_caches"])}, "16 bytes"),
    "one cache twice": ("value_caches[0]", lambda a: {"value_caches": a["key_caches"]}, r"memory that key_caches\[0\]"),
    "device": ("pairs", lambda a: {"pairs": a["pairs"].to("meta")}, "Move it"),
    "pairs dtype": ("pairs", lambda a: {"pairs": a["pairs"].int()}, "int64"),
    "pairs shape": ("pairs", lambda a: {"pairs": a["pairs"].flatten()}, "num_pairs, 2"),
    "pairs strides": ("pairs", lambda a: {"pairs": a["pairs"].t()}, "contiguous"),
    "source": ("pairs[0, 0]", lambda a: {"pairs": torch.tensor([[6, 1], [2, 3]])}, "0 to 5"),
    "destination": ("pairs[1, 1]", lambda a: {"pairs": torch.tensor([[0, 1], [2, -1]])}, "0 to 5"),
    "destination twice": ("pairs[1, 1]", lambda a: {"pairs": torch.tensor([[0, 1], [2, 1]])}, r"pairs\[0\] too"),
    "chain": ("pairs[0, 1]", lambda a: {"pairs": torch.tensor([[0, 2], [2, 3]])}, "two calls"),
    "onto itself": ("pairs[1, 1]", lambda a: {"pairs": torch.tensor([[0, 2], [5, 5]])}, "also a source"),
    "unknown variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_vectors"),
    "illegal configuration": (
        "config of copy_blocks/cuda_vectors",
        lambda a: {"variant": "cuda_vectors", "config": {"NUM_THREADS": 33, "VEC_BYTES": 16, "VECS_PER_THREAD": 1}},
        "threads per block",
    ),
}


CALLS = {reshape_and_cache: (writing, BAD_WRITES), copy_blocks: (copying, BAD_COPIES)}


@pytest.mark.parametrize(
    ("call", "what"),
    [pytest.param(call, what, id=f"{call.__name__}-{what}") for call in CALLS for what in CALLS[call][1]],
)
def test_bad_arguments(call, what):
    made, refused = CALLS[call]
    argument, change, message = refused[what]
    given, written = made()
    before = written.clone()
    given.update(change(given))
    with pytest.raises(WorkbenchError) as caught:
        call(**given)
    assert_refused(caught.value, argument, message)
    of_names = argument.startswith(("variant", "layout", "config of"))
    assert isinstance(caught.value, UnknownNameError | ConfigurationError) == of_names
    assert torch.equal(written, before), "something was written"


@pytest.mark.parametrize("variant", ["auto", "tuned", "torch", "cuda_tiled", "triton_tiled"])
def test_every_choice_writes_the_same(variant):
    given, out = writing()
    assert reshape_and_cache(**given, variant=variant) is None
    assert case("small").check(out).ok


@pytest.mark.parametrize("variant", ["auto", "tuned", "torch", "cuda_vectors", "triton_vectors"])
def test_every_choice_copies_the_same(variant):
    given, caches = copying()
    expected = caches.clone()
    expected[:, 1], expected[:, 3] = caches[:, 0], caches[:, 2]
    assert copy_blocks(**given, variant=variant) is None
    assert torch.equal(caches, expected)


@pytest.mark.parametrize("variant", ["torch", "cuda_tiled"])
def test_opcheck_write(variant):
    given, _ = writing()
    torch.library.opcheck(OP.library_op(), tuple(given.values()), {"variant": variant})


@pytest.mark.parametrize(
    ("kind", "dtype", "variant"),
    [
        ("int8", torch.int8, "cuda_tiled"),
        ("fp8_e4m3", torch.float8_e4m3fn, "cuda_tiled"),
        ("fp8_e5m2", torch.float8_e5m2, "cuda_tiled"),
        ("nvfp4", torch.uint8, "cuda_scaled_groups"),
    ],
)
def test_opcheck_quantized_write(kind, dtype, variant):
    key, value = torch.randn(2, 5, 2, 16)
    row = 9 if kind == "nvfp4" else 16
    caches = [torch.zeros(3, 16, 2, row, dtype=torch.uint8).view(dtype) for _ in range(2)]
    v_scale = torch.ones(1) if kind == "nvfp4" else torch.ones(3, 16, 2)
    options = {"kv_cache_dtype": kind, "k_scale": torch.ones(2), "v_scale": v_scale, "layout": "nhd"}
    checks = ["test_autograd_registration", "test_faketensor"]
    if dtype in (
        torch.int8,
        torch.uint8,
    ):  # the other two compare tensors by arithmetic, which torch has none of for float8
        checks += ["test_schema", "test_aot_dispatch_dynamic"]
    given = (key, value, *caches, torch.tensor([3, -1, 40, 7, 0]))
    torch.library.opcheck(OP.library_op(), given, options | {"variant": variant}, test_utils=checks)


@pytest.mark.parametrize("variant", ["torch", "cuda_vectors"])
def test_opcheck_copy(variant):
    keys = [torch.randn(6, 4, 16) for _ in range(2)]
    values = [torch.randn(6, 4, 16) for _ in range(2)]
    torch.library.opcheck(COPY.library_op(), (keys, values, torch.tensor([[0, 1], [2, 3]])), {"variant": variant})


def test_compiles_without_a_graph_break():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(key, value, key_cache, value_cache, slots, pairs):
        reshape_and_cache(key + 0, value, key_cache, value_cache, slots)
        copy_blocks([key_cache], [value_cache], pairs)
        return key * 2

    given, _ = writing()
    given["key_cache"], given["value_cache"] = given["key_cache"].clone(), given["value_cache"].clone()
    free = sorted(set(range(len(given["key_cache"]))) - set((given["slot_mapping"] // 16).tolist()))
    used = int(given["slot_mapping"].max() // 16)
    layer(*given.values(), torch.tensor([[used, free[0]]]))
    expected = case("small").reference().view(torch.float16).chunk(2)
    for cache, bits in zip((given["key_cache"], given["value_cache"]), expected, strict=True):
        want = bits.view(cache.shape).clone()
        want[free[0]] = want[used]
        assert torch.equal(cache.nan_to_num(7.0), want.nan_to_num(7.0))
