"""The page about the checks, with a table of which planted races they find: ``python tests/ptx/fuzz --page``."""

from __future__ import annotations

from pathlib import Path

from fuzz import races

PAGE = Path(__file__).parents[3] / "workbench" / "ptx" / "CHECKS.md"
SEEDS = range(6)  # of each class

HEAD = """# What the checks find

`checks=True` of a launch, `wb.check_kernel` and `workbench run --check` find accesses out of bounds or misaligned,
reads of shared memory and of declared buffers that nobody wrote, barriers and warp-wide functions that not all reach,
copies that are read before they landed, and races. Two accesses race if neither comes before the other and one of them
is a plain store; what comes before what follows from barriers, `__syncwarp()`, fences with flags, acquire and release.

## Races, by class

Each class is planted in random kernels, with what orders the two accesses and without it; both orders of a block's
warps are looked at, as `wb.check_kernel` does. Written by `python tests/ptx/fuzz --page`; a test compares. Every run of
the tests draws new ones.

| memory | between | accesses | what is missing | found | false alarms with it |
|---|---|---|---|---|---|
"""

TAIL = """
## Bulk copies and products of warp groups (sm_90)

A bulk load lands when somebody asks for the phase of its mbarrier that needs nothing else, a bulk store reads its
source and writes when its lane waits for it: no earlier, so that who does not wait sees the old bytes. With
`copies_early=True` both happen at once; `check_kernel` and `check` run a kernel once so and once so. A product computes
when a warp gets there, and is over when all four warps have. In the second order of warps `try_wait` gives up once for
each phase, as it may.

| finding | what it says |
|---|---|
| missing fence.proxy.async | a product or a bulk store reads what ordinary stores wrote, without the fence in between |
| write to shared memory that is being read | a stage is written or filled again before its readers are done |
| cp.async data read before wait | a stage is read, or filled again, before its load has landed |
| register of a running product touched | D or A is touched before `wgmma.wait_group`; found before a launch |
| missing wgmma.fence | something wrote a register of D or A since the last one; found before a launch |
| deadlock | with the mbarrier's parity, arrivals that are missing, bytes expected and bytes that come |
| mbarrier misuse | arrivals beyond what the phase waits for, an mbarrier that nobody initialised |
| cluster misuse | shared memory of a block that may not have begun or has ended; a rank that is not there |
| async copy or product misuse | rules of tensor maps and descriptors; a block that ends before its stores have read |
| results that copies' timing changes | copies that land at once leave other bytes than late ones (without atomics) |

## What is not found, and why

* A race that these inputs, this grid or this path through the kernel do not show: the checks look at what is executed.
* Races with atomics that the table does not show as found: an atomic or volatile access orders the lanes of its warp
  with what they did before, and in global memory leaves no trace for what follows. A plain load beside an atomic is a
  finding in shared memory only.
* Stores that leave the bytes as they are, and several stores of the same value: they are harmless.
* Order that came about by chance: a flag that was read early enough orders what follows, in this run.
* Of more than two concurrent readers of a byte of global memory two are kept; when the list of extra records is half
  full, accesses of one warp share a record, and races between its lanes go unseen (core/global_shadow.hpp).
* Loads whose value nothing uses, in kernels whose threads repeat each other's work (Triton).
* Between blocks of a cluster: races in each other's shared memory. What another block wrote counts as written.
* A fence between initialising an mbarrier and a copy that counts on it.
"""


def markdown() -> str:
    """The page."""
    found, seen = races.count(races.KINDS, SEEDS)
    rows = []
    for kind in races.KINDS:
        alarms = sum(bool(one.false_alarm) for one in seen if one.kind == kind)
        columns = kind.memory, kind.between, kind.pair, f"`{kind.order}`", f"{found[kind]} of {len(SEEDS)}", str(alarms)
        rows.append("| " + " | ".join(columns) + " |")
    return HEAD + "\n".join(rows) + "\n" + TAIL
