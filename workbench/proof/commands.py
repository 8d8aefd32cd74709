"""The command ``workbench prove``."""

from __future__ import annotations

import sys
from typing import Any

import click

from workbench.base.options import Pages, json_option, names, op_argument, pages_options, tell


@click.command(epilog="Exit status: 0 proved, 1 refuted, 2 a wrong argument, 3 unknown.")
@op_argument()
@names("variant", "Only these variants (repeatable).")
@click.option("--case", help="The case whose sizes become symbols; default the first one.")
@click.option(
    "--fact",
    "facts",
    multiple=True,
    metavar="TEXT",
    help="A comparison of sizes, 'cols % 16 == 0', or of a tensor's elements v, 'index: 0 <= v < rows' (repeatable).",
)
@click.option("--arch", default="sm_80", show_default=True, help="Architecture to compile for.")
@click.option("--effort", type=int, help="Resources of the solver; the same number means the same on every machine.")
@pages_options
@json_option
def prove(
    op: str, variants: list[str] | None, case: str | None, facts: tuple[str, ...], arch: str, effort: int | None,
    as_json: bool, pages: Pages,
) -> None:  # fmt: skip
    """Prove the kernels of OP (a name, or FILE.py:NAME) for all sizes: bounds, races and barriers.

    A kernel is refuted by a launch in which the PTX machine finds the fault.
    """
    from workbench.ops.files import load_op
    from workbench.proof.proving import EFFORT
    from workbench.proof.proving import prove as run

    stated: list[Any] = []
    for one in facts:
        tensor, colon, text = one.partition(":")
        stated.append({tensor.strip(): text.strip()} if colon else one)
    effort = EFFORT if effort is None else effort
    found = run(load_op(op), variants=variants, case=case, facts=stated, arch=arch, effort=effort)
    tell(found, as_json)
    pages.write(found)
    sys.exit(found.exit_status)
