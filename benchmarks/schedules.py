"""Count what shows as wrong values, a fault or a deadlock in some order: ``python -m benchmarks.schedules [FOLDER]``.

Without FOLDER these are the CUDA programs of ``tests/reported``, each form a row. In a FOLDER it runs every program
whose docstring has a line such as ``Run: python NAME.py bug|fixed``, once for each form, and looks at each kernel that
the program hands to `wb.check_kernel`. A row counts as shown if an order ends in a fault, or with other values than the
usual order has, or than the program's right form: its last, or form 0. The right form's values count only if the usual
order of the faulty form gives them as well.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import workbench as wb
from workbench.base.terminal import say
from workbench.driver import observing
from workbench.errors import KernelFault, KernelTimeout, WorkbenchError
from workbench.ptx.schedules import Orders, unmarked

REPORTED = Path(__file__).parents[1] / "tests" / "reported"
TWO_ORDERS = [{"last_warp_first": other, "copies_early": other} for other in (False, True)]
_FORMS = re.compile(r"^Run: .*?\.py ([\w|]+)", re.MULTILINE)


@dataclass
class Measured:
    """The outcomes of one launch in the two orders, and by seed up to the first fault."""

    orders: Orders
    two: list[Any]
    seeds: list[Any]

    def shown(self, right: Measured | None) -> tuple[bool, int | None]:
        """Return whether the two orders show a fault, and the first seed that does."""
        expected = self.two[0]
        if right is not None and not self.differs(right.two[0], expected):
            expected = right.two[0]
        seeds = (seed for seed, one in enumerate(self.seeds) if self.differs(expected, one))
        return any(self.differs(expected, one) for one in self.two), next(seeds, None)

    def differs(self, expected: Any, other: Any) -> bool:
        """Return True for a fault, and for values that differ; sums of floats by atomics may round."""
        if other.fault is not None:
            return True
        alike = expected.fault is None and [a.nbytes for a in expected.content] == [b.nbytes for b in other.content]
        return not alike or bool(self.orders.difference(expected, other))


def measure(launch: Any, count: int) -> Measured:
    """Run a launch in the two orders and in those of so many seeds; its memory is put back."""
    orders = Orders(launch)
    try:
        orders.usual()
        two = [orders.run(unmarked(launch), {"checks": False, "schedule": None, **one}) for one in TWO_ORDERS]
        seeds: list[Any] = []
        while len(seeds) < count and not (seeds and seeds[-1].fault):
            seeds.append(orders.outcome(len(seeds)))
        return Measured(orders, two, seeds)
    finally:
        orders.put_back()


@contextlib.contextmanager
def measuring(count: int) -> Iterator[list[Measured]]:
    """Within the block measure each launch that `wb.check_kernel` checks."""
    found: list[Measured] = []
    checked, explored = wb.check_kernel, observing.explored

    def instead(launch: Any) -> list[Any]:
        found.append(measure(launch, count))
        return []

    observing.explored = instead
    wb.check_kernel = functools.partial(checked, schedules=1)
    try:
        yield found
    finally:
        wb.check_kernel, observing.explored = checked, explored


def quietly(run: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Run a program or a check without its output; it may end in a fault."""
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):  # noqa: SIM117
        with contextlib.suppress(SystemExit, KernelFault, KernelTimeout):
            run(*args, **kwargs)


def reported(count: int, only: str) -> Iterator[tuple[str, str, Measured, Measured | None]]:
    """Yield each form of the CUDA programs of ``tests/reported``, with its right form."""
    sys.path[:0] = [str(REPORTED)]
    import test_reported as table

    right: dict[str, Measured] = {}
    for family, cases in (("cuda", table.CUDA), ("hopper", table.HOPPER)):
        for case in cases:
            if case.program == "dependent" or only not in case.id:
                continue  # dependent: two launches, which run one after the other
            kept: list[Any] = []
            grid, block, args = table.given(case, kept)
            kernel = table.loaded(family)[f"{case.program}<{case.form}>"]
            with measuring(count) as found:
                quietly(wb.check_kernel, kernel, grid=grid, block=block, args=args)
            words = ", ".join(dict.fromkeys((*case.finds, *case.stops, *(f"note: {one}" for one in case.notes))))
            for one in found:
                right.setdefault(case.program, one)
                yield case.id, words or "-", one, right[case.program]


def of_folder(folder: Path, count: int, only: str) -> Iterator[tuple[str, str, Measured, Measured | None]]:
    """Yield each launch of each form of the programs in a folder, with that of the right form."""
    sys.path[:0] = [str(folder)]
    for path in sorted(folder.glob("*.py")):
        text = path.read_text()
        if "check_kernel" not in text and "from common import" not in text:
            continue
        if only not in path.stem or path.stem == "common":
            continue
        match = _FORMS.search(text)
        forms = match[1].split("|") if match else [""]
        launches: dict[str, list[Measured]] = {}
        for form in forms:
            arguments, sys.argv = sys.argv, [str(path), *filter(None, [form])]
            try:
                with measuring(count) as found:
                    quietly(runpy.run_path, str(path), run_name="__main__")
            except WorkbenchError as error:
                say(f"{path.name} {form}: {type(error).__name__}: {error}")
            finally:
                sys.argv = arguments
            launches[form] = found
        for form, measured in launches.items():
            for number, one in enumerate(measured):
                last = launches[forms[-1]]
                right = last[min(number, len(last) - 1)] if match and last else measured[-1]
                yield f"{path.stem} {form or number + 1}", "", one, right


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--schedules", "count", default=64, show_default=True, help="Orders that are tried.")
@click.option("--only", default="", help="Only rows whose name contains this.")
def main(folder: Path | None, count: int, only: str) -> None:
    """Print a table in Markdown: which launches show a fault in the two usual orders, and the first seed that does."""
    say("| launch | checks find | two orders | first of the seeds |\n|---|---|---|---|")
    two = many = rows = 0
    for name, words, one, right in of_folder(folder, count, only) if folder else reported(count, only):
        in_two, seed = one.shown(right)
        rows, two, many = rows + 1, two + in_two, many + (seed is not None)
        say(f"| {name} | {words} | {'yes' if in_two else 'no'} | {'no' if seed is None else seed} |")
    say(f"{rows} launches; {two} show in one of the two orders, {many} within {count} seeds")


if __name__ == "__main__":
    main()
