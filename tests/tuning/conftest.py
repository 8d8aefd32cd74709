"""Every test has a home of its own: no store or table comes from an earlier one."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_home(fresh_home):
    return fresh_home
