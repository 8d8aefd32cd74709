"""ContiguousKVCache: what is written is found, reordering is simultaneous, refusals change nothing."""

import pytest
import torch

from workbench.attention.kvcache import ContiguousKVCache, SequenceStateError, UnknownSequenceError
from workbench.errors import ArgumentError

LAYERS, HEADS, SIZE, LONGEST = 2, 3, 4, 8


def make(**changes):
    sizes = {
        "num_layers": LAYERS,
        "max_batch_size": 2,
        "max_beam_width": 2,
        "max_seqlen": LONGEST,
        "num_kv_heads": HEADS,
        "head_size": SIZE,
        "dtype": torch.float32,
    }
    return ContiguousKVCache(**{**sizes, **changes})


def tokens(num_tokens, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, num_tokens, HEADS, SIZE, generator=generator).to(dtype)


def write(cache, step, seed):
    """The same tokens in every layer, shifted by the layer."""
    key, value = tokens(len(step.rows), seed, cache.dtype)
    for layer in range(LAYERS):
        cache.write(layer, key + layer, value + layer, step)
    return key, value


def filled(**changes):
    """A cache with rows of 5, 3 and 1 tokens, and what they must read as."""
    cache, expected = make(**changes), {}
    for row, length in ((0, 5), (1, 3), (3, 1)):
        expected[row] = write(cache, cache.allocate(row, length), seed=row)
    return cache, expected


def agrees(cache, expected):
    assert cache.rows == tuple(sorted(expected))
    for row, (key, value) in expected.items():
        assert cache.length(row) == len(key)
        for layer in range(LAYERS):
            found = cache.gather(layer, row)
            assert torch.equal(found[0], key + layer)
            assert torch.equal(found[1], value + layer)


def test_the_shape_is_that_of_tensorrt_llm():
    cache = make()
    assert len(cache.layers) == LAYERS
    assert all(tuple(layer.shape) == (4, 2, HEADS, LONGEST, SIZE) for layer in cache.layers)
    assert [cache.row(request, beam) for request in (0, 1) for beam in (0, 1)] == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_context_then_generation(dtype):
    cache, expected = filled(dtype=dtype)
    agrees(cache, expected)
    for seed in range(10, 13):
        order = [3, 0, 1]
        key, value = write(cache, cache.append(order), seed)
        for i, row in enumerate(order):
            old = expected[row]
            expected[row] = torch.cat([old[0], key[i : i + 1]]), torch.cat([old[1], value[i : i + 1]])
        agrees(cache, expected)
    assert cache.seq_lens().tolist() == [8, 6, 0, 4]
    assert cache.seq_lens([3, 0]).tolist() == [4, 8]
    assert cache.seq_lens().dtype == torch.int32


def test_elements_are_where_the_shape_says():
    cache = make()
    key, value = write(cache, cache.allocate(2, 3), seed=0)
    assert torch.equal(cache.layers[1][2, 0, :, :3], key.transpose(0, 1) + 1)
    assert torch.equal(cache.layers[1][2, 1, :, :3], value.transpose(0, 1) + 1)
    assert int(torch.count_nonzero(cache.layers[1])) == 2 * 3 * HEADS * SIZE


def test_several_tokens_of_a_row():
    cache, expected = filled()
    key, value = write(cache, cache.append([1, 3], 4), seed=5)
    for part, row in ((slice(0, 4), 1), (slice(4, 8), 3)):
        expected[row] = tuple(torch.cat([old, new[part]]) for old, new in zip(expected[row], (key, value), strict=True))
    agrees(cache, expected)


@pytest.mark.parametrize(
    "parents", [{0: 1, 1: 0}, {0: 1, 1: 3, 3: 0}, {1: 0, 3: 0}, {2: 0}, {0: 0}, {2: 1, 1: 0, 0: 3}]
)
def test_reordering_is_simultaneous(parents):
    cache, expected = filled()
    copied = cache.reorder(parents)
    before = dict(expected)
    for row, parent in parents.items():
        expected[row] = before[parent]
    agrees(cache, expected)
    moves = [parent for row, parent in parents.items() if row != parent]
    longest = max((len(before[parent][0]) for parent in moves), default=0)
    assert copied == len(moves) * longest * LAYERS * 2 * HEADS * SIZE * 4


