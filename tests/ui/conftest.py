"""What the tests of plots have in common."""

import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    """Leave no figure open for the next test."""
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
