"""A folder of finished compilations, addressed by the hash of everything that went into them.

An entry is one file: a magic line, the SHA-256 of the rest, and named blobs. It is written to a temporary file
in the same folder and renamed, so a reader sees the whole entry or none, whatever process dies when. A reader
checks the digest; an entry that is truncated, altered or of another format is deleted and counts as absent,
so that the caller rebuilds it. Two processes that build the same entry write the same content; the last rename wins.

The folder is kept below a limit (`limit_bytes`): what was not read for longest goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.home import cache_folder
from workbench.errors import ArgumentError

# Raised whenever the meaning of a stored entry changes; it is part of every key.
FORMAT_VERSION = 5
_MAGIC = b"workbench cache 1\n"

DEFAULT_LIMIT = 2 << 30
"""Bytes that the folder may take: some 8,000 kernels."""

_LOOK_EVERY = 256
"""Entries that a process stores before it looks at the size of the folder again; it looks at the first one, too."""

_ABANDONED_SECONDS = 3600
"""Age at which a temporary file belongs to a writer that died."""

_stored = itertools.count()


def content_key(parts: object) -> str:
    """SHA-256 (hex) of ``parts``, any nesting of dicts, lists, strings and numbers, and of the format version."""
    text = json.dumps([FORMAT_VERSION, parts], sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def entry_path(key: str) -> Path:
    """The file that holds, or would hold, the entry ``key``."""
    return cache_folder() / key[:2] / f"{key}.bin"


def limit_bytes() -> int:
    """Bytes that the folder may take: ``$WORKBENCH_CACHE_BYTES``, else `DEFAULT_LIMIT`."""
    text = os.environ.get("WORKBENCH_CACHE_BYTES", "")
    if text and not text.isdecimal():
        raise ArgumentError("WORKBENCH_CACHE_BYTES", repr(text), "a whole number of bytes", "Set another, or unset it.")
    return int(text) if text else DEFAULT_LIMIT


def load(key: str) -> dict[str, bytes] | None:
    """The blobs stored under ``key``; None where there is no whole and unaltered entry."""
    path = entry_path(key)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    blobs = _unpack(data)
    if blobs is None:
        # A damaged entry would be read and refused for ever: remove it, the caller builds it anew.
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the time of its last use, by which `trim` goes
    return blobs


def store(key: str, blobs: Mapping[str, bytes]) -> bool:
    """Store ``blobs`` under ``key`` in one step. False where the folder cannot be written: nothing is lost but time."""
    path = entry_path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _pack(blobs))
    except OSError:
        return False
    if next(_stored) % _LOOK_EVERY == 0:
        trim()
    return True


def trim(limit: int | None = None) -> int:
    """Remove what was not read for longest until the folder is at most 9/10 of ``limit`` (default `limit_bytes`) bytes.

    Nothing happens while it is within the limit. Entries that another process is reading stay readable to it. Returns
    the bytes removed.
    """
    limit = limit_bytes() if limit is None else limit
    entries, abandoned = [], time.time() - _ABANDONED_SECONDS
    for path in cache_folder().glob("*/*"):
        with contextlib.suppress(OSError):  # removed by another process in between
            found = path.stat()
            if path.suffix == ".bin":
                entries.append((found.st_mtime_ns, found.st_size, path))
            elif found.st_mtime < abandoned:
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
