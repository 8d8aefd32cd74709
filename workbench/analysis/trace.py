"""``Trace``, the counts of one launch, or of one run of a variant, in the PTX machine."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.analysis.check_report import CheckReport
from workbench.analysis.counts import TELLING, InstructionCounts, MachineCode, machine_code
from workbench.analysis.device_models import DeviceModel
from workbench.analysis.hints import Hint, hints_of
from workbench.analysis.lines import TracedLine, lines_of
from workbench.analysis.numerics import NumericsReport
from workbench.analysis.stages import Stage, stages_of
from workbench.analysis.summary import Summary, summarise
from workbench.analysis.totals import RunTotals
from workbench.analysis.traffic import Traffic, traffic
from workbench.base.documents import Document, document, origin
from workbench.base.frames import data_frame
from workbench.base.lazy import offered
from workbench.base.pages import Section, framed
from workbench.base.tables import WIDTH, Table, Tabular, alike, cut, wrap
from workbench.errors import MissingToolError, UnknownNameError
from workbench.ptx.report import LaunchReport

if TYPE_CHECKING:
    import pandas

    from workbench.ptx.recording import Recording
    from workbench.ptx.report import Finding
    from workbench.toolchain import CompiledKernel

_OF_LINE = (
    "line", "text", "instructions", "share", "active_lanes", "global_requests", "global_sectors",
    "global_ideal_sectors", "bytes_used", "shared_requests", "shared_wavefronts", "shared_ideal_wavefronts",
    "landed_bytes", "filled_bytes", "copied_bytes", "barrier_waits", "slow_paths",
)  # fmt: skip
_DERIVED = ("sectors_per_request", "ideal_sectors_per_request", "bytes_moved", "used_fraction", "shared_conflicts")
_SHOWN_SHARE = 0.01
_PLAIN = {"lanes": "32", "used": "100%"}
_IN_WORDS = {"lanes": "all 32 lanes are active", "used": "all bytes that move are used"}
_NOTE = (
    "Instructions are those of the PTX; the machine code has its own (.sass). Sectors are per request; sectors and "
    "wavefronts are written counted/ideal."
)


def heat_colour(part: float) -> str:
    """Return the CSS colour behind a number that is this part of the largest one, and is printed beside it.

    Okabe-Ito orange, at most so opaque that light and dark themes keep their text readable (4.5 to 1).
    """
    return f"rgba(230,159,0,{0.45 * part:.2f})"


@dataclass(frozen=True)
class Trace(Tabular, Document, RunTotals):
    """Counts of a run, in total and by source line.

    Counts are PTX-level; ``sass`` and ``occupancy`` are those of the real cubin. ``report`` has the facts per PTX
    instruction; the trace takes its totals from there. ``kernels`` are those that ran, the one with the main work
    first. ``lines`` is complete; the printed table leaves out lines without memory traffic or barriers that have less
    than 1 % of the instructions. Code of other files counts at the kernel's line that uses it; ``unfolded()`` counts it
    where it stands.
    """

    op: str = ""
    case: str = ""
    variant: str = ""
    """Name of the variant; empty, as are ``op`` and ``case``, for a kernel alone."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Configuration of the variant."""

    # -- conclusions --------------------------------------------------------------------------------------------

    def hints(self, model: str | DeviceModel | None = None) -> tuple[Hint, ...]:
        """Return what to try next, with the evidence; ``model`` is that of `prediction`."""
        return hints_of(self, self._model(model))

    # -- parts of it --------------------------------------------------------------------------------------------

    @cached_property
    def mix(self) -> InstructionCounts:
        """Executed warp instructions by class (PTX-level)."""
        return InstructionCounts("warp instructions (PTX-level)", self.report.mix)

    @cached_property
    def sass(self) -> MachineCode:
        """Static counts of the machine code, by class and line. Raises MissingToolError without a disassembler."""
        return machine_code(self.kernels, inlined=self._unfolded)

    @cached_property
    def buffers(self) -> Traffic:
        """Bytes moved between memory and each argument, and how often the caches answer for the same bytes."""
        return traffic(self.title, zip(self.kernels, self.report.parts, strict=bool(self.kernels)))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Forms that the main kernel went through in its compilers, each line with its source line.

        For Triton these are TTIR, TTGIR and LLVM IR. Then follow PTX, with how often each instruction ran, and SASS
        where there is a disassembler.
        """
        return stages_of(self.kernel, self.report.parts[0], inlined=self._unfolded) if self.kernels else ()

    @property
    def findings(self) -> tuple[Finding, ...] | None:
        """Findings of the checks; None where nothing was checked."""
        return tuple(self.report.findings) if self.report.has_checks else None

    @property
    def check(self) -> CheckReport:
        """Findings and notes of the checks. Raises ArgumentError for a run without checks."""
        label = self.kernels[0].label if self.kernels else self.title
        return CheckReport(label, self.findings or (), self.report)

    @property
    def numerics(self) -> NumericsReport | None:
        """Infinities, NaN and conversions by source line; None where ``numerics`` did not ask for them."""
        return NumericsReport(self.title, self.report.numerics) if self.report.numerics else None

    @property
    def recording(self) -> Recording | None:
        """Requests and waits of one block, if ``record_block`` asked for them."""
        return self.report.recording

    @property
    def parts(self) -> tuple[Trace, ...]:
        """One trace per kernel of the run."""
        if len(self.kernels) < 2:
            return (self,)
        return tuple(
            Trace(
                f"{kernel.label} of {self.title}",
                lines_of(report),
                report,
                (kernel,),
                self.model,
                unchecked=self.unchecked,
            )
            for kernel, report in zip(self.kernels, self.report.parts, strict=True)
        )

    def unfolded(self) -> Trace:
        """Return the same run with each instruction counted where it stands, also in headers and in other files."""
        lines = lines_of(self.report, inlined=True)
        ran = self.op, self.case, self.variant, self.config
        by = self.unchecked
        return _Unfolded(self.title, lines, self.report, self.kernels, self.model, *ran, unchecked=by)

    _unfolded = False

    def line(self, number: int, file: str | None = None) -> TracedLine:
        """Return the facts of one source line. Raises UnknownNameError, with the lines that there are."""
        for line in self.lines:
            if line.line == number and file in (None, line.file, line.path):
                return line
        known = ", ".join(self._place(line) for line in self.lines)
        raise UnknownNameError("line", f"{file or ''} {number}".strip(), known, "Other lines have no instruction.")

    def summary(self) -> Summary:
        """Return every total, beside its best possible value and its meaning."""
        return summarise(self)

    def to_json(self) -> str:
        """Return the facts, in total and line by line, as JSON; see `workbench.base.documents`."""
        facts = [
            {"fact": f.name, "value": f.value, "at_best": f.best, "meaning": f.meaning} for f in self.summary().facts
        ]
        hints = [
            {"what": h.name, "line": h.line and h.line.line, "evidence": h.evidence, "to_try": h.remedy}
            for h in self.hints()
        ]
        lines = [{name: getattr(line, name) for name in ("path", *_OF_LINE, "mix")} for line in self.lines]
        ran = {"title": self.title, "op": self.op, "case": self.case, "variant": self.variant, "config": self.config}
        compiled = {name: getattr(self.kernels[0], name) if self.kernels else "" for name in ("arch", "compiler")}
        compiled["predicted_for"] = self._model(None).key
        return document("trace", **ran, **compiled, **origin(), facts=facts, lines=lines, hints=hints)

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per source line, as a pandas DataFrame."""
        names = ("file", *_OF_LINE, *_DERIVED)
        rows = [{name: getattr(line, name) for name in names} for line in self.lines]
        made = self._machine_code()
        for row, line in zip(rows, self.lines, strict=True):
            row["sass"] = made.at(line.path, line.line).brief if made else None
        return data_frame(rows)

    @property
    def headline(self) -> str:
        """The title."""
        return self.title

    def about(self) -> Mapping[str, str]:
        """Return what ran, and the GPU that its time is predicted for."""
        kernel = self.kernels[0] if self.kernels else None
        return {
            "op": self.op,
            "case": self.case,
            "variant": self.variant,
            "configuration": " ".join(f"{name}={value}" for name, value in self.config.items()),
            "compiled": f"for {kernel.arch} by {kernel.compiler}" if kernel else "",
            "times predicted for": str(self._model(None)),
        }

    def sections(self) -> Sequence[Section]:
        """Return the totals, the source view, what to try next, and the tables by line."""
        by_line, *others = self.tables()
        views = [point.load()(self) for point in offered("workbench.views").values()]
        tables = [*others[:-1], replace(by_line, title="Counts by line"), others[-1]]
        return [*self.summary().sections(), *views, *(Section(framed(table.html())) for table in tables)]

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
        if self.shared_wavefronts:
            columns.append("wavefronts")
        if self.barrier_waits:
            columns.append("waits")
        return columns

    def _table(self) -> tuple[list[str], list[tuple[TracedLine, list[str]]], str]:
        """Return the columns, the shown lines with their cells, and a phrase for columns alike in all lines."""
        columns, rows = self._columns(), []
        for line in self.lines:
            quiet = not line.global_requests and not line.shared_wavefronts and not line.barrier_waits
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
                if line.shared_wavefronts
                else "",
                "waits": f"{line.barrier_waits:,}" if line.barrier_waits else "",
            }
            rows.append((line, [texts[name] for name in columns]))
        plain = alike(columns, [texts for _, texts in rows], _PLAIN)
        kept = [at for at, name in enumerate(columns) if name not in plain]
        said = " and ".join(_IN_WORDS[name] for name in plain)
        return [columns[at] for at in kept], [(line, [texts[at] for at in kept]) for line, texts in rows], said

    def _place(self, line: TracedLine) -> str:
        """Return the line's number, with its file if there are several."""
        return str(line.line) if len({one.path for one in self.lines}) == 1 else f"{line.file}:{line.line}"

    def __str__(self) -> str:
        columns, rows, said = self._table()
        table = Table(columns, [texts for _, texts in rows], "r" * len(columns))
        numbers = str(table).splitlines() if columns else [""] * (1 + len(rows))
        files = ", ".join(dict.fromkeys(line.file for line in self.lines))
        heads = [
            self.title,
            *self.summary().brief,
            _NOTE,
            f"lines of {files}" + (f"; in each {said}" if said else ""),
        ]
        places = [self._place(line) for line, _ in rows]
        width = max(map(len, ("line", *places)))
        out = [piece for head in heads for piece in wrap(head)]
        out += [f"{'line':>{width}}  source", " " * width + "  " + numbers[0]]
        for place, (line, _), text in zip(places, rows, numbers[1:], strict=True):
            out.append(cut(f"{place:>{width}}  {line.text.strip()}", WIDTH))
            out.append(f"{'':{width}}  {text}")
        hints = [textwrap.fill(str(hint), WIDTH, subsequent_indent="  ") for hint in self.hints()]
        found = self.check.lines() if self.report.has_checks else []
        return "\n".join(
            [
                *out,
                *(str(self.numerics).splitlines() if self.numerics is not None else ()),
                *(["findings of the checks:"] if found else []),
                *found,
                *(["what to try next:"] if hints else []),
                *hints,
            ]
        )

    def __repr__(self) -> str:
        return f"<trace of {self.title}: {len(self.lines)} lines, {self.report.instructions:,} warp instructions>"

    def tables(self) -> list[Table]:
        """Return the facts by line, what to try next, and the machine code by line, folded."""
        columns, rows, said = self._table()
        largest = max((line.share for line in self.lines), default=1.0)
        body, styles = [], []
        for line, texts in rows:
            body.append([self._place(line), line.text.strip(), *texts])
            heat = f"background:{heat_colour(line.share / largest)}"
            styles.append([heat if name == "instr." else "" for name in ("line", "source", *columns)])
        caption, note = (
            ". ".join([self.title, *self.summary().brief]),
            _NOTE + (f" In each line {said}." if said else ""),
        )
        by_line = Table(
            ("line", "source", *columns), body, "rc" + "r" * len(columns), title=caption, note=note, styles=styles
        )
        found = self.check.tables() if self.report.has_checks and self.check.lines() else []
        numerics = self.numerics.tables() if self.numerics is not None else []
        return [by_line, *found, *numerics, *self._hint_table(), self._machine_code_table([line for line, _ in rows])]

    def _hint_table(self) -> list[Table]:
        rows = [(str(h.line.line) if h.line else "", h.name, h.evidence, h.remedy) for h in self.hints()]
        return [Table(("line", "what", "evidence", "to try"), rows, "rlll", title="What to try next")] if rows else []

    def _machine_code_table(self, shown: Sequence[TracedLine]) -> Table:
        made = self._machine_code()
        rows = [(line, made.at(line.path, line.line).starting(*TELLING).brief) for line in shown] if made else []
        body = [(self._place(line), line.text.strip(), brief) for line, brief in rows if brief]
        heads = ("line", "source", "static instructions")
        return Table(heads, body, "rcl", title="machine code by line", folded=True)


class _Unfolded(Trace):
    _unfolded = True

    @property
    def parts(self) -> tuple[Trace, ...]:
        return tuple(replace(part, lines=lines_of(part.report, inlined=True)) for part in super().parts)


def trace_of(compiled: CompiledKernel, report: LaunchReport, shared_bytes: int) -> Trace:
    """Return the trace of a launch that ran with statistics."""
    launched = replace(
        compiled,
        threads_per_block=report.block[0] * report.block[1] * report.block[2],
        dynamic_shared_bytes=max(shared_bytes, compiled.dynamic_shared_bytes),
    )
    shape = ", ".join(f"{name} {'x'.join(map(str, size))}" for name, size in _sizes(report))
    return Trace(f"{compiled.label}, {shape}", lines_of(report), report, (launched,))


def _sizes(report: LaunchReport) -> list[tuple[str, list[int]]]:
    """Return grid and block, each without its trailing ones."""

    def short(size: Sequence[int]) -> list[int]:
        kept = list(size)
        while len(kept) > 1 and kept[-1] == 1:
            kept.pop()
        return kept

    return [("grid", short(report.grid)), ("block", short(report.block))]
