"""What the package ships: a checkpoint that its record describes, and what was recorded from it."""

import math

import pytest

from workbench.attention.models import (
    generate,
    held_out_documents,
    load_gpt,
    make_cache,
    training_record,
)
from workbench.attention.models.caches import NoCache
from workbench.attention.models.evaluate import losses, windows
from workbench.attention.models.generation import advance
from workbench.attention.models.shipped import FOLDER


@pytest.fixture(scope="module")
def gpt():
    return load_gpt()


def test_the_record_describes_the_checkpoint(gpt):
    model, tokenizer = gpt
    record = training_record()
    assert (FOLDER / "gpt.safetensors").stat().st_size <= 4 * 2**20
    assert record["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert record["licence"].startswith("PSF")
    assert record["cpu_seconds"] <= 30 * 60  # 15 minutes on two cores
    assert record["curve"][-1]["held_out"] < record["curve"][0]["held_out"] - 0.5
    assert set(record["held_out_documents"]) == set(held_out_documents())
    assert tokenizer.vocab_size == model.config.vocab_size


def test_the_held_out_loss_is_the_recorded_one(gpt):
    """On every eighth window: the mean of all is in the record, and a wrong model or tokenizer is far from it."""
    model, tokenizer = gpt
    found = windows(tokenizer, held_out_documents().values(), model.config.context_length)
    assert found.numel() == training_record()["held_out_tokens"]
    loss = losses(model, found[::8], NoCache())
    spread = float(loss.std()) / math.sqrt(len(loss))
    assert float(loss.mean()) == pytest.approx(training_record()["held_out_loss"], abs=4 * spread)
    assert float(loss.mean()) < 0.65 * math.log(model.config.vocab_size)


def test_it_writes_words(gpt):
    model, tokenizer = gpt
    text = tokenizer.decode(generate(model, tokenizer.encode("The with statement"), max_new_tokens=60))
    words = [word for word in text.split() if word.isalpha()]
    known = set(" ".join(held_out_documents().values()).lower().split())
    assert len(words) >= 10
    assert sum(word.lower() in known for word in words) >= 0.7 * len(words)


@pytest.mark.parametrize("text", ["The with statement", "Return a list of"])
def test_real_weights_write_the_same_over_every_unquantized_cache(gpt, text):
    model, tokenizer = gpt
    prompt = tokenizer.encode(text)
    tokens, leads = list(prompt), []
    for _ in range(48):
        best = advance(model, NoCache().begin(0, tokens))[0].topk(2)
        tokens.append(int(best.indices[0]))
        leads.append(float(best.values[0] - best.values[1]))
    # Sums rounded in another order differ by some 1e-5; where the best two are closer, either may be right.
    sure = next((number for number, lead in enumerate(leads) if lead < 1e-3), len(leads))
    assert sure >= 16
    for kind in ("contiguous", "paged"):
        cache = make_cache(kind, model, num_tokens=128)
        assert generate(model, prompt, cache=cache, max_new_tokens=sure, stop=()) == tokens[len(prompt) :][:sure], kind
