"""Commands that look at an op's variants side by side, or into one: ``workbench compare`` and ``trace``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click

from workbench.analysis.difference.commands import Baseline, WithStatuses, baseline_options
from workbench.base.architectures import MACHINE_ARCHS_TEXT
from workbench.base.config_text import ConfigText
from workbench.base.options import Pages, device_option, json_option, names, op_argument, pages_options, tell
from workbench.base.terminal import say
from workbench.errors import ArgumentError
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
@click.option("--exact", is_flag=True, help="Also say which variants are the same computation (docs/EXACT.md).")
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
    from workbench.comparison.compare import ComparedCases
    from workbench.comparison.compare import compare as run
    from workbench.ops.files import load_op
    from workbench.ops.selection import configs_of

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
    from workbench.ops.files import load_op
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
