"""Folders and files whose content this process trusts: compiled entries, libraries that it loads, programs.

Whoever can write such a file decides what this process computes, or which code it runs. So it must belong to this
account, or to root, and no other account may be able to write it. Folders are made with mode 0700, whatever the umask
is.

A library that we compile ends with a seal: the number of its bytes and their SHA-256. The loader ignores what follows
an ELF file's sections; a file cut short, which would end the process with SIGBUS, has no seal.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
import warnings
from pathlib import Path

from workbench.errors import DamagedFileWarning, FileError, UnsafeFileError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAGIC = b"workbench seal 1\n"
_SEAL_BYTES = 8 + hashlib.sha256().digest_size + len(_MAGIC)


def own_folder(root: Path, *names: str) -> Path:
    """Return the folder ``root/names[0]/...``, made if there is none, after a look at each level's owner and mode.

    Raises UnsafeFileError for a level that another account owns or can write, FileError if it cannot be made.
    """
    folder = root
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for name in (None, *names):
            folder = folder if name is None else folder / name
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            require_own(folder, os.stat(folder), root)
            if not folder.is_dir():
                raise NotADirectoryError(f"{folder} is a file")
    except UnsafeFileError:
        raise
    except OSError as error:
        raise FileError(
            f"{folder} cannot be made: {error.strerror or error}. Name another folder by {_VARIABLES}.", error.errno
        ) from error
    return folder


_VARIABLES = "WORKBENCH_CACHE or WORKBENCH_HOME"


def require_own(path: Path, found: os.stat_result, root: Path | None = None) -> None:
    """Raise UnsafeFileError, with the remedy, if another account owns or can write the file that ``found`` describes.

    ``root`` is the folder that the remedy names; by default ``path`` itself.
    """
    mine, root = os.geteuid(), root or path
    if found.st_uid not in (mine, 0):
        raise UnsafeFileError(
            f"{path} belongs to {_account(found.st_uid)}, and this process runs as {_account(mine)}: its "
            f"contents would be trusted, and its libraries loaded. Delete {root}, take it over (chown -R {mine} "
            f"{root}), or name a folder of your own by {_VARIABLES}."
        )
    if found.st_mode & _OTHERS_WRITE:
        who = "every account" if found.st_mode & stat.S_IWOTH else f"the group {found.st_gid}"
        raise UnsafeFileError(
            f"{path} can be written by {who} (mode {stat.S_IMODE(found.st_mode):04o}): its contents would be "
            f"trusted, and its libraries loaded. Run: chmod -R go-w {root} -- after deleting what others may have put "
            f"there. To share a folder, let root fill it and the others read it: chown -R root {root} && chmod -R "
            f"go-w,a+rX {root}"
        )


def _account(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def read_own(path: Path) -> bytes | None:
    """Return the content of a file, or None if it cannot be read. Raises UnsafeFileError as `require_own` does."""
    try:
        with open(path, "rb") as file:
            require_own(path, os.fstat(file.fileno()))
            return file.read()
    except OSError:
        return None


def discard(path: Path, why: str) -> None:
    """Remove a damaged file that will be made anew, and warn about it by name."""
    with contextlib.suppress(OSError):
        path.unlink()
    kept = "It stays, because it cannot be removed, and is" if path.exists() else "It was removed, and is"
    warnings.warn(f"{path} is damaged: {why}. {kept} made anew.", DamagedFileWarning, stacklevel=3)


# -- sealed files -------------------------------------------------------------------------------------------------


def seal(path: Path) -> None:
    """Append the seal to a finished file, and let only this account write it."""
    with open(path, "rb+") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        size = file.seek(0, os.SEEK_END)
        file.write(size.to_bytes(8, "little") + digest + _MAGIC)
    path.chmod(path.stat().st_mode & ~_OTHERS_WRITE)


def sealed(path: Path) -> bool:
    """Return True if the file is there and whole; a damaged one is removed and named.

    Raises UnsafeFileError as `require_own` does.
    """
    content = read_own(path)
    if content is None:
        return False
    body, end = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    if not end.endswith(_MAGIC):
        discard(path, "its end, with its size and digest, is missing")
        return False
    if end != len(body).to_bytes(8, "little") + hashlib.sha256(body).digest() + _MAGIC:
        discard(path, "its size or digest is not the one that it was written with")
        return False
    return True
