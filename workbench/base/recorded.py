"""Recorded results that installed packages ship: sweeps and tuned tables."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from workbench.base.lazy import offered


@functools.cache
def recorded_folders(kind: str) -> tuple[Path, ...]:
    """Return the folders ``recorded/<kind>`` of the packages that the entry points ``workbench.recorded`` name.

    ``kind`` is ``"sweeps"`` or ``"tuned"``. No package is imported.
    """
    specs = [importlib.util.find_spec(point.value) for _, point in sorted(offered("workbench.recorded").items())]
    roots = [Path(root) for spec in specs if spec is not None for root in spec.submodule_search_locations or ()]
    return tuple(root / "recorded" / kind for root in roots)
