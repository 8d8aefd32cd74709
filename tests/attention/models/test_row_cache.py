"""A cache of quantized rows: its bytes, token by token as at once, rotations that cancel where nothing is rounded."""

import pytest
import torch

from workbench.attention.cache_formats import token_rows
from workbench.attention.models import GPT, NoCache
from workbench.attention.models.evaluate import losses
from workbench.attention.models.generation import advance, generate
from workbench.attention.models.row_cache import ROTATIONS, RowCache
from workbench.errors import ArgumentError

EXACT = token_rows.RowCodec("exact", lambda x: x.contiguous().view(torch.uint8), lambda x: x.view(torch.float32), 1)


@pytest.mark.parametrize("rotate", ROTATIONS)
def test_rotations_cancel_where_nothing_is_rounded(tiny, prompt, rotate, monkeypatch):
    monkeypatch.setitem(token_rows.ROW_CODECS, "exact", EXACT)
    window = torch.tensor([prompt])
    exact = losses(tiny, window, NoCache())
    torch.testing.assert_close(losses(tiny, window, RowCache(tiny, "exact", rotate)), exact, rtol=1e-5, atol=0)
    for codec in ("int4", "int2"):
        changed = losses(tiny, window, RowCache(tiny, codec, rotate)) - exact
        assert 1e-4 < float(changed.abs()) < 2.0


@pytest.mark.parametrize("rotate", ROTATIONS)
def test_token_by_token_as_at_once(tiny, prompt, rotate):
    caches = [RowCache(tiny, "int4", rotate) for _ in range(2)]
    whole = advance(tiny, caches[0].begin("a", prompt))[0]
    advance(tiny, caches[1].begin("a", prompt[:9]))
    for token in prompt[9:]:
        last = advance(tiny, caches[1].extend({"a": [token]}))[0]
    torch.testing.assert_close(last, whole, rtol=0, atol=0.05)
    assert caches[0].memory() == caches[1].memory()
    assert caches[0].memory().used_bytes == len(prompt) * 2 * 2 * 2 * (16 // 2 + 4)  # layers, K and V, heads, a row
    caches[1].reorder({"a": "a", "b": "a"})
    caches[1].free("a")
    assert caches[1].length("b") == len(prompt)
    assert caches[1].memory() == caches[0].memory()
    assert len(generate(tiny, prompt, cache=RowCache(tiny, "int4", rotate), max_new_tokens=3)) == 3


def test_refusals(tiny: GPT):
    with pytest.raises(ArgumentError, match="rotate"):
        RowCache(tiny, "int4", "q")
    with pytest.raises(ArgumentError, match="a multiple of 32"):
        RowCache(tiny, "mxfp4")
