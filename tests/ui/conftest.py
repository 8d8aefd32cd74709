"""What the tests of plots have in common."""

import contextlib
import sys

import pytest

with contextlib.suppress(ModuleNotFoundError):  # then what needs it is skipped
    import matplotlib

    matplotlib.use("agg")  # here alone: a notebook's kernel has its own


@pytest.fixture(autouse=True)
def close_figures():
    """Leave no figure open for the next test."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