def test_a_row_is_used_again():
    cache, expected = filled()
    cache.free(0)
    del expected[0]
    agrees(cache, expected)
    expected[0] = write(cache, cache.allocate(0, 2), seed=9)
    agrees(cache, expected)


def test_memory():
    cache, _ = filled()
    token = LAYERS * 2 * HEADS * SIZE * 4
    use = cache.memory()
    assert use.pool_bytes == 4 * LONGEST * token == sum(layer.nbytes for layer in cache.layers)
    assert use.reserved_bytes == 3 * LONGEST * token
    assert use.used_bytes == 9 * token
    assert use.wasted_bytes == (3 * LONGEST - 9) * token
    assert use.free_bytes == LONGEST * token
    assert "37.5%" in str(use)


def test_a_full_row_is_full():
    cache = make()
    cache.allocate(0, LONGEST)
    with pytest.raises(ArgumentError, match="at most 0: max_seqlen is 8"):
        cache.append([0])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.allocate(0, 1), SequenceStateError, r"free: \[2\]"),
        (lambda c: c.allocate(4, 1), ArgumentError, "0 to 3"),
        (lambda c: c.allocate(2, LONGEST + 1), ArgumentError, "at most 8"),
        (lambda c: c.allocate(2, -1), ArgumentError, "num_tokens"),
        (lambda c: c.append([1, 0], 4), ArgumentError, "5 tokens of row 0"),
        (lambda c: c.append([1, 2]), UnknownSequenceError, "allocate first"),
        (lambda c: c.append([1, 1]), ArgumentError, "each row once"),
        (lambda c: c.append([1], 0), ArgumentError, "num_tokens"),
        (lambda c: c.free(2), UnknownSequenceError, "in use"),
        (lambda c: c.reorder({0: 2}), UnknownSequenceError, "in use"),
        (lambda c: c.reorder({4: 0}), ArgumentError, "0 to 3"),
        (lambda c: c.gather(2, 0), ArgumentError, "layer"),
        (lambda c: c.gather(0, 2), UnknownSequenceError, "in use"),
        (lambda c: c.row(2), ArgumentError, "request"),
        (lambda c: c.row(0, 2), ArgumentError, "beam"),
        (lambda c: c.seq_lens([2]), UnknownSequenceError, "in use"),
    ],
)
def test_refusals_change_nothing(call, error, text):
    cache, expected = filled()
    before = [layer.clone() for layer in cache.layers]
    with pytest.raises(error, match=text):
        call(cache)
    agrees(cache, expected)
    assert all(map(torch.equal, cache.layers, before))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda key: key[:1], "key: got shape"),
        (lambda key: key[:, :1], "key: got shape"),
        (lambda key: key.double(), "key: got torch.float64"),
        (lambda key: key.to("meta"), "key: got device meta"),
    ],
)
def test_wrong_tokens_are_not_written(change, text):
    cache, _ = filled()
    step = cache.append([0, 1])
    before = [layer.clone() for layer in cache.layers]
    key, value = tokens(2, seed=0)
    with pytest.raises(ArgumentError, match=text):
        cache.write(0, change(key), value, step)
    with pytest.raises(ArgumentError, match=text.replace("key", "value")):
        cache.write(0, key, change(value), step)
    with pytest.raises(ArgumentError, match="layer"):
        cache.write(LAYERS, key, value, step)
    assert all(map(torch.equal, cache.layers, before))


@pytest.mark.parametrize(
    "change",
    [
        {"num_layers": 0},
        {"max_batch_size": 0},
        {"max_beam_width": 0},
        {"max_seqlen": 0},
        {"num_kv_heads": 0},
        {"head_size": 1.5},
        {"dtype": torch.int32},
        {"dtype": "float16"},
    ],
)
def test_impossible_sizes(change):
    with pytest.raises(ArgumentError, match=next(iter(change))):
        make(**change)
