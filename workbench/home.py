"""Where caches, stores and per-user tuned tables live."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The workbench's own folder: ``$WORKBENCH_HOME``, else the platform's user cache folder."""
    override = os.environ.get("WORKBENCH_HOME")
    if override:
        return Path(override).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("workbench")


def cuda_sources() -> Path:
    """The folder of shipped CUDA C++ sources: inside an installed package, else at the top of the checkout."""
    package = Path(__file__).resolve().parent
    shipped = package / "cuda_src"
    return shipped if shipped.is_dir() else package.parent / "cuda_src"
