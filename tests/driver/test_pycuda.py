"""The real PyCUDA on the simulated driver, feature by feature; the page that lists them is made from the same list."""

from __future__ import annotations

from pathlib import Path

import pytest
from pycuda_features import FEATURES, Feature, page

import workbench.driver

PAGE = Path(workbench.driver.__file__).parent / "PYCUDA.md"


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_feature(feature: Feature, pycuda, context):
    feature.run(pycuda)


def test_the_page_lists_them():
    assert PAGE.read_text() == page(), "run: python tests/driver/pycuda_features.py > workbench/driver/PYCUDA.md"
