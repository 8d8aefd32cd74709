"""Disk cache of compilations, addressed by the hash of all their inputs.

An entry is one file: a magic line, the SHA-256 of the rest, and named blobs. It is written to a temporary file in the
same folder and renamed, so a reader sees the whole entry or none, even if a process dies. A reader checks the digest;
it names and deletes an entry that is truncated, altered or of another format, and the caller builds it again. Two
processes that build the same entry write the same content; the last rename wins.

Entries lie in folders of two hexadecimal digits. They are kept below a limit (`limit_bytes`): those that were not read
for longest are removed first. The other folders beside them have owners of their own (`workbench.base.home`).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from workbench.base.files import UNFINISHED, replace_file
from workbench.base.home import cache_folder
from workbench.base.own_files import discard, own_folder, read_own
from workbench.errors import ArgumentError

# Increase it whenever the meaning of a stored entry changes; it is part of every key.
FORMAT_VERSION = 5
_MAGIC = b"workbench cache 1\n"

DEFAULT_LIMIT = 2 << 30
"""Default limit of the folder in bytes; it holds some 8,000 kernels."""

_LOOK_EVERY = 256
"""Number of entries that a process stores between two checks of the folder's size; the first entry is checked, too."""

_ABANDONED_SECONDS = 3600
"""Age at which a temporary file is taken for that of a writer that died."""

_HEX = "[0-9a-f]"
_ENTRY = re.compile(rf"{_HEX}{{64}}\.bin")

_stored = itertools.count()


def content_key(parts: object) -> str:
    """Return the SHA-256 (hex) of ``parts`` (nested dicts, lists, strings and numbers) and of the format version."""
    text = json.dumps([FORMAT_VERSION, parts], sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def entry_path(key: str) -> Path:
    """Return the path of the entry ``key``, whether it exists or not."""
    return cache_folder() / key[:2] / f"{key}.bin"


def limit_bytes() -> int:
    """Return the limit of the entries in bytes: ``$WORKBENCH_CACHE_BYTES``, else `DEFAULT_LIMIT`.

    Programs and the builds of judged solutions, whose folders have other owners, have the same limit each.

    Raises ArgumentError if the variable is not a whole number.
    """
    text = os.environ.get("WORKBENCH_CACHE_BYTES", "")
    if text and not text.isdecimal():
        raise ArgumentError("WORKBENCH_CACHE_BYTES", repr(text), "a whole number of bytes", "Set another, or unset it.")
    return int(text) if text else DEFAULT_LIMIT


def load(key: str) -> dict[str, bytes] | None:
    """Return the blobs stored under ``key``, or None if there is no intact entry.

    Raises UnsafeFileError if another account owns, or can write, the entry or a folder that it lies in.
    """
    path = entry_path(key)
    if not path.exists():
        return None
    own_folder(cache_folder(), key[:2])
    data = read_own(path)
    if data is None:
        return None
    blobs = _unpack(data)
    if blobs is None:
        # A damaged entry would be read and refused again and again: remove it, and the caller builds it anew.
        discard(path, "its digest is not that of its content")
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # records the last use, by which `trim` chooses
    return blobs


def store(key: str, blobs: Mapping[str, bytes]) -> bool:
    """Store ``blobs`` under ``key`` atomically; return False if the folder cannot be written, which only costs time.

    Raises UnsafeFileError if another account owns or can write the folder.
    """
    try:
        own_folder(cache_folder(), key[:2])
        replace_file(entry_path(key), _pack(blobs), mode=0o644)
    except OSError:
        return False
    if next(_stored) % _LOOK_EVERY == 0:
        trim()
    return True


def trim(limit: int | None = None) -> int:
    """Trim the folder if it is over the limit: remove the entries unread for longest, down to 9/10 of the limit.

    ``limit`` is in bytes (default: `limit_bytes`). A folder within the limit loses no entry, only temporary files of
    writers that died. An entry that another process is reading stays readable to it. Files that are neither entries nor
    their temporary files are not touched. Returns the number of bytes removed.
    """
    limit = limit_bytes() if limit is None else limit
    entries, abandoned = [], time.time() - _ABANDONED_SECONDS
    for path in cache_folder().glob(f"{_HEX}{_HEX}/*"):
        with contextlib.suppress(OSError):  # removed by another process in between
            found = path.stat()
            if _ENTRY.fullmatch(path.name):
                entries.append((found.st_mtime_ns, found.st_size, path))
            elif path.name.startswith(UNFINISHED) and found.st_mtime < abandoned:
                path.unlink()
    whole = held = sum(size for _, size, _ in entries)
    if whole <= limit:
        return 0
    for _, size, path in sorted(entries):
        if held <= limit * 9 // 10:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            held -= size
    return whole - held


def _pack(blobs: Mapping[str, bytes]) -> bytes:
    index = json.dumps([[name, len(blob)] for name, blob in blobs.items()]).encode()
    payload = len(index).to_bytes(8, "little") + index + b"".join(blobs.values())
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def _unpack(data: bytes) -> dict[str, bytes] | None:
    start = len(_MAGIC) + hashlib.sha256().digest_size
    payload = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(payload).digest() != data[len(_MAGIC) : start]:
        return None
    offset = 8 + int.from_bytes(payload[:8], "little")
    blobs = {}
    for name, size in json.loads(payload[8:offset]):
        blobs[name] = payload[offset : offset + size]
        offset += size
    return blobs
