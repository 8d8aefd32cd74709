"""What the tests of plots have in common."""

import os
import sys

import pytest

os.environ["MPLBACKEND"] = "Agg"  # matplotlib itself may be missing: then its modules are skipped


@pytest.fixture(autouse=True)
def close_figures():
    """Leave no figure open for the next test."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
