"""Pictures of attention show what they are given."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

import torch

from workbench.attention.ui.figures.attention_plots import (
    attention_flow,
    kv_sharing,
    online_softmax_trace,
    score_panels,
)
from workbench.ui.plots import OKABE_ITO


def test_the_flow_shows_what_reaches_one_token():
    n, d, token = 5, 3, 2
    ax = attention_flow(num_tokens=n, head_size=d, token=token)
    assert len(ax.patches) == 4 * n * d + 2 * n * n
    hatched = [patch for patch in ax.patches if patch.get_hatch()]
    assert len(hatched) == 2 * n * (n - 1) // 2, "above the diagonal, in scores and in weights"
    blue, orange, green, pink, sky, vermillion = (matplotlib.colors.to_rgb(colour) for colour in OKABE_ITO[:6])
    counts = dict.fromkeys((blue, orange, green, pink, sky, vermillion), 0)
    for patch in ax.patches:
        colour = patch.get_facecolor()[:3]
        counts[colour] = counts.get(colour, 0) + 1
    seen = token + 1
    assert [counts[c] for c in (blue, vermillion)] == [d, d], "one query, one output"
    assert [counts[c] for c in (orange, green)] == [seen * d, seen * d], "keys and values up to the token"
    assert [counts[c] for c in (sky, pink)] == [seen, seen], "itself included"


def test_score_panels_write_each_number():
    scores = torch.tensor([[1.0, -torch.inf], [0.0, 3.25]])
    figure = score_panels({"masked": scores}, scores == -torch.inf)
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == ["1.00", "$-\\infty$", "0", "3.25"]
    assert [patch.get_hatch() for patch in ax.patches] == ["////"]


@pytest.mark.parametrize("num_kv_heads", [1, 2, 8])
def test_kv_sharing_draws_a_line_per_query_head(num_kv_heads):
    ax = kv_sharing(8, num_kv_heads)
    ends = [line.get_xdata()[1] for line in ax.lines]
    assert len(ends) == 8
    assert len(set(ends)) == num_kv_heads


def test_online_softmax_trace_tells_rescaled_sums_from_kept_ones():
    above, below = online_softmax_trace([0.0, 1.0, 2.0, 1.5, 0.5], 2, [1.0, 2.0, 2.0], [1.4, 2.1, 2.3])
    assert [text.get_text() for text in below.texts] == ["start", "× 0.37", "kept"]
    assert above.get_xlim() == (-0.5, 5.5), "three blocks of two"
    assert any(patch.get_hatch() == "////" for patch in above.patches), "the slot without a token"
