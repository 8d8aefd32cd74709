"""PagedKVCache with one byte per element: scales of every granularity, through copies, swaps and the prefix cache."""

import itertools

import pytest
import torch

from workbench.attention import paged_attention
from workbench.attention.cache_formats.layouts import LAYOUTS
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, EIGHT_BITS, dequantize, quantize, token_scales
from workbench.attention.kvcache import PagedKVCache
from workbench.errors import ArgumentError

LAYERS, HEADS, SIZE, BLOCK = 2, 2, 32, 4
SCALES = {
    "none": {},
    "number": {"k_scale": 0.02, "v_scale": 0.03},
    "per head": {"k_scale": torch.tensor([0.02, 0.03]), "v_scale": torch.tensor([0.04])},
    "per layer": {"k_scale": [0.02, torch.tensor([0.03, 0.01])], "v_scale": [None, 0.02]},
    "token": {"k_scale": "token", "v_scale": "token"},
    "token and number": {"k_scale": "token", "v_scale": 0.02},
}


def make(kind, scales, **changes):
    sizes = {"num_layers": LAYERS, "num_blocks": 12, "block_size": BLOCK, "num_kv_heads": HEADS, "head_size": SIZE}
    options = {"dtype": torch.float32, "num_host_blocks": 8, "kv_cache_dtype": kind, **SCALES[scales]}
    return PagedKVCache(**{**sizes, **options, **changes})


class Writer:
    """Writes random tokens and remembers what each sequence must read as: by the definition, not by the cache."""

    def __init__(self, cache, seed=0):
        self.cache, self.expected = cache, {}
        self.generator = torch.Generator().manual_seed(seed)

    def write(self, step, seqs):
        new = torch.randn(2, LAYERS, len(step.slot_mapping), HEADS, SIZE, generator=self.generator)
        read = torch.empty_like(new)
        for layer in range(LAYERS):
            self.cache.write(layer, *new[:, layer], step.slot_mapping)
            for side, scale in enumerate(self.cache.scales[layer]):
                tokens, kind = new[side, layer], self.cache.kv_cache_dtype
                scale = 1.0 if scale is None else token_scales(tokens, kind) if scale.dim() == 3 else scale
                read[side, layer] = dequantize(quantize(tokens, scale, kind), scale)
        for seq, part in zip(seqs, read.chunk(len(seqs), 2), strict=True):
            old = self.expected.get(seq)
            self.expected[seq] = part if old is None else torch.cat([old, part], 2)

    def check(self):
        for seq, expected in self.expected.items():
            for layer in range(LAYERS):
                keys, values = self.cache.gather(layer, seq)
                assert torch.equal(keys, expected[0, layer])
                assert torch.equal(values, expected[1, layer])


def two_diverged(cache):
    writer = Writer(cache)
    writer.write(cache.allocate("a", 6), ["a"])
    cache.fork("a", "b")
    writer.expected["b"] = writer.expected["a"]
    writer.write(cache.append_batch({"a": 1, "b": 1}), ["a", "b"])
    return writer


@pytest.mark.parametrize(
    ("layout", "kind", "scales"),
    [
        (layout, kind, scales)
        for layout, kind, scales in itertools.product(LAYOUTS, CACHE_DTYPES, SCALES)
        if kind in EIGHT_BITS or (layout != "x" and "token" not in scales)
    ],
)
def test_copy_on_write_swap_and_back(layout, kind, scales):
    """A block takes its scales along when it is copied, leaves the device, and returns to another place."""
    cache = make(kind, scales, layout=layout)
    writer = two_diverged(cache)
    writer.check()
    assert cache.swap_out("a", "b") == 3
    other = Writer(cache, seed=1)
    other.write(cache.allocate("c", 12 * BLOCK), ["c"])
    other.check()
    cache.free("c")
    other.expected.clear()
    other.write(cache.allocate("d", 5), ["d"])
    assert cache.swap_in("b", "a") == 3
    writer.check()
    other.check()


