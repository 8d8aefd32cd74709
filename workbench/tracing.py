"""What a kernel did to memory, source line by source line, as the PTX machine saw it."""

from __future__ import annotations

import functools
import html
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import devices, ops
from workbench.errors import ArgumentError
from workbench.ops.variant import Case, Config, Variant
from workbench.ptx.report import LaunchReport, LineFacts

_SHOWN_SHARE = 0.01
_COLUMNS = ("line", "instructions", "lanes", "global requests", "sectors/request", "wavefronts", "conflicts")
_HEAT = "rgba(230,159,0,{:.2f})"  # Okabe-Ito orange; the share is printed beside it too


@dataclass(frozen=True)
class TracedLine:
    """The facts of one source line, summed over all warps. A sector is 32 bytes."""

    file: str
    line: int
    text: str
    instructions: int
    share: float
    """Of all warp instructions of the launch."""
    active_lanes: float
    """Lanes at work per warp instruction, at most 32."""
    global_requests: int
    global_sectors: int
    shared_requests: int
    shared_wavefronts: int
    shared_ideal_wavefronts: int

    @property
    def sectors_per_request(self) -> float | None:
        return self.global_sectors / self.global_requests if self.global_requests else None

    @property
    def shared_conflicts(self) -> int:
        return self.shared_wavefronts - self.shared_ideal_wavefronts


@dataclass(frozen=True)
class Trace:
    """One launch by source line. ``report`` has the facts per PTX instruction and the totals.

    ``lines`` is complete; what is printed leaves out lines without memory traffic and with less than 1 % of the
    instructions.
    """

    title: str
    lines: tuple[TracedLine, ...]
    report: LaunchReport

    def to_frame(self):
        """One row per source line, as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(
            {
                **{name: getattr(line, name) for name in TracedLine.__annotations__},
                "sectors_per_request": line.sectors_per_request,
                "shared_conflicts": line.shared_conflicts,
            }
            for line in self.lines
        )

    def _rows(self) -> Iterable[tuple[TracedLine, tuple[str, ...]]]:
        for line in self.lines:
            if line.share < _SHOWN_SHARE and not line.global_requests and not line.shared_requests:
                continue
            sectors = "" if line.sectors_per_request is None else f"{line.sectors_per_request:.1f}"
            shared = f"{line.shared_wavefronts:,}" if line.shared_requests else ""
            conflicts = f"{line.shared_conflicts:,}" if line.shared_requests else ""
            requests = f"{line.global_requests:,}" if line.global_requests else ""
            share = f"{line.share:.1%}"
            yield line, (share, f"{line.active_lanes:.0f}", requests, sectors, shared, conflicts)

    def _place(self, line: TracedLine) -> str:
        """The line's number, with its file where there are several."""
        return str(line.line) if len({one.file for one in self.lines}) == 1 else f"{line.file}:{line.line}"

    def __str__(self) -> str:
        table = [_COLUMNS, *((self._place(line), *texts) for line, texts in self._rows())]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        sources = ["source", *(line.text.strip()[:70] for line, _ in self._rows())]
        files = ", ".join(dict.fromkeys(line.file for line in self.lines))
        rows = [self.title, str(self.report).splitlines()[0], f"lines of {files}"]
        for texts, source in zip(table, sources, strict=True):
            aligned = (text.rjust(width) for text, width in zip(texts, widths, strict=True))
            rows.append(f"{'  '.join(aligned)}  {source}".rstrip())
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"<trace of {self.title}: {len(self.lines)} lines, {self.report.instructions:,} warp instructions>"

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="text-align:right">{name}</th>' for name in (*_COLUMNS, "source"))
        number = '<td style="text-align:right;{}">{}</td>'.format
        body, largest = [], max((line.share for line in self.lines), default=1.0)
        for line, texts in self._rows():
            heat = f"background:{_HEAT.format(0.8 * line.share / largest)}"
            cells = "".join(number(heat if at == 0 else "", text) for at, text in enumerate(texts))
            text = html.escape(line.text.strip())
            source = f'<td style="text-align:left;font:11px monospace;white-space:nowrap">{text}</td>'
            body.append(f"<tr>{number('', html.escape(self._place(line)))}{cells}{source}</tr>")
        caption = f"<caption>{html.escape(self.title)}: {self.report.instructions:,} warp instructions</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def trace(
    op: str,
    case: str | Case | None = None,
    *,
    variant: str | Variant,
    config: Config | None = None,
    arch: str = "sm_80",
    record_block: int | Sequence[int] | None = None,
) -> Trace:
    """Run one variant of an op in the PTX machine and attribute what it did to its source lines.

    Args:
        op: its name.
        case: name or value of a case; default: the op's quick one.
        variant: a variant in CUDA C++ or Triton.
        config: one value per tunable; default: the untuned rule.
        arch: the architecture to compile for; the machine runs sm_80 and sm_89 code.
        record_block: (x, y, z) of a block whose requests and waits to keep one by one, in ``trace.report.recording``.

    Raises:
        UnknownNameError: no such op, variant or case.
        ArgumentError: a torch variant, which has no kernel.
        ConfigurationError: an illegal configuration; names the rule.
    """
    found = ops.get(op)
    chosen = found.variant(variant) if isinstance(variant, str) else variant
    if chosen.language == "torch":
        raise ArgumentError("variant", chosen.name, "a variant in CUDA C++ or Triton", "torch has no kernel to trace.")
    case = found.case(case or next(iter(found.cases))) if case is None or isinstance(case, str) else case
    if config is None:
        config = chosen.default_config(case.problem(arch=arch))
    problem = case.problem(config, arch=arch)
    device, inputs = devices.get("sim"), case.inputs(problem)
    report = chosen.run(config, problem, inputs, device, statistics=True, record_block=record_block)
    settings = " ".join(f"{name}={value}" for name, value in config.items())
    return Trace(f"{chosen} on {case.label}, {settings}", lines_of(report), report)


def lines_of(report: LaunchReport) -> tuple[TracedLine, ...]:
    """The facts of a report (with statistics) per line of the kernel's own file, in order.

    What a line takes from headers is counted there. Line 0 holds what the compiler attributes to none.
    """
    grouped: dict[tuple[str, int], list[LineFacts]] = {}
    for fact in report.lines:
        grouped.setdefault((fact.kernel_source, fact.kernel_line), []).append(fact)
    return tuple(_line(source, number, facts, report) for (source, number), facts in sorted(grouped.items()))


def _line(source: str, number: int, facts: list[LineFacts], report: LaunchReport) -> TracedLine:
    instructions = sum(fact.executions for fact in facts)
    in_global = [fact for fact in facts if fact.space == "global"]
    in_shared = [fact for fact in facts if fact.wavefronts]
    return TracedLine(
        file=Path(source).name or "?",
        line=number,
        text=_source_text(source, number),
        instructions=instructions,
        share=instructions / report.instructions if report.instructions else 0.0,
        active_lanes=sum(fact.active_lanes for fact in facts) / instructions if instructions else 0.0,
        global_requests=sum(fact.requests for fact in in_global),
        global_sectors=sum(fact.sectors for fact in in_global),
        shared_requests=sum(fact.requests for fact in in_shared),
        shared_wavefronts=sum(fact.wavefronts for fact in in_shared),
        shared_ideal_wavefronts=sum(fact.ideal_wavefronts for fact in in_shared),
    )


@functools.lru_cache(maxsize=4096)
def _source_text(source: str, number: int) -> str:
    if number == 0:
        return "(the compiler names no line)"
    # linecache also knows the cells of a notebook.
    return linecache.getline(source, number).rstrip("\n")
