"""The pip of this environment, and the folder of wheels built here: the tools of ``workbench setup``."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.base.home import home_part
from workbench.base.own_files import own_folder
from workbench.errors import MissingToolError


def pip(*arguments: str, needs: str, environment: Mapping[str, str] | None = None) -> None:
    """Run pip; if it fails, raise MissingToolError with the sentence ``needs`` and the last lines of pip's output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if done.returncode != 0:
        lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
        raise MissingToolError("\n".join([f"pip {arguments[0]} failed. {needs}:", *lines[-12:]]))


@contextlib.contextmanager
def kept_wheels() -> Iterator[Path]:
    """Lock and yield the folder of wheels built here: a second process waits, then finds the wheel built.

    It is ``$WORKBENCH_WHEELS``, else the folder ``wheels`` in the workbench's home. Raises UnsafeFileError if other
    accounts can write it.
    """
    given = os.environ.get("WORKBENCH_WHEELS")
    folder = own_folder(Path(given)) if given else home_part("wheels")
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def kept_wheel(folder: Path, stem: str) -> Path | None:
    """Return the kept wheel for this Python whose name starts with ``stem`` (package and version), or None."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next(iter(sorted(folder.glob(f"{stem}-{tag}-*.whl"))), None)


def unpack_source(folder: Path, package: str, version: str) -> Path:
    """Unpack the source archive that pip downloaded into ``folder``, and return the folder of the package."""
    with tarfile.open(next(folder.glob(f"{package}-*.tar.gz"))) as archive:
        # Python 3.11.0 to 3.11.3 have no filters.
        filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **filters)
    return folder / f"{package}-{version}"


def isolation() -> tuple[str, ...]:
    """Return pip's option to build with this environment's setuptools and NumPy, if it has both.

    Without the option pip installs them anew into an isolated environment for each step.
    """
    present = all(importlib.util.find_spec(name) for name in ("setuptools", "numpy"))
    return ("--no-build-isolation",) if present else ()
