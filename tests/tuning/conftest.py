"""Every test has a home of its own: no store, table or compiled kernel comes from an earlier run."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_home(fresh_home):
    return fresh_home
