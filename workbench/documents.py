"""What the commands print with ``--json``: objects of one family, named and versioned by ``schema``.

``workbench-doctor/1``, ``workbench-compare/1``, ``workbench-trace/1`` and ``workbench-tune/1`` have ``schema``,
``workbench`` (the version that wrote them) and what their command found. A field may be added within a version; one
that changes its meaning, or goes, makes the next.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from workbench import __version__


def document(kind: str, **content: object) -> str:
    """An object as JSON; infinities and NaN, which JSON lacks, are null."""
    return json.dumps({"schema": f"workbench-{kind}/1", "workbench": __version__} | _plain(content), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
