"""Occupancy of a kernel over block sizes, registers and shared memory, with the next step that would raise it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.base.argument_kinds import checked_kinds
from workbench.base.documents import document
from workbench.base.files import replace_file
from workbench.base.frames import data_frame
from workbench.base.tables import Table, Tabular
from workbench.comparison.compiled import compiled_of
from workbench.comparison.occupancy_steps import LaunchFigures, OccupancyStep, room_of, steps_from
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.variant import MACHINE_ARCHS, Case, Config
from workbench.toolchain.occupancy import ArchitectureLimits, Occupancy, limits_of, most_shared_bytes

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from workbench.ops.op import Op
    from workbench.toolchain import CompiledKernel

BLOCKS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Block sizes of a table unless others are named; that of the launch is added."""

REGISTERS = (32, 40, 48, 64, 80, 96, 128, 168)
"""Registers per thread of a table unless others are named: the most for 16, 12, 10, 8, 6, 5, 4 and 3 warps of each
scheduler; those of the kernel are added."""

_LETTERS = {"warps": "w", "blocks": "b", "registers": "r", "shared memory": "s", "barriers": "n"}
_NOTE = (
    "Shared memory per block is the same for every size. Registers fewer than the compiler wants are spilled, and a "
    "kernel compiled anew may take others."
)


