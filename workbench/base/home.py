"""Where caches, stores and per-user tuned tables live."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def home() -> Path:
    """The workbench's own folder: ``$WORKBENCH_HOME``, else the platform's user cache folder."""
    override = os.environ.get("WORKBENCH_HOME")
    if override:
        return Path(override).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("workbench")


def cache_folder() -> Path:
    """Where compilations are kept: ``$WORKBENCH_CACHE``, else ``home()/"cache"``."""
    override = os.environ.get("WORKBENCH_CACHE")
    return Path(override).expanduser().absolute() if override else home() / "cache"


def temporary_home() -> None:
    """Give this process, and those that it starts, an empty home that ends with it; compilations stay where they are.

    What was tuned before is not seen, and what is tuned from here on changes nothing for others.
    """
    os.environ["WORKBENCH_CACHE"] = str(cache_folder())
    os.environ["WORKBENCH_HOME"] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def cuda_sources() -> Path:
    """The folder of shipped CUDA C++ sources: inside an installed package, else at the top of the checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "cuda_src"
    return shipped if shipped.is_dir() else package.parent / "cuda_src"
