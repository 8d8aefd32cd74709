"""The real PyCUDA on the simulated driver, feature by feature; the page that lists them is made from the same list."""

from __future__ import annotations

from pathlib import Path

import pytest
from pycuda_features import FEATURES, Feature, page
from sampling import long_if

import workbench.driver

PAGE = Path(workbench.driver.__file__).parent / "PYCUDA.md"


def is_slow(feature: Feature) -> bool:
    """Tell whether a feature compiles for seconds, as another one does that every run takes."""
    return str(feature) == "array_reductions"


@pytest.mark.parametrize("feature", [long_if(is_slow(one), one, id=str(one)) for one in FEATURES])
def test_feature(feature: Feature, pycuda, context):
    feature.run(pycuda)


def test_the_page_lists_them():
    assert PAGE.read_text() == page(), "run: python tests/driver/pycuda_features.py > workbench/driver/PYCUDA.md"
