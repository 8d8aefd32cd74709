"""A folder of finished compilations, addressed by the hash of everything that went into them.

An entry is one file: a magic line, the SHA-256 of the rest, and named blobs. It is written to a temporary file
in the same folder and renamed, so a reader sees the whole entry or none, whatever process dies when. A reader
checks the digest; an entry that is truncated, altered or of another format is deleted and counts as absent,
so that the caller rebuilds it. Two processes that build the same entry write the same content; the last rename wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from workbench.home import home

# Raised whenever the meaning of a stored entry changes; it is part of every key.
FORMAT_VERSION = 2
_MAGIC = b"workbench cache 1\n"


def cache_folder() -> Path:
    """Where compilations are kept: ``home()/"cache"``."""
    return home() / "cache"


def content_key(parts: object) -> str:
    """SHA-256 (hex) of ``parts``, any nesting of dicts, lists, strings and numbers, and of the format version."""
    text = json.dumps([FORMAT_VERSION, parts], sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def entry_path(key: str) -> Path:
    """The file that holds, or would hold, the entry ``key``."""
    return cache_folder() / key[:2] / f"{key}.bin"


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
    return blobs


def store(key: str, blobs: Mapping[str, bytes]) -> bool:
    """Store ``blobs`` under ``key`` in one step. False where the folder cannot be written: nothing is lost but time."""
    path = entry_path(key)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".writing-", delete=False) as file:
            temporary = file.name
            file.write(_pack(blobs))
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


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
