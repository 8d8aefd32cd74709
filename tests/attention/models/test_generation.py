"""The same text over every cache; draws that a seed repeats; blocks that come back whatever happens."""

import dataclasses

import pytest
import torch

from workbench.attention.kvcache import OutOfBlocksError, PagedKVCache
from workbench.attention.models import (
    PagedCache,
    Sampling,
    beam_search,
    generate,
    make_cache,
    parallel_samples,
    stream,
    stream_text,
)
from workbench.attention.models.generation import advance
from workbench.attention.models.sampling import GenerationError, Sampler, probabilities
from workbench.attention.models.tokenizer import Tokenizer
from workbench.errors import ArgumentError

EXACT = ("none", "contiguous", "paged")
DRAWN = Sampling(temperature=1.0, seed=3)


def greedy_by_hand(model, prompt, count):
    """The likeliest token, again and again, each from a pass over everything; and the smallest lead of any of them."""
    tokens, leads = list(prompt), []
    for _ in range(count):
        logits = advance(model, make_cache("none", model, num_tokens=128).begin(0, tokens))[0]
        best = logits.topk(2)
        tokens.append(int(best.indices[0]))
        leads.append(float(best.values[0] - best.values[1]))
    return tokens[len(prompt) :], min(leads)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33])
def test_greedy_tokens_are_the_same_over_every_unquantized_cache(tiny, prompt, length):
    start = (prompt * 2)[:length]
    expected, lead = greedy_by_hand(tiny, start, 40)
    assert lead > 1e-4  # far above the rounding of another order of sums: the tokens have to be equal
    for kind in EXACT:
        cache = make_cache(kind, tiny, num_tokens=length + 40)
        assert generate(tiny, start, cache=cache, max_new_tokens=40, stop=()) == expected, kind
        assert cache.memory().reserved_bytes == 0


@pytest.mark.parametrize("layout", ["x", "nhd", "hnd"])
@pytest.mark.parametrize("block_size", [1, 5])
def test_layouts_and_block_sizes_change_nothing(tiny, prompt, layout, block_size):
    kv = PagedKVCache(
        num_layers=2, num_blocks=50, block_size=block_size, num_kv_heads=2, head_size=16, dtype=torch.float32,
        layout=layout,
    )  # fmt: skip
    assert (
        generate(tiny, prompt, cache=PagedCache(kv), max_new_tokens=20, stop=()) == greedy_by_hand(tiny, prompt, 20)[0]
    )
    assert kv.manager.num_free_blocks == 50


def test_these_tokens_show_a_wrong_cache(tiny, prompt):
    """What the tests above could not see if the model paid no attention to its past."""
    for position in (0, 12, 20):  # of the prompt's 21 tokens
        cache = make_cache("paged", tiny, num_tokens=64)
        running = stream(tiny, prompt, cache=cache, max_new_tokens=20, stop=())
        found = [next(running)]
        slot = int(cache.kv.slot_mapping("prompt", position, position + 1))
        for key_cache, value_cache in cache.kv.layers:
            for each in (key_cache, value_cache):
                each.view(-1, 2, 16)[slot] = 0.0
        assert found + list(running) != greedy_by_hand(tiny, prompt, 20)[0], position


def test_a_shared_system_prompt_is_computed_once(tiny, prompt):
    kv = PagedKVCache(
        num_layers=2,
        num_blocks=24,
        block_size=4,
        num_kv_heads=2,
        head_size=16,
        dtype=torch.float32,
        prefix_caching=True,
    )
    cache, computed = PagedCache(kv), []
    begin = cache.begin
    cache.begin = lambda seq, tokens: computed.append(begin(seq, tokens)) or computed[-1]
    for question in ([1, 2, 3], [4, 5], [1, 2, 3, 4, 5]):
        found = generate(tiny, prompt + question, cache=cache, max_new_tokens=12, stop=())
        assert found == greedy_by_hand(tiny, prompt + question, 12)[0]
    assert [len(step.tokens) for step in computed] == [24, 3, 2]  # blocks of 4; the third finds the first too
    assert kv.manager.statistics().prefix_hit_rate > 0.5
    assert kv.manager.num_free_blocks == 24


@pytest.mark.parametrize("kind", EXACT)
def test_a_sample_is_what_its_seed_gives_alone(tiny, prompt, kind):
    cache = make_cache(kind, tiny, num_tokens=64, num_seqs=4)
    samples = parallel_samples(tiny, prompt, 4, sampling=DRAWN, max_new_tokens=16, cache=cache)
    assert len({tuple(sample) for sample in samples}) == 4
    for index, sample in enumerate(samples):
        alone = dataclasses.replace(DRAWN, seed=DRAWN.seed + index)
        assert generate(tiny, prompt, sampling=alone, max_new_tokens=16) == sample
    assert cache.memory().reserved_bytes == 0