@pytest.mark.parametrize(
    ("layout", "kind", "scales"),
    [
        *((layout, "fp8_e4m3", scales) for layout in LAYOUTS for scales in ("per layer", "token")),
        ("nhd", "nvfp4", "per layer"),
        ("hnd", "nvfp4", "none"),
    ],
)
def test_attention_reads_it(layout, kind, scales):
    cache = make(kind, scales, layout=layout)
    writer = two_diverged(cache)
    query = torch.randn(2, 2 * HEADS, SIZE, generator=writer.generator)
    tables, lengths = cache.block_tables("ab"), cache.seq_lens("ab")
    for layer in range(LAYERS):
        out = paged_attention(query, *cache.layers[layer], tables, lengths, **cache.attention_options(layer))
        for i, seq in enumerate("ab"):
            key, value = (side[layer].repeat_interleave(2, 1).transpose(0, 1) for side in writer.expected[seq])
            expected = torch.nn.functional.scaled_dot_product_attention(query[i][:, None], key, value)[:, 0]
            torch.testing.assert_close(out[i], expected)


def test_a_cached_prompt_keeps_its_scales():
    cache = make("int8", "token", prefix_caching=True)
    writer, prompt = Writer(cache), list(range(10))
    writer.write(cache.allocate("a", prompt), ["a"])
    cache.free("a")
    step = cache.allocate("b", prompt)
    assert step.num_cached_tokens == 8
    writer.expected["b"] = writer.expected.pop("a")[:, :, :8]
    writer.write(step, ["b"])
    writer.check()


@pytest.mark.parametrize(("kind", "scales", "row"), [("int8", "token", SIZE + 4), ("nvfp4", "none", SIZE // 16 * 9)])
def test_bytes(kind, scales, row):
    cache = make(kind, scales)
    slot = LAYERS * 2 * HEADS * row
    assert cache.memory().pool_bytes == 12 * BLOCK * slot
    assert cache.memory().pool_bytes == sum(
        each.nbytes for pairs in (cache.layers, cache.scales) for pair in pairs for each in pair if each is not None
    )


def test_refusals():
    for scales, message in (
        ({"k_scale": "head"}, "k_scale: .*token"),
        ({"v_scale": [1.0]}, "v_scale: .*2, one per layer"),
        ({"v_scale": torch.ones(3)}, "v_scale: .*shape"),
        ({"k_scale": -1.0}, "k_scale: .*above 0"),
        ({"k_scale": torch.ones(12, BLOCK, HEADS)}, "k_scale: .*token"),
        ({"kv_cache_dtype": "auto", "k_scale": 1.0}, "k_scale: .*kv_cache_dtype"),
        ({"kv_cache_dtype": "auto", "k_scale": "token"}, "k_scale: .*kv_cache_dtype"),
        ({"kv_cache_dtype": "int4"}, "kv_cache_dtype: .*int8"),
        ({"kind": "nvfp4", "k_scale": "token"}, "k_scale: .*nvfp4, which has a scale for every 16"),
        ({"kind": "nvfp4", "head_size": 24}, "head_size: .*16 for nvfp4.*int8"),
        ({"kind": "nvfp4", "layout": "x"}, "layout: .*nvfp4.*nhd.*fp8_e4m3"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make(**{"kind": "int8", "scales": "none", **scales})
    with pytest.raises(ArgumentError, match="multiple of x = 16"):
        make("int8", "none", layout="x", head_size=24)


def test_a_bad_write_changes_no_scale():
    cache = make("int8", "token")
    two_diverged(cache)
    before = [each.clone() for pairs in (cache.layers, cache.scales) for pair in pairs for each in pair]
    tokens = torch.randn(2, HEADS, SIZE)
    for key, slots in ((tokens.half(), [0, 1]), (tokens[:1], [0, 1]), (tokens, [0, 0]), (tokens, [0, 48])):
        with pytest.raises(ArgumentError):
            cache.write(0, key, tokens, torch.tensor(slots))
    after = [each for pairs in (cache.layers, cache.scales) for pair in pairs for each in pair]
    assert all(map(torch.equal, before, after))
