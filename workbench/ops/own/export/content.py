"""The content of an exported file: what its sections are written from, and what writing them adds."""

from __future__ import annotations

from typing import Any

from workbench.ops.own.export.code import Collected
from workbench.ops.own.export.expressions import Code
from workbench.ops.own.export.signature import Signature
from workbench.ops.own.problem import Problem


class Content:
    """An op and its variant, as the parts of `workbench.ops.own.export.file` share them."""

    op: Any
    variant: Any
    contract: Any
    declared: Any
    problem: Problem
    config: Any
    """The variant's default configuration of that problem."""
    values: Any
    """The names that expressions may use, for it."""
    rules: list[Any]
    """Those that ``is_legal`` asks: they look at more than the configuration."""
    collected: Collected
    code: Code
    signature: Signature
    winners: list[Any]
    """The fastest configurations, where some were tuned."""
    chosen: bool
    """Whether a call decides which configuration is taken."""
    launch_takes: list[str]
    """The arguments of the function ``launch``."""
    legal_takes: list[str]
    """Those of the function ``is_legal``."""