def test_samples_share_the_blocks_of_their_prompt(tiny, prompt):
    kv = PagedKVCache(num_layers=2, num_blocks=12, block_size=8, num_kv_heads=2, head_size=16, dtype=torch.float32)
    seen = []
    cache = PagedCache(kv)
    extend = cache.extend
    cache.extend = lambda batch: (extend(batch), seen.append(kv.manager.statistics()))[0]
    parallel_samples(tiny, prompt, 4, sampling=DRAWN, max_new_tokens=3, stop=(), cache=cache)
    # 21 tokens: two full blocks of four owners, and a partial one that three of the four had to copy.
    assert [(each.shared_blocks, each.used_blocks) for each in seen] == [(2, 6), (2, 6)]


@pytest.mark.parametrize("kind", EXACT)
def test_beams_are_those_of_a_search_without_cache(tiny, prompt, kind):
    width, length = 4, 10
    beams = [((), 0.0)]
    for _ in range(length):
        grown = []
        for tokens, total in beams:
            logits = advance(tiny, make_cache("none", tiny, num_tokens=64).begin(0, [*prompt, *tokens]))[0]
            chances = torch.log_softmax(logits.double(), 0)
            grown += [((*tokens, token), total + chance) for token, chance in enumerate(chances.tolist())]
        beams = sorted(grown, key=lambda beam: -beam[1])[:width]
    cache = make_cache(kind, tiny, num_tokens=64, num_seqs=width)
    found = beam_search(tiny, prompt, width, max_new_tokens=length, stop=(), cache=cache)
    assert [tuple(beam.tokens) for beam in found] == [tokens for tokens, _ in beams]
    assert [beam.log_probability for beam in found] == pytest.approx([total for _, total in beams], abs=1e-4)
    assert cache.memory().reserved_bytes == 0


def test_beams_end_where_they_stop(tiny, prompt):
    best = beam_search(tiny, prompt, 3, max_new_tokens=8, stop=())[0].tokens
    found = beam_search(tiny, prompt, 3, max_new_tokens=8, stop=[best[2]])
    assert all(best[2] not in beam.tokens for beam in found)
    assert best[:2] in [beam.tokens for beam in found]
    with_penalty = beam_search(tiny, prompt, 3, max_new_tokens=8, stop=[best[2]], length_penalty=1.0)
    scores = [beam.score(1.0) for beam in with_penalty]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("kind", ["paged int8", "paged fp8_e4m3", "paged fp8_e5m2"])
def test_quantized_caches_hold_less_and_write_nearly_the_same(tiny, prompt, kind):
    """A quarter of the bytes of float32, and for every token and head 4 bytes of scale beside its 16."""
    exact, small = (make_cache(name, tiny, num_tokens=64) for name in ("paged", kind))
    for cache in (exact, small):
        cache.begin("a", prompt)
    assert small.memory().used_bytes == exact.memory().used_bytes * (16 + 4) // (4 * 16)
    for cache in (exact, small):
        cache.free("a")
    found = parallel_samples(tiny, prompt, 3, sampling=DRAWN, max_new_tokens=6, stop=(), cache=make_cache(
        kind, tiny, num_tokens=32, num_seqs=3))  # fmt: skip
    assert [len(sample) for sample in found] == [6, 6, 6]
    step = advance(tiny, small.begin("b", prompt))
    torch.testing.assert_close(step, advance(tiny, exact.begin("b", prompt)))  # a prompt sees what was computed
    logits = [advance(tiny, cache.extend({"b": [5]})) for cache in (exact, small)]
    error = float((logits[0] - logits[1]).abs().max())
    bits = {"paged int8": 6, "paged fp8_e4m3": 4, "paged fp8_e5m2": 3}[kind]  # that a number keeps
    assert 0 < error < 2.0**-bits * float(logits[0].abs().max())


