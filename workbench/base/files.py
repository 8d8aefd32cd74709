"""Atomic writes: a file is written beside its place, then renamed into it, so that it is whole or absent."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from workbench.errors import FileError

LEAST_BYTES = 1 << 20
"""Least free space, in bytes, of a disk for temporary files."""

UNFINISHED = ".writing-"
"""Start of the name of a file that `replace_file` is writing."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def replace_file(
    path: str | os.PathLike[str], content: str | bytes, *, durable: bool = False, mode: int | None = None
) -> None:
    """Give ``path`` this content in one step: a reader, or a crash, meets the old file or the new one, never a part.

    The folder must exist. ``durable`` waits until the content is on the disk; ``mode`` sets the permissions. A path
    that is no regular file, such as ``/dev/null``, is written to directly. Raises FileError, which is an OSError too,
    if it cannot be written; then nothing has changed, and no unfinished file is left.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    unfinished = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        with unfinished.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if mode is not None:
            unfinished.chmod(mode)
        unfinished.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        if not isinstance(error, OSError):
            raise
        kept = "The existing file is unchanged" if path.exists() else "No part of it was written"
        message = f"{path} cannot be written: {error.strerror or error}. {kept}. Free space, or name another place."
        raise FileError(message, error.errno) from error


def append_file(path: str | os.PathLike[str], text: str) -> None:
    """Append a text to a file, which is made if there is none. Raises FileError if it cannot be written."""
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror or error}. Name another place.", error.errno
        ) from error


def out_of_space(error: BaseException | None) -> OSError | None:
    """Return the error in a chain of causes that means a full disk, quota or file limit, or None.

    Such an error is the disk's fault, even if other errors were raised from it.
    """
    seen: set[int] = set()  # an error may be its own cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        nowhere = isinstance(error, FileNotFoundError) and "No usable temporary directory" in str(error)
        if isinstance(error, OSError) and (nowhere or error.errno in _FULL):
            return error
        error = error.__cause__ or error.__context__
    return None


def raise_if_full(error: BaseException) -> None:
    """Raise FileError if a full disk is the cause of an error, which then says nothing about the work that failed."""
    full = out_of_space(error)
    if full is not None and not isinstance(error, FileError):
        places = "results in $WORKBENCH_HOME, compilations in $WORKBENCH_CACHE, temporary files in $TMPDIR"
        raise FileError(f"{full}. Free space, or set a variable to another folder: {places}.", full.errno) from error


def require_space(folder: Path) -> None:
    """Raise FileError if the folder's disk is full, as a later failure to write would blame something else."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < LEAST_BYTES or (found.f_files and not found.f_favail):
        raise FileError(f"{folder}: no space is left on its disk. Free space, or name another $TMPDIR.", errno.ENOSPC)
