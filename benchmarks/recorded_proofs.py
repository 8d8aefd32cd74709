"""Verdicts of ``wb.prove`` on recorded launches of Triton kernels: ``python -m benchmarks.recorded_proofs FILE...``.

`benchmarks.recorded_launches` makes the files. Each function is proved once, as its launches of the code that was
recorded most often, with sizes as symbols (`benchmarks.launch_families`), first with few numbers fixed, then with more.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import resource
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.launch_families import ALL, CONSTANTS, FEW, family
from benchmarks.recorded_launches import RecordedLaunch, read
from workbench.base.terminal import say
from workbench.errors import WorkbenchError
from workbench.proof.proving import prove_family

EFFORT = 40_000_000
SECONDS = 60
_COPIES = re.compile(r"cp\.async|mbarrier|wgmma|tcgen05")


FACTS: dict[str, Any] = {
    "liger_cross_entropy_kernel": {"Y_ptr": "v == ignore_index or 0 <= v < X_stride"},
}
"""Facts about data that the recorded numbers do not show."""


@dataclass(frozen=True)
class Row:
    """The verdict on one function, with CPU seconds and the most memory of its process in MB."""

    kernel: str
    status: str
    copies: bool
    why: str
    seconds: float
    megabytes: int
    launches: str = ""
    fixed: int = 0


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


def verdict(launches: Sequence[RecordedLaunch], fixed: int, effort: int) -> Row:
    """Return the verdict on one function, with some numbers fixed."""
    kernel = launches[0].compiled
    try:
        made = family(launches, fixed=fixed, facts=FACTS.get(kernel.label, ()))
        proof = prove_family(made, kernel, effort=effort)
        why = ", ".join(proof.preconditions) if proof.ok else "; ".join(line.strip() for line in proof.lines()[1:])
        status, seconds, words = proof.status, proof.seconds, proof.grid
    except WorkbenchError as error:
        status, seconds, why, words = "unknown", 0.0, f"error: {error}", ""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return Row(kernel.label, status, bool(_COPIES.search(kernel.ptx)), why, round(seconds, 2), memory, words, fixed)


def apart(launches: Sequence[RecordedLaunch], fixed: int, effort: int, seconds: int) -> Row:
    """Return the verdict of a process of its own, or that it took too long."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # a fork's clock begins at 0
        there.send(verdict(launches, fixed, effort))

    process = context.Process(target=work)
    process.start()
    there.close()
    kernel = launches[0].compiled
    try:
        return here.recv()
    except EOFError:
        why = f"more than {seconds} CPU seconds"
    finally:
        process.kill()
        process.join()
    return Row(kernel.label, "unknown", bool(_COPIES.search(kernel.ptx)), why, float(seconds), 0, fixed=fixed)


def best_of(launches: Sequence[RecordedLaunch], effort: int, seconds: int) -> Row:
    """Return the best verdict: proved with the fewest numbers fixed, else refuted with most, else unknown."""
    rows = []
    for fixed in (FEW, CONSTANTS, ALL):
        rows.append(apart(launches, fixed, effort, seconds))
        if rows[-1].status == "proved":
            return rows[-1]
        if "not modelled" in rows[-1].why:
            break
    return rows[-1] if rows[-1].status == "refuted" else next(one for one in rows if one.status == "unknown")


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--only", help="A regular expression of functions.")
@click.option("--results", type=click.Path(path_type=Path), help="Add each row to this file, and skip those in it.")
@click.option("--effort", default=EFFORT, show_default=True)
@click.option("--seconds", default=SECONDS, show_default=True, help="CPU seconds of one attempt.")
def main(paths: tuple[Path, ...], only: str | None, results: Path | None, effort: int, seconds: int) -> None:
    """Print the verdicts on the functions whose launches are in files."""
    rows: list[Row] = []
    done: dict[str, Any] = {}
    if results is not None and results.is_file():
        done = {row["kernel"]: row for row in map(json.loads, results.read_text().splitlines())}
    for name, launches in kernels(paths).items():
        if only and not re.search(only, name):
            continue
        row = Row(**done[name]) if name in done else best_of(launches, effort, seconds)
        rows.append(row)
        if name not in done:
            why = "" if row.status == "proved" else row.why[:300]
            say(f"{row.status:8} {row.fixed} {row.kernel} {row.seconds} s {why}")
            if results is not None:
                with results.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    summary(rows)


def summary(rows: Sequence[Row]) -> None:
    """Print figures: of those without copies, and of all."""
    for title, some in (("without copies", [one for one in rows if not one.copies]), ("all", rows)):
        if some:
            counts = Counter(one.status for one in some)
            median = statistics.median(one.seconds for one in some)
            memory = max(one.megabytes for one in some)
            say(f"{title}: {len(some)}, {dict(counts)}, median {median:.1f} s, {memory} MB")


if __name__ == "__main__":
    main()
