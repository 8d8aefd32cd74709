"""What a launch on the PTX machine may be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Shape = int | Sequence[int]
"""Up to three sizes or coordinates (x, y, z)."""


def coordinates(index: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The (x, y, z) of a block in its grid, or of a thread in its block."""
    return index % shape[0], index // shape[0] % shape[1], index // shape[0] // shape[1]


UNDEFINED_BITS = (0xFFFF_FFFF, 0x5A5A_5A5A)  # a NaN, and -1; and where two launches are compared, 1.5e16


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How the PTX machine runs a launch of given shape and arguments, and what it counts, checks and keeps."""

    cluster: Shape | None = None
    """The blocks along x, y, z that run together and reach each other's shared memory; None: what the kernel requires,
    else 1."""
    cooperative: bool = False
    """All blocks run at the same time, in turns on one OS thread, so that they can wait for each other
    (``grid.sync()``); a device refuses more than fit on it together."""

    statistics: bool = False
    """Counts memory traffic by instruction, in ``report.lines`` and ``report.buffers``; costs time."""
    checks: bool = False
    """Looks for races, uninitialised reads and misused barriers, in ``report.findings``; costs time."""
    record_block: Shape | None = None
    """The (x, y, z) of one block whose requests and waits are kept one by one, in ``report.recording``; the others run
    as before."""
    sample: Sequence[Shape] | None = None
    """The (x, y, z) of the blocks to run, if not all: counts are then those of these blocks only
    (:mod:`workbench.ptx.sample` chooses them)."""

    instruction_limit: int | None = None
    """Warp instructions of the whole launch after which it ends with a KernelTimeout."""
    seconds_limit: float | None = None
    """Likewise seconds."""
    threads: int | None = None
    """OS threads that share the blocks; None: all, but one with ``checks``, so that a race between blocks always names
    the same sides."""

    last_warp_first: bool = False
    """Lets the warps of a block take turns in the opposite order: any order is as good as another, but some mistakes
    show in one of them only."""
    undefined: int | None = None
    """The 32 bits that lanes get from a shuffle whose source takes no part; None: those of ``UNDEFINED_BITS``, the
    second where ``last_warp_first``."""
    copies_early: bool = False
    """Bulk copies land at once, not when somebody waits for them: a kernel that waits as it should does not notice."""

    strict: bool = False
    """With ``checks``, report as findings also what the rules forbid and GPUs put up with today; else a part of it is
    in ``report.notes``."""

    overlapped: Any = None
    """With ``checks``, the ``footprint`` of the launch's report that this one depends on programmatically: before
    ``griddepcontrol.wait`` it runs beside that one, and may not touch what that wrote, nor write what that read."""

    uninitialised: Sequence[int] = ()
    """Positions of arrays among the arguments that nobody has written: with ``checks``, what the kernel reads from them
    before it writes is a finding."""
    names: Sequence[str] = ()
    """What findings call the arguments; "argument 0" and so on where there is none."""
    repeats: bool = False
    """Threads may repeat what others do and keep nothing of it, as Triton's do: what they load then races with
    nothing."""
    follow_addresses: bool = True
    """What addresses in arguments lead to, from a table of ``data_ptr()`` values or a struct of pointers, is checked
    like an argument and named by its place; else they are mere numbers."""


_DEFAULTS = LaunchOptions()


def options_of(options: LaunchOptions | None, named: Mapping[str, Any]) -> LaunchOptions:
    """``options``, else the default ones, with those fields that are ``named`` in the place of their own.

    Raises TypeError for a name that is no field.
    """
    options = options or _DEFAULTS
    return replace(options, **named) if named else options
