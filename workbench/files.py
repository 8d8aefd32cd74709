"""Files that are whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def replace_file(path: str | os.PathLike[str], content: str | bytes, *, durable: bool = False) -> None:
    """Give ``path`` this content in one step: a reader, or a crash, meets the old file or the new one, never a part.

    The folder must exist. ``durable`` waits until the content is on the disk. Raises OSError where it cannot be
    written; then nothing has changed, and no unfinished file is left.
    """
    path = Path(path)
    unfinished = path.with_name(f".writing-{uuid.uuid4().hex}")
    try:
        with unfinished.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
