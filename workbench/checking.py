"""``check_kernel``: run a kernel in the PTX machine and say what is wrong with it, with source lines."""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import KernelFault

if TYPE_CHECKING:
    from workbench.ptx import Finding, LaunchReport


@dataclass(frozen=True, repr=False)
class CheckReport:
    """What the checks found in one launch: ``findings`` in the order of the PTX, none for a clean run.

    ``launch`` is the machine's own report. A finding names its kind, the kernel, block and thread of the first
    occurrence, the address with its buffer, the source line (of both sides for a race) and how often it happened.
    """

    kernel: str
    findings: tuple[Finding, ...]
    launch: LaunchReport

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __bool__(self) -> bool:
        """True if nothing was found."""
        return self.ok

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        shape = " x ".join("x".join(map(str, size)) for size in (self.launch.grid, self.launch.block))
        head = f"{self.kernel}, {shape} threads: "
        if self.ok:
            return head + "nothing found"
        out = [head + f"{len(self.findings)} finding{'s' if len(self.findings) > 1 else ''}"]
        for finding in self.findings:
            out.append(f"  {_place(finding.kernel_source, finding.kernel_line, finding.ptx_line)}: {_short(finding)}")
            out += [f"      {text}" for text in _lines(finding)]
        return "\n".join(out)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if self.ok:
            return f"<p>{escape(str(self))}</p>"
        head = "".join(f"<th>{name}</th>" for name in ("kind", "line", "other side", "block, thread", "where", "count"))
        rows = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:left;vertical-align:top'>{cell}</td>" for cell in _cells(finding))
            + "</tr>"
            for finding in self.findings
        )
        title = escape(str(self).splitlines()[0])
        return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _place(source: str, line: int | None, ptx_line: int | None) -> str:
    if line:
        return f"{Path(source).name}:{line}"
    return f"PTX line {ptx_line}" if ptx_line else "the kernel's end"


def _short(finding: Finding) -> str:
    """The message with the names of files instead of their paths: a source passed as text lies in a cache folder."""
    message = finding.message
    for (source, _), (header, _), _ in _sides(finding):
        for path in filter(None, (source, header)):
            message = message.replace(path, Path(path).name)
    return message


def _text(source: str, line: int | None) -> str:
    """The source line itself, of a cell of a notebook too; nothing where it cannot be read any more."""
    if not line:
        return ""
    linecache.checkcache(source)
    return linecache.getline(source, line).strip()


def _sides(finding: Finding) -> list[tuple[tuple[str, int | None], tuple[str, int | None], int | None]]:
    """Of each side: where the kernel's own file uses the code, where the code stands, and its PTX line."""
    return [
        ((finding.kernel_source, finding.kernel_line), (finding.source, finding.line), finding.ptx_line),
        (
            (finding.other_kernel_source, finding.other_kernel_line),
            (finding.other_source, finding.other_line),
            finding.other_ptx_line,
        ),
    ]


def _lines(finding: Finding) -> list[str]:
    places = dict.fromkeys(place for used, stands, _ in _sides(finding) for place in (stands, used) if place[1])
    shown = [(_place(*place, None), _text(*place)) for place in places]
    return [f"{place}  {text}" for place, text in shown if text]


def _cells(finding: Finding) -> list[str]:
    def side(used: tuple[str, int | None], stands: tuple[str, int | None], ptx_line: int | None, near: bool) -> str:
        if not used[1] and not ptx_line:
            return ""
        text = _text(*used)
        header = f" ({escape(_place(*stands, None))})" if stands != used and stands[1] else ""
        code = f"<br><code>{escape(text)}</code>" if text else ""
        return "near " * near + escape(_place(*used, ptx_line)) + header + code

    sides = zip(_sides(finding), (finding.near, finding.other_near), strict=True)
    here, there = (side(*place, near) for place, near in sides)
    where = "" if finding.address is None else f"0x{finding.address:x}"
    if finding.buffer:
        where += f" ({escape(finding.buffer)})"
    return [
        escape(finding.kind),
        here,
        there,
        f"{finding.block}, {finding.thread}",
        where,
        f"{finding.count:,}",
    ]


