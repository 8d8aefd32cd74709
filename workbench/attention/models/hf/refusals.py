"""Refusals of models and calls that the paged cache does not serve."""

from __future__ import annotations

from typing import Any

from workbench.errors import ArgumentError

REMEDY = 'Use another attn_implementation ("sdpa", "eager") for this model.'


def refused(name: str, came: Any, allowed: str) -> ArgumentError:
    """Return the error of a model or call that needs another attention function."""
    return ArgumentError(name, came, allowed, REMEDY)
