"""Commands on an op's variants: ``workbench compare``, ``trace``, ``tune`` and ``export``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click

from workbench.analysis.difference.commands import Baseline, WithStatuses, baseline_options
from workbench.base.architectures import MACHINE_ARCHS_TEXT
from workbench.base.config_text import ConfigText
from workbench.base.options import (
    Pages,
    check_device,
    checked,
    device_option,
    json_option,
    names,
    op_argument,
    pages_options,
    tell,
)
from workbench.base.terminal import plain, say
from workbench.errors import ArgumentError
from workbench.tuning.budget import budget_of
from workbench.tuning.command_options import judged_option, model_option, sample_option, variant_config_option

_cases_option = names("case", "A case of the op (repeatable; default: its small one).")
_tuned_option = click.option("--tuned", is_flag=True, help="Use the configurations that were tuned for the case.")


@click.command(cls=WithStatuses)
@op_argument()
@_cases_option
@device_option
@names("variant", "Only these variants (repeatable).", metavar=None)
@names("arch", f"Compile for {MACHINE_ARCHS_TEXT} (repeatable), and predict for a GPU of each.", metavar="ARCH")
@variant_config_option
@_tuned_option
@model_option
@sample_option
@judged_option
@baseline_options("compare")
@pages_options
@json_option
def compare(
    op: str,
    cases: list[str] | None,
    configs: list[ConfigText],
    as_json: bool,
    baseline: Baseline,
    pages: Pages,
    archs: list[str] | None,
    **options: Any,
) -> None:
    """Compare the variants of OP side by side, each checked against the float64 reference.

    Of several cases --json prints one document a line.
    """
    from workbench.ops.own.files import load_op
    from workbench.ops.selection import configs_of
    from workbench.tuning.compare import ComparedCases
    from workbench.tuning.compare import compare as run

    found = load_op(op)

    def on(name: str | None) -> Any:
        given = configs_of(found, configs, options["variants"], found.case(name))
        return run(found, name, configs=given, arch=archs, **options)

    _run_cases(cases, on, lambda comparison: comparison.all_correct, as_json, baseline, pages, ComparedCases)


@click.command(cls=WithStatuses)
@op_argument()
@_cases_option
@click.option("--variant", default=None, help="The variant to look into; not needed where there is only one.")
@variant_config_option
@_tuned_option
@model_option
@sample_option
@baseline_options("trace")
@pages_options
@json_option
def trace(
    op: str,
    cases: list[str] | None,
    configs: list[ConfigText],
    as_json: bool,
    baseline: Baseline,
    pages: Pages,
    **options: Any,
) -> None:
    """Show what one variant of OP does to memory, source line by source line.

    Of several cases --json prints one document a line.
    """
    from workbench.ops.own.files import load_op
    from workbench.ops.selection import config_of
    from workbench.ops.tracing import trace as run

    found = load_op(op)

    def on(name: str | None) -> Any:
        chosen, config = config_of(found, configs, options["variant"], found.case(name))
        return run(found, name, **options | {"variant": chosen, "config": config})

    _run_cases(cases, on, lambda traced: True, as_json, baseline, pages)


def _run_cases(
    cases: list[str] | None,
    on: Callable[[str | None], Any],
    correct: Callable[[Any], bool],
    as_json: bool,
    baseline: Baseline,
    pages: Pages,
    together: Callable[[Mapping[str, Any]], Any] | None = None,
) -> NoReturn:
    """Print the result ``on`` each case, write pages of all, and exit: with 1 if one is not ``correct``.

    Without ``cases`` the one is None, which stands for the op's small one. ``together`` makes one result of several,
    which a saved result needs; without it ArgumentError is raised for several cases with a saved result.
    """
    if cases is None or len(cases) == 1:
        result = on(cases[0] if cases else None)
        baseline.finish(result, as_json, pages, correct(result))
    if together is None and baseline.used:
        got = ", ".join(cases)
        raise ArgumentError("--case", got, "one case with --save and --against", "Save each case to a file of its own.")
    results = {}
    for name in dict.fromkeys(cases):
        results[name] = on(name)
        if baseline.against is None:
            _tell_one(results[name], as_json)
    ok = all(map(correct, results.values()))
    if together is not None and baseline.against is not None:
        baseline.finish(together(results), as_json, pages, ok)
    if together is not None and baseline.save is not None:
        together(results).save(baseline.save)
    pages.write(*results.values())
    sys.exit(0 if ok else 1)


def _tell_one(result: Any, as_json: bool) -> None:
    """Print one of several results of a command, as JSON in a single line."""
    if as_json:
        import json

        say(json.dumps(json.loads(result.to_json())))
    else:
        tell(result, as_json=False)


def _check_device(name: str) -> None:
    if not name.startswith("replay:"):
        check_device(name)


@click.command()
@op_argument()
@names("case", "Tune for these cases (repeatable).")
@names("variant", "Only these variants (repeatable).", metavar=None)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=checked(_check_device),
    help="auto, sim, cuda, or replay:FILE for a recorded sweep.",
)
@model_option
@click.option(
    "--strategy",
    default="exhaustive",
    show_default=True,
    help="exhaustive, random, greedy, predicted, bayesian or kernel_tuner:NAME.",
)
@click.option(
    "--budget",
    default=None,
    callback=checked(budget_of),
    help="At most this many configurations (24) or seconds (30s) per variant.",
)
@click.option("--store", default=None, type=click.Path(dir_okay=False), help="File that keeps the results (SQLite).")
@click.option("--quick", is_flag=True, help="A small case and a few configurations of each variant.")
@click.option("--retry-failed", is_flag=True, help="Retry configurations that failed before.")
@click.option(
    "--isolation",
    type=click.Choice(("auto", "process", "none")),
    default="auto",
    show_default=True,
    help="Measure in a process that may hang and crash, or in this one; auto: a process on a GPU.",
)
@sample_option
@judged_option
@click.option("--save", default=None, type=click.Path(dir_okay=False), help="Write one variant's sweep to this file.")
@pages_options
@json_option
def tune(op: str, save: str | None, as_json: bool, pages: Pages, **options: Any) -> None:
    """Sweep the configurations of OP, keep every outcome, and record the winner for OP to use.

    Interrupt it whenever you like: the same command goes on where it stopped.
    """
    from contextlib import closing

    from rich.console import Console

    from workbench.ops.own.files import load_op
    from workbench.tuning import ProgressBar, summary_table
    from workbench.tuning import tune as run
    from workbench.tuning.sweep import sweep_of
    from workbench.tuning.sweep_record import check_path

    if save:
        check_path(save)
    with closing(ProgressBar()) as bar:
        result = run(load_op(op), progress=bar, **options)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=as_json)
    if as_json:
        say(result.to_json())
    else:
        console.print(summary_table(result))
        console.print(plain(result))
    pages.write(result)
    if result.interrupted:
        sys.exit(130)
    if save:
        console.print(plain(f"sweep written to {sweep_of(result).save(save)}"))


@click.command()
@click.argument("what", metavar="SWEEP|FILE.py:OP")
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--format", "kind", type=click.Choice(("sweep", "kernel-tuner", "t4", "t4-metadata")), default="sweep")
@click.option("--variant", help="For an op, the kernel to export (default: the fastest tuned one).")
def export(what: str, path: str, kind: str, variant: str | None) -> None:
    """Write a sweep or an own op to PATH.

    A sweep (a file, a Kernel Tuner cache, or the name of a shipped sweep) is written in another format. An op of one's
    own, FILE.py:OP, is written as one Python file that needs only torch and PyCUDA or Triton.
    """
    if ".py:" in what:
        from workbench.ops.own.files import load_op

        say(f"written to {load_op(what).export(path, variant)}")
        return
    from workbench.tuning.kernel_tuner_files import export as run
    from workbench.tuning.sweep import load

    say(f"written to {run(load(what), path, kind)}")