def test_a_draw_follows_its_distribution():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])
    chances = probabilities(logits, Sampling(temperature=0.5))
    torch.testing.assert_close(chances, torch.softmax(logits.double() / 0.5, 0))
    assert probabilities(logits, Sampling(1.0, top_k=2)).count_nonzero() == 2
    nucleus = probabilities(logits, Sampling(1.0, top_p=0.7))  # 0.64 is not enough, 0.64 + 0.24 is
    assert nucleus.nonzero().flatten().tolist() == [0, 1]
    torch.testing.assert_close(nucleus[:2], torch.softmax(logits[:2].double(), 0))
    assert probabilities(logits, Sampling(1.0, top_p=1e-9)).nonzero().flatten().tolist() == [0]
    sampler = Sampler(Sampling(1.0, top_k=4, seed=1))
    drawn = torch.bincount(torch.tensor([sampler.pick(logits) for _ in range(4000)]), minlength=5) / 4000
    torch.testing.assert_close(drawn, probabilities(logits, Sampling(1.0, top_k=4)).float(), atol=0.03, rtol=0)


def test_text_streams_in_whole_characters(tiny):
    tokenizer = Tokenizer([(97, 98)] * 43)
    pieces = list(stream_text(tiny, tokenizer, "ab", max_new_tokens=30, sampling=DRAWN, stop=()))
    tokens = generate(tiny, tokenizer.encode("ab"), max_new_tokens=30, sampling=DRAWN, stop=())
    assert "".join(pieces) == tokenizer.decode(tokens)


def test_a_stop_token_ends_the_text(tiny, prompt):
    tokens = generate(tiny, prompt, max_new_tokens=20, stop=())
    assert generate(tiny, prompt, max_new_tokens=20, stop=[tokens[5]]) == tokens[: tokens.index(tokens[5])]


# -- what is refused, and that nothing stays behind -------------------------------------------------------------------


@pytest.mark.parametrize("call", [generate, lambda *a, **o: parallel_samples(*a, 2, sampling=DRAWN, **o),
                                  lambda *a, **o: beam_search(*a, 2, **o)])  # fmt: skip
def test_bad_prompts(tiny, call):
    for prompt, message in (
        ([], "no tokens"),
        ([1, 300], "300; allowed: token ids from 0 to 299"),
        ([-1], "-1"),
        ([1.5], "1.5"),
        ([1] * 130, "128 in all"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call(tiny, prompt, max_new_tokens=4)
    with pytest.raises(ArgumentError, match="max_new_tokens"):
        call(tiny, [1], max_new_tokens=-1)


def test_no_new_tokens_is_an_empty_result(tiny, prompt):
    assert generate(tiny, prompt, max_new_tokens=0) == []
    assert parallel_samples(tiny, prompt, 2, sampling=DRAWN, max_new_tokens=0) == [[], []]
    assert [beam.tokens for beam in beam_search(tiny, prompt, 2, max_new_tokens=0)] == [[]]


def test_blocks_come_back_from_every_end(tiny, prompt):
    cache = make_cache("paged", tiny, num_tokens=32)
    pool = cache.kv.manager.num_free_blocks
    with pytest.raises(OutOfBlocksError):  # longer than the pool
        generate(tiny, prompt * 2, cache=cache, max_new_tokens=4)
    assert cache.kv.manager.num_free_blocks == pool
    with pytest.raises(OutOfBlocksError):  # runs out on the way
        generate(tiny, prompt, cache=cache, max_new_tokens=40, stop=())
    assert cache.kv.manager.num_free_blocks == pool
    running = stream(tiny, prompt, cache=cache, max_new_tokens=8)
    next(running)
    assert cache.kv.manager.num_free_blocks < pool
    running.close()
    assert cache.kv.manager.num_free_blocks == pool
    with pytest.raises(OutOfBlocksError):
        parallel_samples(tiny, prompt, 3, sampling=DRAWN, max_new_tokens=8, cache=cache)
    with pytest.raises(OutOfBlocksError):
        beam_search(tiny, prompt, 3, max_new_tokens=8, cache=cache)
    assert cache.kv.manager.num_free_blocks == pool
    rows = make_cache("contiguous", tiny, num_tokens=64, num_seqs=2)
    with pytest.raises(ArgumentError, match="running sequences"):
        parallel_samples(tiny, prompt, 3, sampling=DRAWN, max_new_tokens=8, cache=rows)
    assert rows.memory().reserved_bytes == 0


def test_logits_that_are_no_numbers_are_an_error(tiny, prompt):
    cache = make_cache("paged", tiny, num_tokens=64)
    running = stream(tiny, prompt, cache=cache, max_new_tokens=8, stop=())
    next(running)
    cache.kv.layers[0][1].fill_(float("nan"))
    with pytest.raises(GenerationError, match="300 of 300"):
        list(running)
    assert not cache.kv.manager.sequences


def test_bad_sampling():
    for wrong in ({"temperature": -1}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 0}, {"top_p": 1.1}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            Sampling(**wrong)
    with pytest.raises(ArgumentError, match="fp8"):
        make_cache("fp4", None, num_tokens=1)
