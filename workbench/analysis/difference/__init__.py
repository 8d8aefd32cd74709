"""Differences between two comparisons or two traces: figures, source lines, and conditions on them."""

from workbench.analysis.difference.conditions import Condition
from workbench.analysis.difference.difference import Difference, diff

__all__ = ["Condition", "Difference", "diff"]
