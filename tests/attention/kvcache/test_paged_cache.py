"""PagedKVCache: layouts, attention over it, copy-on-write, swapping, memory. See also test_kvcache_stateful."""

import pytest
import torch

from workbench.attention import paged_attention
from workbench.attention.cache_formats.layouts import LAYOUTS
from workbench.attention.kvcache import OutOfBlocksError, PagedKVCache, SequenceStateError, UnknownSequenceError
from workbench.errors import ArgumentError, UnknownNameError

LAYERS, HEADS, SIZE, BLOCK = 2, 2, 16, 4


def make(**changes):
    sizes = {
        "num_layers": LAYERS,
        "num_blocks": 12,
        "block_size": BLOCK,
        "num_kv_heads": HEADS,
        "head_size": SIZE,
        "dtype": torch.float32,
        "num_host_blocks": 8,
    }
    return PagedKVCache(**{**sizes, **changes})


class Writer:
    """Writes random tokens and remembers, for each sequence, what it must read as."""

    def __init__(self, cache):
        self.cache, self.expected = cache, {}
        self.generator = torch.Generator().manual_seed(0)

    def write(self, step, seqs):
        key, value = torch.randn(2, len(step.slot_mapping), HEADS, SIZE, generator=self.generator).to(self.cache.dtype)
        for layer in range(LAYERS):
            self.cache.write(layer, key + layer, value + layer, step.slot_mapping)
        share = len(key) // len(seqs)
        for i, seq in enumerate(seqs):
            new = key[i * share : (i + 1) * share], value[i * share : (i + 1) * share]
            old = self.expected.get(seq, (new[0][:0], new[1][:0]))
            self.expected[seq] = tuple(torch.cat(pair) for pair in zip(old, new, strict=True))

    def check(self):
        for seq, (key, value) in self.expected.items():
            for layer in range(LAYERS):
                found = self.cache.gather(layer, seq)
                assert torch.equal(found[0], key + layer)
                assert torch.equal(found[1], value + layer)


def two_diverged(**changes):
    """a, and b which was forked from it after six tokens; one token more each."""
    cache = make(**changes)
    writer = Writer(cache)
    writer.write(cache.allocate("a", 6), ["a"])
    cache.fork("a", "b")
    writer.expected["b"] = writer.expected["a"]
    writer.write(cache.append_batch({"a": 1, "b": 1}), ["a", "b"])
    return cache, writer


