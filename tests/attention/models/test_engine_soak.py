"""Thousands of random requests and cancels through a pool of a few blocks: none is lost, nothing leaks."""

import random

import pytest
import torch

from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models import GPT, Engine, GPTConfig, NoCache, Sampling

BLOCKS, HOST_BLOCKS, BLOCK_SIZE = 7, 5, 4
SLOTS = BLOCKS * BLOCK_SIZE
NEARLY_EQUAL = 1e-4
"""Of two logits: which of them is larger may depend on the order in which sums of this batch size are rounded."""


@pytest.fixture(scope="module")
def minute():
    """One layer, eleven tokens: a step costs as little as a step can."""
    torch.manual_seed(1)
    model = GPT(
        GPTConfig(
            vocab_size=11, context_length=64, num_layers=1, hidden_size=8, ffn_size=8, num_heads=2, num_kv_heads=1,
            head_size=4,
        )
    )  # fmt: skip
    model.norm.weight.data.mul_(100)
    return model.eval().requires_grad_(False)


def soak(model, number, seed, **options):
    rng = random.Random(seed)
    kv = PagedKVCache(
        num_layers=1, num_blocks=BLOCKS, num_host_blocks=HOST_BLOCKS, block_size=BLOCK_SIZE, num_kv_heads=1,
        head_size=4, dtype=torch.float32, prefix_caching=options.pop("prefix_caching"),
    )  # fmt: skip
    engine, manager = Engine(model, kv, max_num_seqs=5, **options), kv.manager
    accepted, cancelled, streamed, finished = {}, set(), {}, {}
    seen = dict.fromkeys(("refused", "preempted", "swapped", "together"), 0)
    while len(accepted) < number or not engine.idle:
        for _ in range(rng.choice((0, 0, 1, 3)) if len(accepted) < number else 0):
            prompt = rng.choices(range(11), k=rng.randint(1, 12))
            if rng.random() < 0.3:
                prompt = [1, 2, 3, 4, 5, 6, 7, 8, *prompt][: rng.randint(8, 14)]  # a prefix in common
            count = rng.choice((0, 1, 3, 8, 20))
            sampling = Sampling(temperature=rng.choice((0, 0, 1.0)), seed=len(accepted))
            try:
                name = engine.add(prompt, max_new_tokens=count, sampling=sampling, stop=[10])
            except ValueError:
                assert len(prompt) + count - 1 > SLOTS
                seen["refused"] += 1
            else:
                accepted[name] = (prompt, count, sampling)
        if accepted and rng.random() < 0.1:
            victim = rng.choice(list(accepted)[-12:])
            if engine.cancel(victim):
                cancelled.add(victim)
        step = engine.step()
        for name, token in step.tokens.items():
            streamed.setdefault(name, []).append(token)
        for name, result in step.finished.items():
            assert name not in finished, "ended twice"
            finished[name] = result
        seen["preempted"] += len(step.preempted)
        seen["swapped"] += step.swapped > 0
        seen["together"] += step.running > 2
        live = {name for name in accepted if name not in engine.results}
        assert set(manager.sequences) <= live, "a request that has ended holds blocks"
        assert step.running + step.waiting + step.swapped == len(live), "a request is lost"
    assert manager.num_free_blocks == BLOCKS
    assert manager.statistics().used_host_blocks == 0
    assert set(finished) == set(engine.results) == set(accepted)

    different = 0
    for name, (prompt, count, sampling) in accepted.items():
        result = finished[name]
        assert streamed.get(name, []) == result.tokens
        if result.reason == "cancelled":
            assert name in cancelled
            continue
        assert result.reason == ("length" if len(result.tokens) == count else "stop")
        if sampling.temperature:
            continue
        # What it gets alone: as each token follows from those before it, one pass checks them all.
        step = NoCache().begin(0, prompt + result.tokens)
        logits = model.logits(model(step.tokens, step.positions, step.attend))[len(prompt) - 1 : -1]
        for row, token in zip(logits, result.tokens, strict=True):
            if int(row.argmax()) != token:
                assert float(row.max() - row[token]) < NEARLY_EQUAL, name
                different += 1
    assert different <= number // 100
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {"preemption": "recompute", "prefix_caching": True},
        {"preemption": "swap", "prefix_caching": False},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
@pytest.mark.sampled(2)
def test_hundreds_of_requests(minute, options):
    swaps = options["preemption"] == "swap"
    seen = soak(minute, 400, seed=5, **options)
    # It went everywhere, or it would prove little.
    assert min(seen["refused"], seen["preempted"], seen["together"]) > 10, seen
    assert (seen["swapped"] > 10) == swaps, seen


@pytest.mark.long
@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("seed", range(5))
def test_twenty_thousand_requests(minute, seed, preemption, prefix_caching):
    soak(minute, 1000, seed=100 + seed, preemption=preemption, prefix_caching=prefix_caching)
