"""Pictures of one-byte numbers show what they say, and the samples are what they say."""

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from workbench.attention.cache_studies import samples
from workbench.attention.ui.figures import quantization_plots


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_every_positive_code_has_a_mark():
    figure = quantization_plots.codes_on_a_line()
    counts = [[len(line.get_xdata()) for line in ax.lines] for ax in figure.axes]
    assert counts == [[127, 124, 128, 8], [126, 123, 127, 7]]  # without zero on the right


def test_every_point_is_seen():
    errors = {
        "int8": {"per head": (1.0, 0.1), "per token": (1.03, 0.05)},
        "fp8_e4m3": {"per head": (1.0, 0.1), "per token": (1.03, 0.06)},
        "float16": {"no scale": (2.0, 0.001)},
    }
    ax = quantization_plots.error_against_bytes(errors, ylabel="error")
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 0.05], [0.1, 0.06], [0.001]]
    points = [place for line in ax.lines for place in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    assert len({round(x, 2) for x, _ in points}) == len(points), "equal errors stand side by side"
    assert [round(x) for x, _ in points] == [0, 1, 0, 1, 2]
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "per head\n1 B",
        "per token\n1.03 B",
        "no scale\n2 B",
    ]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(errors)
    assert len({line.get_marker() for line in ax.lines}) == len(errors)


def test_outliers_are_channels_of_the_keys():
    keys, values = samples.keys_and_values(300, 4, 64, outlier_channels=3)
    for head in range(4):
        typical = keys[:, head].abs().mean(0).median()
        assert int((keys[:, head].abs().mean(0) > 5 * typical).sum()) == 3
        assert (values[:, head].abs().mean(0) < 2 * values[:, head].abs().mean(0).median()).all()
    figure = quantization_plots.token_maps({"keys": keys[:, 0], "values": values[:, 0]})
    assert [image.get_array().shape for ax in figure.axes[:2] for image in ax.images] == [(300, 64), (300, 64)]