def tensors(cache):
    return [each for pair in cache.layers for each in pair]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_copy_on_write_in_every_layer(layout, dtype):
    cache, writer = two_diverged(layout=layout, dtype=dtype)
    writer.check()
    assert cache.manager.statistics().shared_blocks == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention_reads_it(layout):
    cache, writer = two_diverged(layout=layout)
    writer.write(cache.allocate("c", 9), ["c"])
    seqs = ["c", "a", "b"]
    query = torch.randn(3, 2 * HEADS, SIZE, generator=writer.generator)
    tables, lengths = cache.block_tables(seqs), cache.seq_lens(seqs)
    assert tables.dtype == lengths.dtype == torch.int32
    assert tuple(tables.shape) == (3, 3)
    assert lengths.tolist() == [9, 7, 7]
    for layer in range(LAYERS):
        out = paged_attention(query, *cache.layers[layer], tables, lengths, layout=layout)
        for i, seq in enumerate(seqs):
            key, value = (each.repeat_interleave(2, 1).transpose(0, 1) for each in cache.gather(layer, seq))
            expected = torch.nn.functional.scaled_dot_product_attention(query[i][:, None], key, value)[:, 0]
            torch.testing.assert_close(out[i], expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention_through_a_sliding_window(layout):
    cache, whole = make(layout=layout, sliding_window=5), make(layout=layout, num_blocks=20)
    writer, reference = Writer(cache), Writer(whole)
    for one, written in ((cache, writer), (whole, reference)):
        written.write(one.allocate("a", 3), ["a"])
        for _ in range(20):
            written.write(one.append("a"), ["a"])
    assert cache.manager.statistics().used_blocks == 2
    assert len(cache.gather(0, "a")[0]) == 7  # of 23 tokens: 16 went with their blocks
    query = torch.randn(1, 2 * HEADS, SIZE, generator=writer.generator)
    outs = [
        paged_attention(
            query, *one.layers[1], one.block_tables("a"), one.seq_lens("a"), layout=layout, sliding_window=5
        )
        for one in (cache, whole)
    ]
    assert torch.equal(*outs)
    assert cache.slot_mapping("a").tolist()[:16] == [-1] * 16


@pytest.mark.parametrize("layout", LAYOUTS)
def test_swap_and_back_while_others_overwrite(layout):
    cache, writer = two_diverged(layout=layout)
    assert cache.swap_out("a", "b") == 3
    other = Writer(cache)
    other.write(cache.allocate("c", 12 * BLOCK), ["c"])
    other.check()
    with pytest.raises(OutOfBlocksError):
        cache.swap_in("a", "b")
    cache.free("c")
    assert cache.swap_in("b", "a") == 3
    writer.check()


def test_reorder_copies_nothing():
    cache, writer = two_diverged()
    before = [each.clone() for each in tensors(cache)]
    cache.reorder({"a": "b", "b": "a"})
    assert all(map(torch.equal, tensors(cache), before))
    writer.expected = {"a": writer.expected["b"], "b": writer.expected["a"]}
    writer.check()


def test_a_cached_prompt_is_read_and_not_written():
    cache = make(prefix_caching=True)
    writer = Writer(cache)
    prompt = list(range(10))
    writer.write(cache.allocate("a", prompt), ["a"])
    cache.free("a")
    step = cache.allocate("b", prompt)
    assert step.num_cached_tokens == 8
    assert len(step.slot_mapping) == 2
    writer.expected["b"] = tuple(each[:8] for each in writer.expected.pop("a"))
    writer.write(step, ["b"])
    writer.check()


def test_skipped_tokens():
    cache = make()
    step = cache.allocate("a", 3)
    before = cache.layers[0][0].clone()
    tokens = torch.ones(3, HEADS, SIZE)
    cache.write(0, tokens, tokens, torch.full_like(step.slot_mapping, -1))
    assert torch.equal(cache.layers[0][0], before)


def test_memory():
    cache, _ = two_diverged()
    slot = LAYERS * 2 * HEADS * SIZE * 4
    use = cache.memory()
    assert use.pool_bytes == 12 * BLOCK * slot == sum(each.nbytes for each in tensors(cache))
    assert use.reserved_bytes == 3 * BLOCK * slot
    assert use.used_bytes == 10 * slot
    assert use.wasted_bytes == 2 * slot


def test_tables_of_nothing():
    cache = make()
    assert tuple(cache.block_tables([]).shape) == (0, 0)
    cache.allocate("a", 0)
    assert tuple(cache.block_tables(["a"]).shape) == (1, 0)


def test_refusals():
    cache, writer = two_diverged()
    before = [each.clone() for each in tensors(cache)]
    key = torch.zeros(2, HEADS, SIZE)
    slots = torch.tensor([0, 1])
    for wrong in (key[:1], key[:, :1], key.double(), key.half(), key.to("meta")):
        with pytest.raises(ArgumentError):
            cache.write(0, wrong, key, slots)
        with pytest.raises(ArgumentError):
            cache.write(0, key, wrong, slots)
    for wrong in (slots[:1], slots.int(), torch.tensor([0, 48]), torch.tensor([0, 0])):
        with pytest.raises(ArgumentError, match="slot_mapping"):
            cache.write(0, key, key, wrong)
    with pytest.raises(ArgumentError, match="layer"):
        cache.write(LAYERS, key, key, slots)
    with pytest.raises(ArgumentError, match="layer"):
        cache.gather(-1, "a")
    for call in (cache.block_tables, cache.seq_lens):
        with pytest.raises(UnknownSequenceError):
            call(["a", "z"])
    cache.swap_out("b")
    for call in (lambda: cache.block_tables(["b"]), lambda: cache.gather(0, "b"), lambda: cache.seq_lens(["b"])):
        with pytest.raises(SequenceStateError, match="swap_in"):
            call()
    with pytest.raises(OutOfBlocksError):
        cache.append("a", 100)
    assert all(map(torch.equal, tensors(cache), before))
    cache.swap_in("b")
    writer.check()


def test_impossible_sizes():
    for change in ({"num_layers": 0}, {"num_kv_heads": 0}, {"head_size": 0}, {"block_size": 0}, {"dtype": torch.int64}):
        with pytest.raises(ArgumentError, match=next(iter(change))):
            make(**change)
    with pytest.raises(UnknownNameError, match="x, nhd, hnd"):
        make(layout="hdn")
    with pytest.raises(ArgumentError, match="multiple of x = 8"):
        make(layout="x", head_size=12, dtype=torch.float16)