@dataclass(frozen=True)
class OccupancyTable(Tabular):
    """Occupancy of a launch and of its neighbours.

    Attributes:
        title: the kernel, or "a kernel" for figures alone, and the architecture.
        limits: those of one multiprocessor.
        figures: block size, registers and shared memory of the launch.
        blocks, registers: block sizes and registers per thread of the table.
        notes: rules of the kernel that restrict the choice.
    """

    title: str
    limits: ArchitectureLimits
    figures: LaunchFigures
    blocks: tuple[int, ...]
    registers: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def occupancy(self) -> Occupancy:
        """Occupancy of the launch itself."""
        return self.figures.on(self.limits)

    @property
    def steps(self) -> tuple[OccupancyStep, ...]:
        """Changes that raise the occupancy: the nearest step, and the one that gains most."""
        return tuple(steps_from(self.figures, self.limits))

    @property
    def most_registers(self) -> int:
        """Registers per thread that the kernel may take at its present occupancy; 0 if no block fits."""
        return room_of(self.figures, self.limits)[0]

    @property
    def most_shared_bytes(self) -> int:
        """Bytes of shared memory per block that the kernel may take at its present occupancy; 0 if no block fits."""
        return room_of(self.figures, self.limits)[1]

    def over(self, figure: str) -> tuple[tuple[LaunchFigures, Occupancy], ...]:
        """Return the occupancy over one figure, the others as they are.

        ``"block"`` goes through the block sizes in whole warps, ``"registers"`` through all counts per thread,
        ``"shared_bytes"`` through the most bytes for each number of blocks. Raises UnknownNameError for another name.
        """
        values: dict[str, Sequence[int]] = {
            "block": range(32, self.limits.threads_per_block + 1, 32),
            "registers": range(1, self.limits.registers_per_thread + 1),
            "shared_bytes": sorted({0, *(max(0, most_shared_bytes(self.limits, n)) for n in self._block_counts)}),
        }
        if figure not in values:
            raise UnknownNameError("figure", repr(figure), ", ".join(values), "Name one of these.")
        points = (replace(self.figures, **{figure: value}) for value in values[figure])
        return tuple((point, point.on(self.limits)) for point in points)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary for each block size and number of registers."""
        return [_row(point, point.on(self.limits)) for line in self._grid() for point in line]

    def to_frame(self, over: str | None = None) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame; with ``over`` the points of `over`. Needs pandas (``[lab]``)."""
        return data_frame(self.rows if over is None else [_row(*point) for point in self.over(over)])

    def to_json(self) -> str:
        """Return the launch, its steps and the rows as JSON; see `workbench.base.documents`."""
        steps = [{"change": step.change, **_row(step.figures, step.occupancy)} for step in self.steps]
        return document(
            "occupancy",
            title=self.title,
            arch=self.limits.arch,
            **_row(self.figures, self.occupancy),
            fits=self.occupancy.fits,
            most_registers=self.most_registers,
            most_shared_bytes=self.most_shared_bytes,
            steps=steps,
            rows=self.rows,
            notes=self.notes,
        )

    def plot(self, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
        """Plot the occupancy over block size, registers and shared memory, with the launch marked; return the axes.

        Needs matplotlib (``[lab]``).
        """
        from workbench.ui.occupancy_plot import occupancy_plot

        return occupancy_plot(self, axes)

    def save_plot(self, path: str | Path) -> None:
        """Write the plots of `plot` to a picture, in the format of its suffix (png, svg, pdf)."""
        import matplotlib.pyplot as plt

        kind = Path(path).suffix.lstrip(".") or "png"
        figure = self.plot()[0].figure
        known = figure.canvas.get_supported_filetypes()
        content = io.BytesIO()
        try:
            if kind not in known:
                raise ArgumentError("path", repr(str(path)), ", ".join(sorted(known)), "Use one of these endings.")
            figure.savefig(content, format=kind, dpi=150)
        finally:
            plt.close(figure)
        replace_file(path, content.getvalue())

    def tables(self) -> list[Table]:
        """Return tables of what a block takes, of the steps, and of block sizes by registers."""
        return [self._resources(), *self._gains(), self._neighbours()]

    def __repr__(self) -> str:
        return f"<occupancy of {self.title}, block {self.figures.block}: {self.occupancy}>"

    # -- the tables ---------------------------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """The occupancy in one line."""
        return f"{self.title}, block {self.figures.block}: {_result(self.occupancy, self.limits)}"

    def _resources(self) -> Table:
        limits, fits = self.limits, self.occupancy.fits
        warps = -(-self.figures.block // 32)
        registers, shared = room_of(self.figures, limits)
        system = f"{limits.shared_reserved:,} for the system" if limits.shared_reserved else ""
        rows = [
            ("warps", str(warps), str(limits.max_warps), ""),
            ("blocks", "1", str(limits.max_blocks), ""),
            (
                "registers",
                f"{self.figures.registers} a thread",
                f"{limits.registers:,}",
                f"{registers} a thread",
            ),
            (
                "shared memory",
                " + ".join(filter(None, (f"{self.figures.shared_bytes:,}", system))),
                f"{limits.shared_per_multiprocessor:,}",
                f"{shared:,} bytes",
            ),
        ]
        columns = ("resource", "a block takes", "there are", "blocks that fit", "may grow to")
        if "barriers" in fits:
            rows.append(("barriers", str(self.figures.barriers), str(limits.barriers), ""))
        cells = [(name, takes, most, str(fits[name]), grow) for name, takes, most, grow in rows]
        marks = ["best" if name == self.occupancy.limited_by else "" for name, *_ in rows]
        return Table(columns, cells, "llrrl", title=self.headline, marks=marks)

    def _gains(self) -> Iterator[Table]:
        steps = self.steps
        if not steps:
            if self.occupancy.fraction < 1:
                yield Table((), (), "", title="No other size of block, and no fewer registers, raise it.")
            return
        now = f"{self.occupancy.fraction:.0%}"
        rows = [
            (
                f"with {step.change}",
                str(step.occupancy.blocks_per_sm),
                f"{step.occupancy.fraction:.0%} instead of {now}",
                step.occupancy.limited_by,
            )
            for step in steps
        ]
        bound = next((step for step in steps if step.figures.registers != self.figures.registers), None)
        note = ""
        if bound:
            launch = f"__launch_bounds__({bound.figures.block}, {bound.occupancy.blocks_per_sm})"
            note = f"A bound on registers: {launch} in CUDA C++, maxnreg={bound.figures.registers} in Triton."
        yield Table(("next step", "blocks", "occupancy", "limited by"), rows, "lrll", note=note)

    def _neighbours(self) -> Table:
        """Return the occupancy of each block size with each number of registers, and a letter for its limit."""
        columns = ("", *map(str, self.registers))
        rows, styles, limits = [], [], set()
        for line in self._grid():
            row = [(point, point.on(self.limits)) for point in line]
            own = [self._is_own(point) for point in line]
            cells = [f"{found.fraction:.0%} {_LETTERS[found.limited_by]}" for _, found in row]
            rows.append(
                (str(line[0].block), *(f"[{text}]" if here else text for text, here in zip(cells, own, strict=True)))
            )
            styles.append(["", *("font-weight:bold" if here else "" for here in own)])
            limits |= {found.limited_by for _, found in row}
        letters = ", ".join(f"{letter} {name}" for name, letter in _LETTERS.items() if name in limits)
        note = "\n".join([f"Limited by: {letters}. {_NOTE}", *self.notes])
        title = "threads per block (rows) and registers per thread (columns); [ ] this launch"
        return Table(columns, rows, "r" * len(columns), title=title, note=note, styles=styles)

    def _is_own(self, point: LaunchFigures) -> bool:
        return point.block == self.figures.block and point.registers == self._own_registers

    @property
    def _own_registers(self) -> int:
        """The column of the launch: registers are allocated in steps, and all counts of a step are alike."""
        return next((count for count in self.registers if count >= self.figures.registers), self.registers[-1])

    @property
    def _block_counts(self) -> range:
        return range(1, self.limits.max_blocks + 1)

    def _grid(self) -> Iterator[list[LaunchFigures]]:
        for block in self.blocks:
            yield [replace(self.figures, block=block, registers=count) for count in self.registers]


@checked_kinds
def occupancy(
    op: str | Op | Any = None,
    case: str | Case | None = None,
    *,
    variant: str | None = None,
    config: Config | None = None,
    arch: str | None = None,
    block: int | None = None,
    registers: int | None = None,
    shared_bytes: int | None = None,
    over_blocks: Sequence[int] = BLOCKS,
    over_registers: Sequence[int] = REGISTERS,
) -> OccupancyTable:
    """Tabulate the occupancy of a kernel over block sizes and registers, and report the gain of the next step.

    Without an op or a kernel it is that of figures::

        print(wb.occupancy(block=256, registers=42, shared_bytes=2048, arch="sm_90"))

    Args:
        op: its name, or the op, of which the kernel with the main work is compiled; or a kernel of `load_cuda` or
            `load_ptx`, or a CompiledKernel.
        case: name or value of a case of the op; default: the quick one.
        variant: a variant with kernels; default: that of an op which has only one.
        config: one value per tunable; default: the untuned rule.
        arch: the architecture, such as ``"sm_90"``. For an op the default is the first of `MACHINE_ARCHS` that has
            what the variant needs, for figures sm_80; a kernel has its own.
        block: threads of a block; default: those of the launch that the kernel was compiled for.
        registers: registers per thread, in place of the kernel's.
        shared_bytes: dynamic shared memory per block, beside what the kernel declares; of figures alone, all of it.
            Default: that of the launch that the kernel was compiled for.
        over_blocks: block sizes of the table.
        over_registers: registers per thread of the table.

    Returns:
        `OccupancyTable`: .occupancy .steps .rows .to_frame() .plot()

    Raises:
        UnknownNameError: no such op, variant or case.
        ArgumentError: figures that are missing or that no kernel can have; an unknown architecture; ``arch`` of a
            kernel that is compiled for another one.
        ConfigurationError: an illegal configuration; names the rule.
        MissingToolError: no assembler, which counts the registers.
    """
    if op is None:
        for name, value in (("case", case), ("variant", variant), ("config", config)):
            if value is not None:
                raise ArgumentError(name, repr(value), "no value without an op", "Pass the op, or figures alone.")
        for name, number in (("block", block), ("registers", registers)):
            if number is None:
                raise ArgumentError(name, None, "a number, where no op or kernel is given", "Pass it, or an op.")
        kernel, title, arch = None, "a kernel", arch or MACHINE_ARCHS[0]
    else:
        found = compiled_of(op, case, variant, config, arch)
        kernel, title, arch = found.kernel, found.title, found.kernel.arch
    figures = _figures_of(kernel, block, registers, shared_bytes)
    limits = limits_of(arch)
    if not 1 <= figures.registers <= limits.registers_per_thread:
        allowed = f"1 to {limits.registers_per_thread} a thread"
        raise ArgumentError("registers", figures.registers, allowed, "Pass what the compiler reported.")
    figures.on(limits)  # raises ArgumentError for figures that no kernel can have
    columns = _checked("over_registers", over_registers, limits.registers_per_thread)
    step = limits.register_unit // 32
    own = min(-(-figures.registers // step) * step, limits.registers_per_thread)
    return OccupancyTable(
        f"{title} for {arch}",
        limits,
        figures,
        tuple(sorted({*_checked("over_blocks", over_blocks, limits.threads_per_block), figures.block})),
        tuple(sorted({*columns, own})),
        _notes(kernel),
    )


def _figures_of(
    kernel: CompiledKernel | None, block: int | None, registers: int | None, shared_bytes: int | None
) -> LaunchFigures:
    """Return the figures of a launch: those that are given, else the kernel's own."""
    if kernel is None:
        assert block is not None  # `occupancy` has refused both
        assert registers is not None
        return LaunchFigures(block, registers, shared_bytes or 0)
    block = kernel.threads_per_block if block is None else block
    if block is None:
        remedy = f"Pass block=: {kernel.label} can be launched with any."
        raise ArgumentError("block", None, "the threads of a block", remedy)
    dynamic = kernel.dynamic_shared_bytes if shared_bytes is None else shared_bytes
    if dynamic < 0:
        raise ArgumentError("shared_bytes", dynamic, "0 or more", "Pass the bytes of dynamic shared memory per block.")
    registers = kernel.registers if registers is None else registers
    return LaunchFigures(block, registers, kernel.static_shared_bytes + dynamic, kernel.barriers)


def _checked(name: str, values: Sequence[int], most: int) -> Sequence[int]:
    """Return the values. Raises ArgumentError for one that no kernel can have, and for none."""
    wrong = [value for value in values if not 1 <= value <= most]
    if wrong or not values:
        got = wrong[0] if wrong else "nothing"
        raise ArgumentError(name, got, f"numbers from 1 to {most}", "Leave out the others.")
    return values


def _notes(kernel: CompiledKernel | None) -> tuple[str, ...]:
    """Return the rules of a kernel for the size of its blocks."""
    if kernel is None or kernel.thread_bound is None:
        return ()
    threads, exact = kernel.thread_bound
    often = "exactly" if exact else "at most"
    return (f"{kernel.label} is compiled for blocks of {often} {threads} threads: another bound compiles it anew.",)


def _row(figures: LaunchFigures, found: Occupancy) -> dict[str, Any]:
    return asdict(figures) | {
        "blocks_per_sm": found.blocks_per_sm,
        "warps_per_sm": found.warps_per_sm,
        "occupancy": found.fraction,
        "limited_by": found.limited_by,
    }


def _result(found: Occupancy, limits: ArchitectureLimits) -> str:
    if not found.blocks_per_sm:
        return f"not even one block fits, for its {found.limited_by}"
    several = "s" if found.blocks_per_sm > 1 else ""
    return (
        f"{found.blocks_per_sm} block{several}, {found.warps_per_sm} of {limits.max_warps} warps: "
        f"{found.fraction:.0%}, limited by {found.limited_by}"
    )
