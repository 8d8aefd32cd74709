"""Differences between two comparisons or two traces: figures, source lines, and conditions on them."""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "Condition": "workbench.analysis.difference.conditions",
    "Difference": "workbench.analysis.difference.difference",
    "diff": "workbench.analysis.difference.difference",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.analysis.difference.conditions import Condition as Condition
    from workbench.analysis.difference.difference import Difference as Difference
    from workbench.analysis.difference.difference import diff as diff


__getattr__, __dir__ = lazily(__name__, _LAZY)
