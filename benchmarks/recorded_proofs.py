"""Verdicts of ``workbench prove`` on recorded launches of Triton kernels: ``benchmarks.recorded_proofs FILE...``.

`benchmarks.recorded_launches` makes the files. Each function is proved once, as its launches of the code that was
recorded most often, by what `workbench prove` does with the launches of a program (`workbench.proof.launches`).
"""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import resource
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.recorded_launches import RecordedLaunch, RecordedTensor, read
from workbench.analysis.seen_launches import PassedArray, PassedValue, SeenLaunch, named_parameters
from workbench.base.terminal import say
from workbench.proof.launch_formulas import renamed
from workbench.proof.launches import prove_launches
from workbench.proof.tensors import bytes_of
from workbench.proof.verdict import PROVED

EFFORT = 20_000_000
"""Resources of one attempt; there are up to six of a function."""
SECONDS = 240
_MOST_NEGATIVE = 400
"""Numbers below its opposite are no indices."""
_COPIES = re.compile(r"cp\.async|mbarrier|wgmma|tcgen05")


FACTS: dict[str, Mapping[str, str]] = {
    "liger_cross_entropy_kernel": {"Y_ptr": "v == ignore_index or 0 <= v < X_stride"},
}
"""Facts about data that the recorded numbers do not show."""


@dataclass(frozen=True)
class Row:
    """The verdict on one function, with the CPU seconds of its proof and of all attempts, and memory in MB."""

    kernel: str
    status: str
    copies: bool
    why: str
    seconds: float
    all_seconds: float
    megabytes: int
    scope: str = ""


def kernels(paths: Sequence[Path]) -> dict[str, list[RecordedLaunch]]:
    """Return the launches of each function: those of the code with most launches, rather one without copies."""
    groups: dict[tuple[str, str], list[RecordedLaunch]] = {}
    for path in paths:
        for one in read(path):
            compiled = one.compiled
            groups.setdefault((compiled.label, compiled.key), []).append(one)
    best: dict[str, list[RecordedLaunch]] = {}
    for (label, _), launches in groups.items():
        if label not in best or _rank(launches) > _rank(best[label]):
            best[label] = launches
    return best


def _rank(launches: Sequence[RecordedLaunch]) -> tuple[bool, int]:
    return not _COPIES.search(launches[0].compiled.ptx), len(launches)


def seen(launch: RecordedLaunch) -> SeenLaunch:
    """Return a recorded launch as one of a program; each tensor is taken to have memory of its own."""
    kernel = launch.compiled
    values = [_value(at, launch.args.get(one.name, 0)) for at, one in enumerate(kernel.parameters)]
    names = [one.name for one in kernel.parameters]
    made = replace(kernel, parameters=named_parameters(kernel.parameters, names))
    x, y, z = [*launch.grid, 1, 1][:3]
    return SeenLaunch(made, (x, y, z), (kernel.threads_per_block or 1, 1, 1), 0, tuple(values))


def _value(at: int, given: Any) -> PassedValue:
    if not isinstance(given, RecordedTensor):
        return int(given) if isinstance(given, bool) else given
    axes = [(size, step) for size, step in zip(given.shape, given.strides, strict=True) if size > 1]
    count = 1 + sum((size - 1) * step for size, step in axes)
    whole = math.prod(given.shape) == count and axes == sorted(axes, key=lambda one: -one[1])
    element = bytes_of("dtype", given.dtype)
    return PassedArray(at + 1 << 40, count * element, given.dtype, given.shape if whole else ())


def data_facts(launches: Sequence[RecordedLaunch]) -> dict[str, str]:
    """Return facts about whole numbers in tensors: at least the least one seen, below the next larger argument."""
    args = [one.args for one in launches]
    sizes = {
        name: [one[name] for one in args] for name, value in args[0].items()
        if isinstance(value, int) and not isinstance(value, bool) and name.isidentifier()
    }  # fmt: skip
    fixed = {name: str(values[0]) for name, values in sizes.items() if values == values[:1] * len(values)}
    known = FACTS.get(launches[0].compiled.label, {})
    found = {name: renamed(text, {one: number for one, number in fixed.items() if int(number) < 1})
             for name, text in known.items()}  # fmt: skip
    for name, first in args[0].items():
        if name in found or not isinstance(first, RecordedTensor) or any(one[name].low is None for one in args):
            continue
        low, highs = min(0, *(one[name].low for one in args)), [one[name].high for one in args]
        above = [
            (values, size) for size, values in sizes.items()
            if all(value > high for value, high in zip(values, highs, strict=True))
        ]  # fmt: skip
        if low > -_MOST_NEGATIVE:  # else of an output, which holds anything
            found[name] = f"{low} <= v < {min(above)[1]}" if above else f"{low} <= v <= {max(highs)}"
    return found


def verdict(launches: Sequence[RecordedLaunch], effort: int) -> Row:
    """Return the verdict on one function."""
    kernel = launches[0].compiled
    alike = [one for one in launches if seen(one).arrangement == seen(launches[0]).arrangement]
    began = time.process_time()
    found, *_ = prove_launches(map(seen, alike), effort=effort, facts=data_facts(alike))
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    why = found.remark if found.proof.ok else found.line
    return Row(kernel.label, found.status, bool(_COPIES.search(kernel.ptx)), why, found.proof.seconds, seconds, memory,
               found.scope)  # fmt: skip


def apart(launches: Sequence[RecordedLaunch], effort: int, seconds: int) -> Row:
    """Return the verdict of a process of its own, or that it took too long."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # a fork's clock begins at 0
        there.send(verdict(launches, effort))

    process = context.Process(target=work)
    process.start()
    there.close()
    kernel = launches[0].compiled
    try:
        return here.recv()
    except EOFError:
        why = f"more than {seconds} CPU seconds, or an error"
    finally:
        process.kill()
        process.join()
    copies = bool(_COPIES.search(kernel.ptx))
    return Row(kernel.label, "unknown", copies, why, float(seconds), float(seconds), 0)


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--only", help="A regular expression of functions.")
@click.option("--results", type=click.Path(path_type=Path), help="Add each row to this file, and skip those in it.")
@click.option("--effort", default=EFFORT, show_default=True)
@click.option("--seconds", default=SECONDS, show_default=True, help="CPU seconds of a function.")
def main(paths: tuple[Path, ...], only: str | None, results: Path | None, effort: int, seconds: int) -> None:
    """Print the verdicts on the functions whose launches are in files."""
    rows: list[Row] = []
    done: dict[str, Any] = {}
    if results is not None and results.is_file():
        done = {row["kernel"]: row for row in map(json.loads, results.read_text().splitlines())}
    for name, launches in kernels(paths).items():
        if only and not re.search(only, name):
            continue
        row = Row(**done[name]) if name in done else apart(launches, effort, seconds)
        rows.append(row)
        if name not in done:
            why = "" if row.status == "proved" else row.why[:300]
            say(f"{row.status:8} {row.kernel} ({row.scope}) {row.seconds:.1f} of {row.all_seconds:.1f} s {why}")
            if results is not None:
                with results.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    summary(rows)


def summary(rows: Sequence[Row]) -> None:
    """Print figures: of those without copies, and of all."""
    for title, some in (("without copies", [one for one in rows if not one.copies]), ("all", rows)):
        if some:
            counts = Counter(f"{one.status} ({one.scope})" if one.status == PROVED else one.status for one in some)
            median = statistics.median(one.seconds for one in some)
            memory = max(one.megabytes for one in some)
            say(f"{title}: {len(some)}, {dict(counts)}, median {median:.1f} s, {memory} MB")


if __name__ == "__main__":
    main()
