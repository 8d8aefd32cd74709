"""``Trace``: one launch, or one run of a variant, as the PTX machine saw it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.analysis.counts import TELLING, InstructionCounts, MachineCode, machine_code
from workbench.analysis.device_models import DeviceModel
from workbench.analysis.hints import Hint, hints_of
from workbench.analysis.lines import TracedLine, lines_of
from workbench.analysis.stages import Stage, stages_of
from workbench.analysis.summary import Summary, summarise
from workbench.analysis.traced_run import TracedRun
from workbench.analysis.traffic import Traffic, traffic
from workbench.base import tables
from workbench.base.documents import document
from workbench.base.frames import data_frame
from workbench.errors import MissingToolError, UnknownNameError
from workbench.ptx.report import LaunchReport

if TYPE_CHECKING:
    import pandas

    from workbench.toolchain import CompiledKernel

_OF_LINE = (
    "line", "text", "instructions", "share", "active_lanes", "global_requests", "global_sectors",
    "global_ideal_sectors", "bytes_used", "shared_requests", "shared_wavefronts", "shared_ideal_wavefronts",
    "landed_bytes", "filled_bytes", "copied_bytes", "barrier_waits", "slow_paths",
)  # fmt: skip
_DERIVED = ("sectors_per_request", "ideal_sectors_per_request", "bytes_moved", "used_fraction", "shared_conflicts")
_SHOWN_SHARE = 0.01
_HEAT = "background:rgba(230,159,0,{:.2f})"  # Okabe-Ito orange; the share is printed in the same cell
_PLAIN = {"lanes": "32", "used": "100%"}
_NOTE = (
    "Counts are PTX-level: ptxas may merge, split or drop instructions; .sass counts what it made. Sectors are per "
    "request; sectors and wavefronts stand as counted/ideal."
)


class Trace(TracedRun):
    """What a run did, in total and by source line. Counts are PTX-level, ``sass`` and ``occupancy`` of the real cubin.

    ``report`` has the facts per PTX instruction; its counts are the trace's own. ``kernels`` are those that ran, the
    one with the main work first. ``lines`` is complete; what is printed leaves out lines without memory traffic or
    barriers that have less than 1 % of the instructions. Code of other files counts at the kernel's line that uses it;
    ``unfolded()`` shows it where it stands.
    """

    def hints(self, model: str | DeviceModel | None = None) -> tuple[Hint, ...]:
        """What to try next, with the evidence; ``model`` as for `prediction`."""
        return hints_of(self, self.model_for(model))

    # -- parts of it --------------------------------------------------------------------------------------------

    @cached_property
    def mix(self) -> InstructionCounts:
        """Warp instructions that ran, by class (PTX-level)."""
        return InstructionCounts("warp instructions (PTX-level)", self.report.mix)

    @cached_property
    def sass(self) -> MachineCode:
        """Static counts of the machine code by class and line. Raises MissingToolError without a disassembler."""
        return machine_code(self.kernels, inlined=self._unfolded)

    @cached_property
    def buffers(self) -> Traffic:
        """What moved between memory and each argument, and how often the caches answer for the same bytes."""
        return traffic(self.title, zip(self.kernels, self.report.parts, strict=bool(self.kernels)))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The forms that the main kernel went through, each line with its line of the source: of Triton TTIR, TTGIR and
        LLVM IR, then PTX with how often each instruction ran, and SASS where there is a disassembler."""
        return stages_of(self.kernel, self.report.parts[0], inlined=self._unfolded) if self.kernels else ()

    @property
    def parts(self) -> tuple[Trace, ...]:
        """One trace per kernel."""
        if len(self.kernels) < 2:
            return (self,)
        return tuple(
            Trace(f"{kernel.label} of {self.title}", lines_of(report), report, (kernel,))
            for kernel, report in zip(self.kernels, self.report.parts, strict=True)
        )

    def unfolded(self) -> Trace:
        """The same run with each instruction counted where it stands, in headers and functions of other files too."""
        return _Unfolded(self.title, lines_of(self.report, inlined=True), self.report, self.kernels)

    _unfolded = False

    def line(self, number: int, file: str | None = None) -> TracedLine:
        """The facts of a line of the source. Raises UnknownNameError, with the lines that there are."""
        for line in self.lines:
            if line.line == number and file in (None, line.file, line.path):
                return line
        known = ", ".join(self._place(line) for line in self.lines)
        raise UnknownNameError("line", f"{file or ''} {number}".strip(), known, "No instruction comes from others.")

    def summary(self) -> Summary:
        """Every total, next to what it would be at best, and what it means."""
        return summarise(self)

    def to_json(self) -> str:
        """Facts in total and line by line, as JSON; see `workbench.base.documents`."""
        facts = [
            {"fact": f.name, "value": f.value, "at_best": f.best, "meaning": f.meaning} for f in self.summary().facts
        ]
        hints = [
            {"what": h.name, "line": h.line and h.line.line, "evidence": h.evidence, "to_try": h.remedy}
            for h in self.hints()
        ]
        lines = [{name: getattr(line, name) for name in ("path", *_OF_LINE, "mix")} for line in self.lines]
        return document("trace", title=self.title, facts=facts, lines=lines, hints=hints)

    def to_frame(self) -> pandas.DataFrame:
        """One row per source line, as a pandas DataFrame."""
        names = ("file", *_OF_LINE, *_DERIVED)
        rows = [{name: getattr(line, name) for name in names} for line in self.lines]
        made = self._machine_code()
        for row, line in zip(rows, self.lines, strict=True):
            row["sass"] = made.at(line.path, line.line).brief if made else None
        return data_frame(rows)

    # -- how it reads -------------------------------------------------------------------------------------------

    def _machine_code(self) -> MachineCode | None:
        try:
            return self.sass if self.kernels else None
        except MissingToolError:
            return None

    def _columns(self) -> list[str]:
        columns = ["instr.", "lanes"]
        if self.global_requests:
            columns += ["requests", "sectors", "used"]
        if self.shared_requests:
            columns.append("wavefronts")
        if self.barrier_waits:
            columns.append("waits")
        return columns

    def _table(self) -> tuple[list[str], list[tuple[TracedLine, list[str]]], str]:
        """Columns, the lines that are shown with their texts, and in words the columns that are alike in all lines."""
        columns, rows = self._columns(), []
        for line in self.lines:
            quiet = not line.global_requests and not line.shared_requests and not line.barrier_waits
            if line.share < _SHOWN_SHARE and quiet:
                continue
            some = bool(line.global_requests)
            texts = {
                "instr.": f"{line.share:.1%}",
                "lanes": f"{line.active_lanes:.0f}",
                "requests": f"{line.global_requests:,}" if some else "",
                "sectors": f"{line.sectors_per_request:.1f}/{line.ideal_sectors_per_request:.1f}" if some else "",
                "used": f"{line.used_fraction:.0%}" if line.used_fraction is not None else "",
                "wavefronts": f"{line.shared_wavefronts:,}/{line.shared_ideal_wavefronts:,}"
                if line.shared_requests
                else "",
                "waits": f"{line.barrier_waits:,}" if line.barrier_waits else "",
            }
            rows.append((line, [texts[name] for name in columns]))
        plain = tables.alike(columns, [texts for _, texts in rows], _PLAIN)
        kept = [at for at, name in enumerate(columns) if name not in plain]
        said = ", ".join(f"{name} {_PLAIN[name]}" for name in plain)
        return [columns[at] for at in kept], [(line, [texts[at] for at in kept]) for line, texts in rows], said

    def _place(self, line: TracedLine) -> str:
        """The line's number, with its file where there are several."""
        return str(line.line) if len({one.path for one in self.lines}) == 1 else f"{line.file}:{line.line}"

    def __str__(self) -> str:
        columns, rows, said = self._table()
        numbers = tables.text((), columns, [texts for _, texts in rows], "r" * len(columns)).splitlines()
        files = ", ".join(dict.fromkeys(line.file for line in self.lines))
        heads = [
            self.title,
            *self.summary().brief,
            _NOTE,
            f"lines of {files}" + (f"; in all of them {said}" if said else ""),
        ]
        places = [self._place(line) for line, _ in rows]
        width = max(map(len, ("line", *places)))
        out = [piece for head in heads for piece in tables.wrap(head)]
        out += [f"{'line':>{width}}  source", " " * width + "  " + numbers[0]]
        for place, (line, _), text in zip(places, rows, numbers[1:], strict=True):
            out.append(tables.cut(f"{place:>{width}}  {line.text.strip()}", tables.WIDTH))
            out.append(f"{'':{width}}  {text}")
        hints = [textwrap.fill(str(hint), tables.WIDTH, subsequent_indent="  ") for hint in self.hints()]
        return "\n".join([*out, *(["what to try next:"] if hints else []), *hints])

    def __repr__(self) -> str:
        return f"<trace of {self.title}: {len(self.lines)} lines, {self.report.instructions:,} warp instructions>"

    def _repr_html_(self) -> str:
        columns, rows, said = self._table()
        largest = max((line.share for line in self.lines), default=1.0)
        body, styles = [], []
        for line, texts in rows:
            body.append([self._place(line), line.text.strip(), *texts])
            heat = _HEAT.format(0.8 * line.share / largest)
            styles.append([heat if name == "instr." else "" for name in ("line", "source", *columns)])
        caption, note = (
            ". ".join([self.title, *self.summary().brief]),
            _NOTE + (f" In all lines {said}." if said else ""),
        )
        table = tables.html(caption, ("line", "source", *columns), body, "rc" + "r" * len(columns), styles, note)
        return table + self._hints_html() + self._machine_code_html([line for line, _ in rows])

    def _hints_html(self) -> str:
        hints = [(str(h.line.line) if h.line else "", h.name, h.evidence, h.remedy) for h in self.hints()]
        return tables.html("What to try next", ("line", "what", "evidence", "to try"), hints, "rlll") if hints else ""

    def _machine_code_html(self, shown: Sequence[TracedLine]) -> str:
        made = self._machine_code()
        rows = [(line, made.at(line.path, line.line).starting(*TELLING).brief) for line in shown] if made else []
        body = [(self._place(line), line.text.strip(), brief) for line, brief in rows if brief]
        return tables.details("machine code by line", ("line", "source", "static instructions"), body, "rcl")


class _Unfolded(Trace):
    _unfolded = True

    @property
    def parts(self) -> tuple[Trace, ...]:
        return tuple(replace(part, lines=lines_of(part.report, inlined=True)) for part in super().parts)


def trace_of(compiled: CompiledKernel, report: LaunchReport, shared_bytes: int) -> Trace:
    """The trace of a launch that has run with statistics."""
    launched = replace(
        compiled,
        threads_per_block=report.block[0] * report.block[1] * report.block[2],
        dynamic_shared_bytes=max(shared_bytes, compiled.dynamic_shared_bytes),
    )
    shape = ", ".join(f"{name} {'x'.join(map(str, size))}" for name, size in _sizes(report))
    return Trace(f"{compiled.label}, {shape}", lines_of(report), report, (launched,))


def _sizes(report: LaunchReport) -> list[tuple[str, list[int]]]:
    """Grid and block without the trailing ones."""

    def short(size: Sequence[int]) -> list[int]:
        kept = list(size)
        while len(kept) > 1 and kept[-1] == 1:
            kept.pop()
        return kept

    return [("grid", short(report.grid)), ("block", short(report.block))]
