"""The command ``workbench watch``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from workbench.base.options import names, op_argument
from workbench.base.terminal import say

if TYPE_CHECKING:
    from workbench.comparison.comparison import Comparison


@click.command()
@op_argument()
@click.option("--case", metavar="NAME", help="A case of the op (default: its small one).")
@names("variant", "Only these variants (repeatable).", metavar=None)
def watch(op: str, case: str | None, variants: list[str] | None) -> None:
    """Compile, check and count OP (FILE.py:NAME) again each time one of its files is saved, until Ctrl-C.

    Each verdict says of every variant whether it is right and what the checks found; where all are right, also which
    figures changed since the last version that was. A save ends the work on an older version.
    """
    from workbench.comparison.watching import verdicts

    last = None
    for verdict in verdicts(op, case, variants):
        say(f"{time.strftime('%H:%M:%S')}, {verdict.seconds:.1f} s, {'all right' if verdict.ok else 'NOT right'}")
        for line in verdict.lines():
            say(line)
        if verdict.comparison is not None and verdict.ok:
            say(verdict.comparison if last is None else _changes(last, verdict.comparison))
            last = verdict.comparison
        say("")


def _changes(before: Comparison, now: Comparison) -> str:
    from workbench.analysis.difference.difference import KINDS, difference_of
    from workbench.base.saved_documents import parse_document

    old, new = (parse_document(one.to_json(), "the result", KINDS) for one in (before, now))
    return str(difference_of(old, new))
