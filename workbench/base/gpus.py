"""Published figures of GPUs and architectures: the package data ``gpus.json``, which every other table is made from."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("gpus.json")


@functools.cache
def gpu_figures() -> Mapping[str, Any]:
    """Return the file's content.

    ``devices`` has the figures of each GPU by its key, ``architectures`` those that the GPUs of an architecture share,
    ``multiprocessor_limits`` what one multiprocessor of each architecture holds, ``sources`` the publications.
    """
    return json.loads(_FILE.read_text())
