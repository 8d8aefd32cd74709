"""Folders of caches, stores and the user's tuned tables.

Every file in them has an owner, a module that writes, reads and removes it; no owner removes another one's files. An
owner asks for its folder by `home_part` or `cache_part`, which refuse one that other accounts can write
(`workbench.base.own_files`). Entries of compilations lie in the cache itself, in folders of two hexadecimal digits
(`workbench.toolchain.disk_cache`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from workbench.base.own_files import own_folder

PACKAGE = Path(__file__).resolve().parents[1]
"""Folder of the package, with its modules and data."""


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


def home_part(*names: str) -> Path:
    """Return an owner's folder in `home`, made if there is none. Raises the errors of `own_folder`."""
    return own_folder(home(), *names)


def cache_part(*names: str) -> Path:
    """Return an owner's folder in `cache_folder`, made if there is none. Raises the errors of `own_folder`."""
    return own_folder(cache_folder(), *names)


def temporary_home() -> None:
    """Give this process, and its children, an empty home that is deleted at its end; compilations stay where they are.

    Earlier tuning results are not seen, and new ones change nothing for others.
    """
    os.environ["WORKBENCH_CACHE"] = str(cache_folder())
    os.environ["WORKBENCH_HOME"] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def cuda_sources() -> Path:
    """Return the folder of shipped CUDA C++ sources: inside an installed package, else at the top of the checkout."""
    shipped = PACKAGE / "cuda_src"
    return shipped if shipped.is_dir() else PACKAGE.parent / "cuda_src"
