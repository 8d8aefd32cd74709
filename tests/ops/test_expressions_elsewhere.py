"""Expressions on their way to another process."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from workbench.base import by_value
from workbench.ops.expressions import Expression


def test_no_module_is_searched_for_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of all that torch and Triton import takes longer than the compilation of a kernel."""
    asked = []

    class Asked(ModuleType):
        def __getattr__(self, name: str) -> object:
            asked.append(name)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "asked", Asked("asked"))
    sent = by_value.loads(by_value.dumps(Expression.of("grid", "cdiv(rows, 4)")))
    assert (sent.where, sent({"rows": 9})) == ("grid", 3)
    assert "<lambda>" not in asked