def check_kernel(
    kernel: Any,
    *,
    grid: Any,
    block: int | Sequence[int] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    arch: str | None = None,
    shared_bytes: int = 0,
    uninitialised: Sequence[int] = (),
    seconds_limit: float | None = 60.0,
) -> CheckReport:
    """Run ``kernel`` with every check and report races, illegal accesses, uninitialised reads, misused barriers.

    It runs twice: first with the last warp of each block going first, which shows mistakes that the usual order hides
    (what warp 0 prepares for the others without a barrier), then, from the same arguments again, in the usual order.

    ``kernel`` is a kernel of ``load_cuda`` or a CompiledKernel of the toolchain; it runs on the CPU, whatever device it
    was loaded for, and writes to its arguments. ``args`` and ``shared_bytes`` (dynamic shared memory in bytes) are a
    launch's. ``uninitialised`` are positions in ``args`` of arrays that nobody has written: reading them before the
    kernel writes them is a finding.

    A ``@triton.jit`` function, also an autotuned one, is checked as its call ``kernel[grid](*args, **kwargs)``:
    ``grid`` a tuple or a function of the constants, ``kwargs`` constants and options, ``arch`` what to compile for
    (default: as the active `simulated_triton`, else
    sm_80), no ``block``. The rules follow compute-sanitizer (memcheck, racecheck, initcheck, synccheck).

    Raises ArgumentError for anything else than a kernel, KernelFault where the kernel cannot go on (a deadlock, a stack
    overflow), KernelTimeout after ``seconds_limit``, UnsupportedInstructionError before anything runs.
    """
    from workbench import ptx
    from workbench.devices import arguments
    from workbench.driver.triton_calls import is_jit, run_call
    from workbench.loading import block_of, compiled_kernel

    if is_jit(kernel):
        unwritten = [args[position] for position in uninitialised]
        options = {"checks": True, "both_orders": True, "seconds_limit": seconds_limit, "uninitialised": unwritten}
        return run_call(kernel, grid, args, kwargs, block=block, shared_bytes=shared_bytes, arch=arch, **options).check
    compiled, args = compiled_kernel(kernel, args, kwargs, arch)
    block = block_of(compiled, block)
    values = arguments.check_arguments(compiled, args)
    grid, block, shared_bytes = arguments.check_launch(compiled, grid, block, shared_bytes, compiled.arch)
    program = ptx.Program.from_text(compiled.ptx)
    options = {
        "shared_bytes": shared_bytes,
        "checks": True,
        "seconds_limit": seconds_limit,
        "uninitialised": uninitialised,
    }
    launch = functools.partial(program.kernels[compiled.name].launch, grid, block, values, **options)
    before, fault = rehearse(program, values, launch)
    report = launch()
    if fault is not None:
        raise fault
    return CheckReport(compiled.label, together(report.findings, before), report)


def rehearse(program: Any, values: Sequence[object], launch: Any) -> tuple[list[Finding], KernelFault | None]:
    """The findings of a run in the opposite order of warps, or what ended it; arguments and variables are put back."""
    arrays = [value for value in (*values, *program.variables.values()) if _is_writable(value)]
    kept = [array.clone() if hasattr(array, "clone") else array.copy() for array in arrays]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the kernel's printf is heard once
            return launch(last_warp_first=True).findings, None
    except KernelFault as error:
        return [], error
    finally:
        for array, old in zip(arrays, kept, strict=True):
            array[...] = old


def _is_writable(value: object) -> bool:
    flags = getattr(value, "flags", None)
    return hasattr(value, "shape") and hasattr(value, "__setitem__") and (flags is None or flags.writeable)


def together(findings: Sequence[Finding], before: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of the usual order, and those that only the other order showed."""

    def sides(finding: Finding) -> tuple:
        return finding.kind, frozenset((finding.ptx_line, finding.other_ptx_line or 0))

    known = {sides(finding) for finding in findings}
    return (*findings, *(finding for finding in before if sides(finding) not in known))
