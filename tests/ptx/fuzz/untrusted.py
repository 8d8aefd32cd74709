"""Damaged files and images against their readers: a result or a WorkbenchError, never another exception or a crash."""

from __future__ import annotations

import base64
import random
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from fuzz.readers import READERS
from workbench.errors import WorkbenchError

READS = 40  # of one round
SLOW = 20.0  # seconds of one read that count as a hang


def draw_reads(seed: int) -> Iterator[tuple[str, bytes]]:
    """Draw readers and a damaged sample for each."""
    draw = random.Random(seed)
    for _ in range(READS):
        name = draw.choice(list(READERS))
        reader = READERS[name]
        yield name, reader.change(draw.choice(reader.samples()), draw)


def judge(name: str, data: bytes, folder: Path) -> str:
    """Read the bytes; return what is wrong with how that went, or nothing."""
    started = time.monotonic()
    try:
        READERS[name].read(data, folder)
    except WorkbenchError:
        pass
    except Exception:
        shown = base64.b85encode(data).decode() if len(data) < 20_000 else f"{len(data)} bytes"
        return f"{name}: {traceback.format_exc()}\nbase85: {shown}"
    seconds = time.monotonic() - started
    return f"{name}: {seconds:.0f} s for {len(data)} bytes" if seconds > SLOW else ""


def faults(seed: int) -> Iterator[str]:
    """Faults of one round. Where the process ends, what it read last is in ``workbench-bytes-*/input`` among the
    system's temporary files."""
    with tempfile.TemporaryDirectory(prefix="workbench-bytes-") as folder:
        for name, data in draw_reads(seed):
            (Path(folder) / "input").write_bytes(name.encode() + b"\n" + data)
            if wrong := judge(name, data, Path(folder)):
                yield wrong
