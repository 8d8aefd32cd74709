"""Launches under a limit of the process's memory, as a program of its own: each runs or raises a MemoryError.

Prints one JSON row per launch and limit: its name, the room that it was left, and what came of it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ptx_support import module

from workbench import ptx
from workbench.errors import HostMemoryError

MIB = 1 << 20
ROOMS = (0, 1, 4, 16)  # MiB above what the process has; more for none, as a test needs little
_AT = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;"
_STORE = f"""{_AT} ld.param.u64 %d1, [out]; and.b32 %r5, %r4, 1023; mad.wide.u32 %d2, %r5, 4, %d1;
st.global.u32 [%d2], %r5;"""
_OUT = ".param .u64 out"


def _local(size: int) -> str:
    return f".local .align 8 .b8 depot[{size}]; mov.u64 %d3, depot; st.local.u32 [%d3], %r1; {_STORE}"


def _registers(count: int) -> str:
    """So many registers that live at the same time."""
    ones = range(count)
    made = " ".join(f"cvt.u64.u32 %big{i}, %r1;" for i in ones)
    return f".reg .b64 %big<{count}>; {_AT} {made} " + " ".join(f"add.u64 %d5, %d5, %big{i};" for i in ones) + _STORE


_SHARED = f".shared .align 16 .b8 tile[131072]; mov.u32 %r7, tile; {_STORE} st.shared.u32 [%r7], %r1; bar.sync 0;"
_SWEEP = f"""{_AT} ld.param.u64 %d1, [big]; mov.u32 %r6, 0;
AGAIN: mad.wide.u32 %d2, %r4, 4, %d1; ld.global.u32 %r5, [%d2]; add.u32 %r5, %r5, 1; st.global.u32 [%d2], %r5;
add.u32 %r4, %r4, 65536; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 64; @%p1 bra AGAIN;"""
_PRINT = (
    """.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[4000] = {"""
    + ", ".join(["65"] * 3998)
    + """, 10, 0};
"""
)
_PRINTS = f"""{_STORE} cvta.global.u64 %d3, text; mov.u64 %d4, 0;
{{ .param .b64 a; st.param.b64 [a], %d3; .param .b64 b; st.param.b64 [b], %d4; .param .b32 c;
call.uni (c), vprintf, (a, b); }}"""
_COPIES = """.shared .align 16 .b8 tile[16384]; mov.u32 %r7, tile; mad.lo.u32 %r7, %r1, 16, %r7; mov.u32 %r6, 0;
MORE: cp.async.cg.shared.global [%r7], [%d1], 16; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 300; @%p1 bra MORE;
cp.async.wait_all;"""
_BRANCHES = " ".join(
    f"setp.eq.u32 %p2, %r1, {i}; @%p2 bra L{i}; add.u32 %r8, %r8, 1; L{i}: st.shared.u32 [%r7], %r1;"
    for i in range(200)
)


class Launch:
    """A kernel that leaves 0, 1, 2 ... in a buffer of 1024 numbers, or adds to a larger one, and how it is launched."""

    def __init__(self, body: str, grid: int, block: int, *, size: int = 1024, head: str = "", **options: object):
        parameters = ".param .u64 big" if "[big]" in body else _OUT
        if extra := options.pop("parameters", ""):
            parameters += f", {extra}"
        text = module("kernel", parameters, body).replace("sm_80", "sm_90a")
        self.text = text.replace(".visible .entry", f"{head}.visible .entry")
        self.grid, self.block, self.size, self.options = grid, block, size, options
        self.arguments = [bytes(4000)] if extra else []

    def __call__(self) -> None:
        out = np.zeros(self.size, np.uint32)
        report = ptx.Program(self.text)["kernel"].launch(self.grid, self.block, [out, *self.arguments], **self.options)
        assert report.threads >= 1
        if self.size == 1024:
            written = np.arange(report.blocks_run * self.block if "sample" not in self.options else 0)[:1024]
            assert (out[: len(written)] == written).all()


LAUNCHES: dict[str, Callable[[], None]] = {
    "local": Launch(_local(400_000), 2, 1024, threads=1),
    "local, many workers": Launch(_local(400_000), 64, 1024, threads=16),
    "little local, many workers": Launch(_local(40_000), 64, 256, threads=16),
    "registers": Launch(_registers(1500), 4, 1024, threads=4),
    "shared": Launch(_SHARED, 64, 64, threads=64),
    "shared, checked": Launch(_SHARED, 4, 1024, checks=True),
    "shared, checked by workers": Launch(_SHARED, 64, 1024, checks=True, threads=16),
    "checks": Launch(_SWEEP, 64, 1024, size=16 * MIB // 4, checks=True),
    "checks of what nobody wrote": Launch(_SWEEP, 64, 1024, size=16 * MIB // 4, checks=True, uninitialised=(0,)),
    "checks by workers": Launch(_SWEEP, 64, 1024, size=16 * MIB // 4, checks=True, threads=8),
    "counts": Launch(_SWEEP, 64, 1024, size=16 * MIB // 4, statistics=True, threads=2),
    "a recording": Launch(_SWEEP, 64, 1024, size=16 * MIB // 4, record_block=0, threads=2),
    "text": Launch(_PRINTS, 64, 256, head=_PRINT, threads=2),
    "blocks": Launch(_STORE, 1 << 16, 32, threads=2),
    "a sample": Launch(_STORE, 1 << 16, 32, sample=range(0, 1 << 16, 2), statistics=True, threads=2),
    "clusters": Launch(_local(20_000), 64, 256, cluster=8, threads=8),
    "cooperative": Launch(_local(2_000), 108, 1024, cooperative=True),
    "parameters": Launch(_STORE, 4, 64, parameters=".param .align 8 .b8 more[4000]", threads=8),
    "copies": Launch(_STORE + _COPIES, 8, 256, threads=4, checks=True),
    "branches": Launch(f".shared .b32 tile; mov.u32 %r7, tile; {_STORE} {_BRANCHES}", 8, 64, threads=4, checks=True),
    "workers": Launch(_STORE, 1024, 32, threads=256),
}  # fmt: skip


def _process_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _fork() -> None:
    """Make a child that ends at once: the machine keeps none of its threads where its process forks."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def attempt(launch: Callable[[], None], room: int) -> str:
    """Launch with ``room`` MiB more than the process has, and no thread kept from before; the outcome in words."""
    _fork()
    highest = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_process_bytes() + room * MIB, highest))
    try:
        launch()
        return "ran"
    except HostMemoryError as error:
        return f"host memory: {error}"
    except MemoryError:
        return "memory"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (highest, highest))


def main() -> None:
    """Attempt every launch with every room; print rows."""
    Launch(_STORE, 4, 64, threads=2)()  # imports and caches
    sys.stdout.flush()
    with Path("/dev/null").open("w") as nowhere:
        for name, launch in LAUNCHES.items():
            for room in ROOMS:
                printed, sys.stdout = sys.stdout, nowhere
                outcome = attempt(launch, room)
                sys.stdout = printed
                print(json.dumps([name, room, outcome]), flush=True)
                if outcome == "ran":
                    break
    Launch(_STORE, 4, 64, threads=2)()


if __name__ == "__main__":
    main()
