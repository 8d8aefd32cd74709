"""Memory moved to huge pages keeps its content, and forks of the process have it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from workbench.base.processes.huge_pages import use_huge_pages


def _huge_kib() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


def test_memory_keeps_its_content():
    size = 8 << 20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        content = bytes(range(256)) * (size // 256)
        memory[:] = content
        before = _huge_kib()
        use_huge_pages()
        assert memory[:] == content
        assert _huge_kib() >= before
        child = os.fork()
        if child == 0:
            os._exit(memory[:] != content)
        assert os.waitpid(child, 0)[1] == 0
