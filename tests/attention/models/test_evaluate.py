"""Perplexity over a cache: the plain one where the cache is exact, with intervals that hold."""

import math
import random

import pytest
import torch

from workbench.attention.kvcache import OutOfBlocksError, PagedKVCache
from workbench.attention.models import NoCache, PagedCache, make_cache
from workbench.attention.models.activations import record
from workbench.attention.models.caches import TOKEN_SCALES
from workbench.attention.models.calibration import calibrated_scales
from workbench.attention.models.evaluate import losses, perplexities, token_stream, windows
from workbench.attention.models.generation import advance
from workbench.attention.models.tokenizer import END_OF_TEXT, Tokenizer
from workbench.errors import ArgumentError

TOKENIZER = Tokenizer([])


@pytest.fixture
def text_windows():
    rng = random.Random(3)
    return windows(TOKENIZER, ["".join(rng.choices("abcdef ", k=120)) for _ in range(3)], 40)


def paged(tiny, read_back=False, **options):
    sizes = {"num_layers": 2, "num_blocks": 6, "block_size": 8, "num_kv_heads": 2, "head_size": 16}
    return PagedCache(PagedKVCache(dtype=torch.float32, **sizes, **options), read_back=read_back)


def test_windows_cover_the_text_once():
    found = windows(TOKENIZER, ["abc", "defg"], 3)
    stream = token_stream(TOKENIZER, ["abc", "defg"]).tolist()
    assert stream == [END_OF_TEXT, *b"abc", END_OF_TEXT, *b"defg", END_OF_TEXT]
    assert found.tolist() == [stream[0:4], stream[3:7], stream[6:10]]
    with pytest.raises(ArgumentError, match="at least 21"):
        windows(TOKENIZER, ["abc"], 20)


@pytest.mark.parametrize("kind", ["paged", "paged int8", "paged fp8_e4m3"])
@pytest.mark.parametrize("scales", [TOKEN_SCALES, {"k_scale": 0.03, "v_scale": [0.02, 0.05]}], ids=["token", "layer"])
def test_a_window_read_through_the_cache_is_the_text_token_by_token(tiny, text_windows, kind, scales):
    """What makes one pass with ``read_back`` stand for generating: the losses are those of decode steps."""

    def make(**options):
        return make_cache(kind, tiny, num_tokens=48, block_size=8, scales=scales, **options)

    through = losses(tiny, text_windows[:2], make(read_back=True))
    for window, loss in zip(text_windows[:2].tolist(), through.tolist(), strict=True):
        cache = make(read_back=True)
        logits = [advance(tiny, cache.begin("window", window[:1]))[0]]
        logits += [advance(tiny, cache.extend({"window": [token]}))[0] for token in window[1:-1]]
        chances = torch.log_softmax(torch.stack(logits).double(), dim=-1)
        alone = -chances[torch.arange(len(window) - 1), window[1:]].mean()
        # A code that rounds the other way after sums in another order moves the loss a little.
        assert loss == pytest.approx(float(alone), abs=1e-5 if kind == "paged" else 5e-3)


def test_what_the_cache_keeps_is_what_counts(tiny, text_windows):
    """With ``read_back`` a quantized cache that loses more changes the loss; without it the prompt would hide that."""
    exact = losses(tiny, text_windows[:2], NoCache())
    for read_back in (False, True):
        cache = paged(tiny, read_back=read_back, kv_cache_dtype="int8", **TOKEN_SCALES)
        write = cache.kv.write
        cache.kv.write = lambda layer, key, value, slots, write=write: write(layer, key * 0.5, value, slots)
        assert torch.allclose(losses(tiny, text_windows[:2], cache), exact, atol=1e-4) != read_back


def test_rows_and_their_intervals(tiny, text_windows):
    rows = perplexities(
        tiny,
        text_windows,
        {"none": NoCache, "paged": lambda: paged(tiny, read_back=True), "again": NoCache},
    )
    mean = float(losses(tiny, text_windows, NoCache()).mean())
    assert rows[0].value == pytest.approx(math.exp(mean))
    for row in rows:
        assert row.low < row.value < row.high
        assert row.value == pytest.approx(rows[0].value, rel=1e-4)
        assert row.ratio_low <= row.ratio <= row.ratio_high
        assert row.ratio == pytest.approx(1, abs=1e-4)
    assert "again" in str(rows[2])
    with pytest.raises(ArgumentError, match="two or more"):
        perplexities(tiny, text_windows[:1], {"none": NoCache})


def test_intervals_cover_the_mean_as_often_as_they_say():
    """Of many samples of a known mean, about 95 % of the intervals hold it."""
    from workbench.attention.models.evaluate import _interval

    generator = torch.Generator().manual_seed(0)
    hits = 0
    for _ in range(200):
        values = torch.randn(60, generator=generator, dtype=torch.float64)
        drawn = torch.randint(60, (400, 60), generator=generator)
        low, high = _interval(values, drawn)
        hits += math.log(low) < 0 < math.log(high)
    assert 180 <= hits <= 199


def test_a_window_longer_than_the_pool_leaves_nothing_behind(tiny, text_windows):
    cache = make_cache("paged", tiny, num_tokens=16)
    with pytest.raises(OutOfBlocksError, match="blocks needed"):
        losses(tiny, text_windows, cache)
    assert not cache.kv.manager.sequences


def test_calibrated_scales_cover_what_they_saw(tiny, text_windows):
    """Nothing of the calibration text saturates; a scale for each head is never wider than the layer's."""
    texts = text_windows[:3].tolist()
    seen = record(tiny, texts[0])
    for dtype, largest in (("int8", 127), ("fp8_e4m3", 448)):
        layer_wide = calibrated_scales(tiny, texts, dtype, per_head=False)
        by_head = calibrated_scales(tiny, texts, dtype)
        for name, tensors in (("k_scale", seen["keys"]), ("v_scale", seen["values"])):
            for layer in range(2):
                wide, heads = layer_wide[name][layer], by_head[name][layer]
                assert wide.shape == (1,)
                assert heads.shape == (2,)
                assert float(heads.max()) == float(wide)
                assert bool((tensors[layer].abs().amax((0, 2)) <= heads * largest * 1.0001).all())
    cut = calibrated_scales(tiny, texts, "int8", percentile=90)
    assert all(
        bool((a < b).all())
        for a, b in zip(cut["k_scale"], calibrated_scales(tiny, texts, "int8")["k_scale"], strict=True)
    )


def test_a_scale_that_fits_loses_less(tiny, text_windows):
    """INT8 logits against exact ones: a scale eight times too large costs several times as much."""
    texts = text_windows[-3:].tolist()
    fitting = calibrated_scales(tiny, texts, "int8")
    broken = {name: [8 * scale for scale in scales] for name, scales in fitting.items()}

    def logits(cache):
        step = cache.begin("a", text_windows[0].tolist())
        return tiny.logits(tiny(step.tokens, step.positions, step.attend))

    exact = logits(NoCache())
    errors = {
        name: float(
            (logits(make_cache("paged int8", tiny, num_tokens=48, scales=scales, read_back=True)) - exact).std()
        )
        for name, scales in {"token": TOKEN_SCALES, "head": fitting, "broken": broken}.items()
    }
    assert 0 < errors["token"] < errors["head"] < 0.03 * float(exact.std())
    assert errors["broken"] > 3 * errors["head"]
