"""Folders of caches, stores and the user's tuned tables."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def home() -> Path:
    """Return the workbench's own folder: ``$WORKBENCH_HOME``, else the platform's user cache folder."""
    override = os.environ.get("WORKBENCH_HOME")
    if override:
        return Path(override).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("workbench")


def cache_folder() -> Path:
    """Return the folder that keeps compilations: ``$WORKBENCH_CACHE``, else ``home()/"cache"``."""
    override = os.environ.get("WORKBENCH_CACHE")
    return Path(override).expanduser().absolute() if override else home() / "cache"


def temporary_home() -> None:
    """Give this process, and its children, an empty home that is deleted at its end; compilations stay where they are.

    Earlier tuning results are not seen, and new ones change nothing for others.
    """
    os.environ["WORKBENCH_CACHE"] = str(cache_folder())
    os.environ["WORKBENCH_HOME"] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def cuda_sources() -> Path:
    """Return the folder of shipped CUDA C++ sources: inside an installed package, else at the top of the checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "cuda_src"
    return shipped if shipped.is_dir() else package.parent / "cuda_src"
