"""Options of a launch on the PTX machine."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from workbench.errors import ArgumentError, UnknownNameError

if TYPE_CHECKING:
    from workbench.ptx.proved import ProvedAccesses

Shape = int | Sequence[int]
"""Up to three sizes or coordinates (x, y, z)."""


def coordinates(index: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the (x, y, z) of a block in its grid, or of a thread in its block."""
    return index % shape[0], index // shape[0] % shape[1], index // shape[0] // shape[1]


AS_ON_A_GPU: Mapping[str, Any] = {"clock_start": 1_790_000_000_000_000_000, "multiprocessors": 132}
"""Options of a launch that let it see a clock and a number of multiprocessors as those of a GPU are, not 0 and 1."""

UNDEFINED_BITS = (0xFFFF_FFFF, 0x5A5A_5A5A)  # a NaN or -1; the second, 1.5e16, to compare two launches


class LaunchDebugger(Protocol):
    """Protocol of an object that stops launches."""

    def attach(self, kernel: Any, launch: Any) -> Any:
        """Return the core's debugger for a bound launch that is about to run; None to let it run as usual."""
        ...

    def detach(self) -> None:
        """Note that the launch is over; raise to keep its caller from going on."""
        ...


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Options for the way in which the PTX machine runs a launch, and for its counts, checks and recordings."""

    cluster: Shape | None = None
    """Blocks along x, y, z that run together and reach each other's shared memory.

    None takes the size that the kernel requires, else 1.
    """
    cooperative: bool = False
    """True to run all blocks at the same time, so that they can wait for each other (``grid.sync()``).

    They take turns on one OS thread. A device refuses a launch with more blocks than fit on it together.
    """

    statistics: bool = False
    """True to count memory traffic by instruction, in ``report.lines`` and ``report.buffers``; costs time."""
    checks: bool = False
    """True to look for races, uninitialised reads and misused barriers, in ``report.findings``; costs time."""
    record_block: Shape | None = None
    """The (x, y, z) of one block whose requests and waits are kept one by one, in ``report.recording``.

    The other blocks run as usual.
    """
    sample: Sequence[Shape] | None = None
    """The (x, y, z) of the blocks to run, if not all; counts are then those of these blocks only.

    :mod:`workbench.ptx.sample` chooses them.
    """

    fmad: bool = True
    """False to round each product and sum that the PTX writes apart, as ``ptxas --fmad=false`` does.

    The default is the assembler's: unless they have ``.rn``, it contracts them to one FMA where it can. PTX that was
    compiled with ``--fmad=false`` or for a debugger is never contracted.
    """

    exact: bool = False
    """True to compute on elements of a finite ring in place of floats, so that kernels can be compared exactly.

    Sums may then be reordered, and maxima cancel; :mod:`workbench.analysis.exact` reads the results. A launch that
    reaches an instruction on floats without a rule, or one that reads the bits of a float, ends with a KernelFault.
    """

    numerics: Any = False
    """True to follow infinities, NaN, conversions, and errors against float64, in ``report.numerics``.

    A `NumericsLog` in its place does so over all launches that get it. Blocks then run on one OS thread.
    """

    instruction_limit: int | None = None
    """Warp instructions of the whole launch after which it ends with a KernelTimeout."""
    seconds_limit: float | None = None
    """Seconds after which the launch ends with a KernelTimeout."""
    idle_limit: float | None = None
    """Seconds of processor time without progress (an ended thread, a completed barrier) after which it ends, too."""
    threads: int | None = None
    """OS threads that share the blocks; None takes all, but one with ``checks``.

    With one thread, a race between blocks always names the same sides.
    """

    last_warp_first: bool = False
    """True to let the warps of a block take turns in the opposite order.

    Any order is allowed, but some mistakes only show in one of them.
    """
    undefined: int | None = None
    """The 32 bits that lanes get from a shuffle whose source lane takes no part.

    None takes those of ``UNDEFINED_BITS``, the second with ``last_warp_first``.
    """
    schedule: int | None = None
    """Seed of an order of blocks and warps, with asynchronous copies that land early or late; None: the usual order."""
    schedule_changes: int | None = None
    """With a ``schedule``, how often a warp that could go on has to wait for all others; None: as often as it says."""
    aims: Sequence[tuple[int, int]] = ()
    """With a ``schedule``, the instructions of which the seed chooses one for warps to wait at, as
    :func:`workbench.ptx.aims.aims_of` returns them; without any, the order is at random."""
    late_stores: Sequence[int] = ()
    """With a ``schedule``, the instructions whose stores other blocks may see late (`workbench.ptx.late_stores`)."""
    schedules: int = 0
    """With ``checks``, the number of orders that are tried before the run: see :mod:`workbench.ptx.schedules`."""
    first_schedule: int = 0
    """Seed of the first of these ``schedules``; the others follow it."""

    clock_start: int = 0
    """Beginning of ``%clock`` and ``%globaltimer``; they count instructions."""
    multiprocessors: int = 1
    """Value of ``%nsmid``; the blocks take turns on so many. A correct kernel gives the same result for any."""
    first_address: int | None = None
    """Address of the first array of a launch, a multiple of 2^40; None takes the machine's own."""
    copies_early: bool = False
    """True to let asynchronous copies land at once, not only when the kernel waits for them.

    A correct kernel gives the same result.
    """

    strict: bool = False
    """With ``checks``, True to also report violations of rules that today's GPUs tolerate.

    Otherwise a part of it is in ``report.notes``.
    """

    overlapped: Any = None
    """With ``checks``, the ``footprint`` of the report of an earlier launch that this one depends on programmatically.

    Before ``griddepcontrol.wait`` this launch runs beside the earlier one: it may not touch memory that the earlier one
    writes, nor write memory that the earlier one reads.
    """

    accesses: bool = False
    """With ``checks``, True to report the bytes that the launch accessed (`LaunchReport.accesses`)."""
    uninitialised: Sequence[int] = ()
    """Positions of arguments that are arrays without content.

    With ``checks``, it is a finding if the kernel reads from them before it writes there.
    """
    names: Sequence[str] = ()
    """Names of the arguments in findings; "argument 0" and so on without them."""
    proved: Sequence[ProvedAccesses] = ()
    """With ``checks``, accesses that proofs cover in launches that keep their preconditions.

    The first proof counts whose preconditions the launch keeps. Checks then only look for uninitialised reads there;
    ``report.proof`` says what the launch keeps.
    """
    sample_proved: int = 0
    """With ``proved``, about how many blocks run where a proof covers all accesses and barriers; 0 runs all.

    The grid's corners are among them. Other blocks write nothing. A launch that is not covered runs in full.
    """
    repeats: bool = False
    """True if threads may repeat the work of others and keep nothing of it, as Triton's do.

    Such loads cause no race.
    """
    debugger: LaunchDebugger | None = None
    """Object that stops launches and shows their state (`workbench.launch.debug`)."""
    follow_addresses: bool = True
    """True to check the memory that addresses in arguments lead to like an argument, and to name it by its place.

    Such addresses stand in a table of ``data_ptr()`` values or a struct of pointers. With False they are treated as
    plain numbers.
    """

    def __post_init__(self) -> None:
        for name, least, what in (
            ("threads", 1, "a whole number of OS threads, 1 or more, or None for all"),
            ("instruction_limit", 0, "a whole number of warp instructions, or None for no limit"),
            ("seconds_limit", 0, "a number of seconds, or None for no limit"),
            ("idle_limit", 0, "a number of seconds, or None for no limit"),
        ):
            value: Any = getattr(self, name)
            if value is None or (type(value) is int and value >= least):
                continue
            kind: type = numbers.Real if name in ("seconds_limit", "idle_limit") else numbers.Integral
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or not value >= least:
                raise ArgumentError(name, repr(value), what, "Pass one of these.")


_DEFAULTS = LaunchOptions()
_NAMES = {one.name: None for one in fields(LaunchOptions)}  # in order


def options_of(options: LaunchOptions | None, named: Mapping[str, Any]) -> LaunchOptions:
    """Return ``options``, or the default ones, with the ``named`` fields replaced.

    Raises UnknownNameError for a name that is not a field, ArgumentError for a value that a field cannot have.
    """
    if not named:
        return options or _DEFAULTS
    for name in named:
        if name not in _NAMES:
            close = difflib.get_close_matches(name, _NAMES, 1)
            remedy = f"Did you mean {close[0]}?" if close else "These are the options of a launch on the PTX machine."
            raise UnknownNameError("option of a launch", repr(name), ", ".join(_NAMES), remedy)
    # As dataclasses.replace, which takes as long as the rest of a small launch.
    return LaunchOptions(**(vars(options) | dict(named) if options else named))
