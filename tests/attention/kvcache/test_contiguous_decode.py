"""A contiguous cache with the op that reads it in place: generation and beam search equal full recomputation."""

import random

import pytest
import torch

from workbench.attention import causal_attention, contiguous_attention
from workbench.attention.kvcache import ContiguousKVCache
from workbench.attention.ops.contiguous_attention import VARIANTS

NUM_LAYERS, BEAMS, NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 2, 3, 6, 2, 32
NAMES = [variant.name for variant in VARIANTS]


class Engine:
    """Two requests of three beams: a cache, and beside it every token that a row has ever been given."""

    def __init__(self, max_seqlen, dtype=torch.float32):
        self.generator = torch.Generator().manual_seed(0)
        self.cache = ContiguousKVCache(
            num_layers=NUM_LAYERS, max_batch_size=2, max_beam_width=BEAMS, max_seqlen=max_seqlen,
            num_kv_heads=NUM_KV_HEADS, head_size=HEAD_SIZE, dtype=dtype,
        )  # fmt: skip
        for tensor in self.cache.layers:
            tensor.fill_(torch.nan)
        self.past = {}  # row -> [num_tokens, NUM_LAYERS, 2, NUM_KV_HEADS, HEAD_SIZE]

    def normal(self, *shape):
        return torch.randn(shape, generator=self.generator).to(self.cache.dtype)

    def store(self, step):
        new = self.normal(len(step.rows), NUM_LAYERS, 2, NUM_KV_HEADS, HEAD_SIZE)
        for layer in range(NUM_LAYERS):
            self.cache.write(layer, new[:, layer, 0], new[:, layer, 1], step)
        for row in step.rows.unique().tolist():
            self.past[row] = torch.cat([self.past.get(row, new[:0]), new[step.rows == row]])

    def reorder(self, parents):
        self.cache.reorder(parents)
        self.past |= {row: self.past[parent] for row, parent in parents.items()}

    def free(self, row):
        self.cache.free(row)
        del self.past[row]

    def check(self, variant, *, atol):
        """The decode step of every layer against causal attention over the whole history, its last token's row."""
        rows = list(self.past)[::-1]  # in no particular order
        lengths, cache_rows = self.cache.seq_lens(rows), torch.tensor(rows, dtype=torch.int32)
        for layer, tensor in enumerate(self.cache.layers):
            before = tensor.clone()
            query = self.normal(len(rows), NUM_HEADS, HEAD_SIZE)
            out = contiguous_attention(query, tensor, lengths, cache_rows=cache_rows, variant=variant)
            assert torch.equal(tensor.nan_to_num(7.0), before.nan_to_num(7.0)), "the cache is only read"
            for one, newest, row in zip(out, query, rows, strict=True):
                keys, values = self.past[row][:, layer].double().permute(1, 2, 0, 3)[:, None]
                whole = causal_attention(newest.double()[None, :, None], keys, values)[0, :, 0]
                torch.testing.assert_close(one.double(), whole, rtol=0, atol=atol)


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 2e-6), (torch.float16, 3e-3), (torch.bfloat16, 3e-2)])
def test_beam_search_is_full_recomputation(variant, dtype, atol):
    """Prompts of 1 and 33 tokens in one row each, spread over the beams, then reordered after every token."""
    engine = Engine(max_seqlen=40, dtype=dtype)
    cache = engine.cache
    for request, num_tokens in ((0, 33), (1, 1)):
        first = cache.row(request)
        engine.store(cache.allocate(first, num_tokens))
        engine.reorder({first + beam: first for beam in range(1, BEAMS)})
    engine.check(variant, atol=atol)
    for parents in ([1, 0, 2], [0, 0, 1], [2, 2, 2]):
        engine.store(cache.append(cache.rows))
        engine.check(variant, atol=atol)
        for first in (0, BEAMS):
            engine.reorder({first + beam: first + parent for beam, parent in enumerate(parents)})
        engine.check(variant, atol=atol)
    assert cache.seq_lens().tolist() == [36] * 3 + [4] * 3


def test_a_row_that_is_used_again_forgets_its_last_owner():
    engine = Engine(max_seqlen=40)
    engine.store(engine.cache.allocate(4, 40))
    engine.free(4)
    engine.store(engine.cache.allocate(4, 17))
    for variant in NAMES:
        engine.check(variant, atol=2e-6)


def test_any_life_of_rows():
    """Random calls against the histories: lengths, contents, bytes; attention from time to time."""
    rng = random.Random(0)
    engine = Engine(max_seqlen=12)
    cache, row_bytes = engine.cache, engine.cache.layers[0][0].nbytes * NUM_LAYERS
    for count in range(400):
        used, free = list(engine.past), [row for row in range(cache.num_rows) if row not in engine.past]
        growing = [row for row in used if len(engine.past[row]) < 12]
        action = rng.choice(["allocate", "append", "append", "reorder", "free"])
        if action == "allocate" and free:
            engine.store(cache.allocate(rng.choice(free), rng.randint(1, 12)))
        elif action == "append" and growing:
            engine.store(cache.append(rng.sample(growing, rng.randint(1, len(growing)))))
        elif action == "reorder" and used:
            engine.reorder({row: rng.choice(used) for row in rng.sample(range(cache.num_rows), rng.randint(1, 6))})
        elif action == "free" and used:
            engine.free(rng.choice(used))
        assert cache.rows == tuple(sorted(engine.past))
        for row, past in engine.past.items():
            for layer in range(NUM_LAYERS):
                assert torch.equal(torch.stack(cache.gather(layer, row), 1), past[:, layer])
        use, tokens = cache.memory(), sum(map(len, engine.past.values()))
        assert use.reserved_bytes == len(engine.past) * row_bytes
        assert use.used_bytes == tokens * row_bytes // 12
        assert use.wasted_bytes == use.reserved_bytes - use.used_bytes
        assert use.free_bytes == (cache.num_rows - len(engine.past)) * row_bytes
        if count % 40 == 0 and engine.past:
            engine.check("torch", atol=2e-6)
