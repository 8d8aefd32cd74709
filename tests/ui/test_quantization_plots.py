"""Pictures of one-byte numbers show what they say, and the samples are what they say."""

import pytest

pytest.importorskip("matplotlib", reason='no matplotlib: python -m pip install -e ".[lab]"')

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from workbench.kvcache import samples
from workbench.ui import quantization_plots


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_every_positive_code_has_a_mark():
    figure = quantization_plots.codes_on_a_line(("int8", "fp8_e4m3", "fp8_e5m2"))
    counts = [[len(line.get_xdata()) for line in ax.lines] for ax in figure.axes]
    assert counts == [[128, 127, 124], [127, 126, 123]]  # without zero on the right


def test_a_point_for_every_granularity():
    errors = {"int8": {"per head": (1.0, 0.1), "per token": (1.03, 0.05)}, "float16": {"no scale": (2.0, 0.001)}}
    ax = quantization_plots.error_against_bytes(errors, ylabel="error")
    points = {(*line.get_xdata(), *line.get_ydata()) for line in ax.lines if len(line.get_xdata()) == 1}
    assert points == {(1.0, 0.1), (1.03, 0.05), (2.0, 0.001)}
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["int8", "float16", "per head", "per token", "no scale"]


def test_outliers_are_channels_of_the_keys():
    keys, values = samples.keys_and_values(300, 4, 64, outlier_channels=3)
    for head in range(4):
        typical = keys[:, head].abs().mean(0).median()
        assert int((keys[:, head].abs().mean(0) > 5 * typical).sum()) == 3
        assert (values[:, head].abs().mean(0) < 2 * values[:, head].abs().mean(0).median()).all()
    figure = quantization_plots.token_maps({"keys": keys[:, 0], "values": values[:, 0]})
    assert [image.get_array().shape for ax in figure.axes[:2] for image in ax.images] == [(300, 64), (300, 64)]
