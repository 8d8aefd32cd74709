"""Commands that tune an op and write what was found: ``workbench tune`` and ``export``."""

from __future__ import annotations

import sys
from typing import Any

import click

from workbench.base.options import Pages, check_device, checked, json_option, names, op_argument, pages_options
from workbench.base.terminal import plain, say
from workbench.tuning.command_options import judged_option, model_option, sample_option
from workbench.tuning.search.budget import budget_of


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
@click.option("--prove", is_flag=True, help="Prove each configuration first; one that is refuted is not timed.")
@click.option("--exact", is_flag=True, help="Also say which configurations are the same computation (docs/EXACT.md).")
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

    from workbench.ops.files import load_op
    from workbench.tuning import ProgressBar, summary_table
    from workbench.tuning import tune as run
    from workbench.tuning.recorded.sweep import sweep_of
    from workbench.tuning.recorded.sweep_record import check_path

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
        from workbench.ops.files import load_op

        say(f"written to {load_op(what).export(path, variant)}")
        return
    from workbench.tuning.recorded.kernel_tuner_files import export as run
    from workbench.tuning.recorded.sweep import load

    say(f"written to {run(load(what), path, kind)}")
