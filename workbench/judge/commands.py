"""The command ``workbench check``."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from workbench.base.options import Pages, names, op_argument, pages_options, tell, without
from workbench.base.terminal import say
from workbench.errors import ArgumentError


class _WithOutcomes(click.Command):
    """Command whose help ends with the exit statuses; the table is read when help is shown."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from workbench.judge.outcomes import listed

        with formatter.section("Exit status, that of the first failure (2: a wrong argument)"):
            formatter.write(listed() + "\n")


@click.command(cls=_WithOutcomes)
@op_argument(required=False)
@click.option(
    "--kernelbench",
    nargs=2,
    multiple=True,
    metavar="PROBLEM.py SOLUTION.py",
    help="Judge ModelNew of SOLUTION.py by Model of PROBLEM.py, on torch's simulated device (repeatable; several are "
    "judged on all cores, and verdicts kept: those of the same files are not judged again).",
)
@click.option("--full", is_flag=True, help="With --kernelbench: at the problem's own sizes.")
@click.option(
    "--skip-torch-compile",
    is_flag=True,
    help="With --kernelbench: leave out the time of the reference by torch.compile.",
)
@click.option(
    "--candidate",
    metavar="FILE",
    help="Judge this: a .cu file for the CUDA variant, or a .py file with CUDA text or a @triton.jit function of the "
    "op's name, or with declare(op) (docs/JUDGE.md).",
)
@names("variant", "Only these variants (repeatable).")
@names("case", "Only these cases (repeatable).")
@click.option("--all-configs", is_flag=True, help="Every legal configuration, not the default one only.")
@click.option("--seeds", default=2, show_default=True, help="Number of seeds to draw.")
@click.option("--seed", "given", multiple=True, type=int, help="Use this seed instead (repeatable), from a verdict.")
@click.option(
    "--seconds", default=60.0, show_default=True, help="Limit of describing a case, and of running it, in CPU time."
)
@click.option(
    "--memory", "memory_mib", default=4096, show_default=True, metavar="MIB", help="Limit of a process and a workspace."
)
@without("elsewhere", "Leave out inputs of other magnitudes and structures: larger, tied, NaN and others.")
@click.option(
    "--schedules", default=0, metavar="N", help="Also run each case in N other orders of its blocks and warps."
)
@click.option("--exact", is_flag=True, help="Also say whether a right kernel is the same computation (docs/EXACT.md).")
@click.option(
    "--prove", is_flag=True, help="Also prove each kernel for all sizes that its launches stand for (docs/PROOFS.md)."
)
@click.option("--sandbox", is_flag=True, help="Run a candidate's code without network, files read-only (bubblewrap).")
@pages_options
@click.option("--json", "as_json", is_flag=True, help="Machine-readable; the schema is workbench/judge/schema.json.")
def check(
    op: str | None, all_configs: bool, seeds: int, given: tuple[int, ...], as_json: bool, pages: Pages,
    kernelbench: tuple[tuple[str, str], ...], full: bool, skip_torch_compile: bool, **options: Any,
) -> None:  # fmt: skip
    """Judge the kernels of OP (a name, or FILE.py:NAME), or a candidate for it, without trusting them.

    With --kernelbench instead of OP, judge a solution in KernelBench's format; for several, --json prints one line
    each.

    Each kernel runs on the PTX machine on inputs that it has not seen, with all checks, and with the warps in two
    orders.

    Without --sandbox this is not a sandbox: the Python file of a candidate can read and write what you can.
    """
    if kernelbench:
        options |= {"all_configs": all_configs, "torch_compile": not skip_torch_compile}
        _check_kernelbench(op, kernelbench, as_json, pages, full=full, seeds=list(given) or seeds, **options)
    elif op is None and not (full or skip_torch_compile):
        raise click.UsageError("Missing argument 'OP' (a name, or FILE.py:NAME), or --kernelbench.")
    from workbench.judge import check as run
    from workbench.ops.files import load_op

    if full or skip_torch_compile or op is None:
        got = "--full" if full else "--skip-torch-compile"
        raise ArgumentError("op", got, "OP, or --kernelbench PROBLEM.py SOLUTION.py", "Name one of the two.")
    found = load_op(op)
    judgement = run(found, config="all" if all_configs else None, seeds=list(given) or seeds, **options)
    tell(judgement, as_json)
    pages.write(judgement)
    sys.exit(judgement.exit_status)


def _check_kernelbench(
    op: str | None, pairs: tuple[tuple[str, str], ...], as_json: bool, pages: Pages, **options: Any
) -> NoReturn:
    from workbench.judge import check_kernelbench, check_many

    used = {name: options.pop(name) for name in ("candidate", "variants", "cases", "all_configs")}
    used |= {"op": op is not None}
    unfit = [name for name, value in used.items() if value]
    if unfit:
        raise ArgumentError(
            unfit[0], "given", "no value with --kernelbench", "Problems of KernelBench do not have this option."
        )
    if len(pairs) == 1:
        judgement = check_kernelbench(*pairs[0], **options)
        tell(judgement, as_json)
        pages.write(judgement)
        sys.exit(judgement.exit_status)
    judgements = []
    for judgement in check_many(pairs, **options):
        say(judgement.to_json(indent=None) if as_json else judgement)  # a line of JSON for each
        judgements.append(judgement)
    pages.write(*judgements)
    sys.exit(next((one.exit_status for one in judgements if one.exit_status), 0))
