"""A judge that trusts no kernel: it reports whether one is right, and if not, what failed first and where.

`check` judges the variants of an op, or a candidate that a program has written, ``workbench check`` does so
in a terminal; `Judge` keeps its processes for many candidates, and `check_many` judges them on an
executor's workers. A `Judgement` has a `Verdict` for each variant,
configuration and case; its JSON is described by ``schema.json`` beside this file. The exit status is that of the first
failure, 0 without one and 2 for a wrong argument; `OUTCOMES` has every outcome with its status and its meaning.

Nothing that the candidate's code can touch decides a verdict: it runs in a process of its own, which answers with plain
JSON (see `workbench.judge.description`) before the seeds of the inputs are drawn, and the reference, the inputs, the
machine and the comparison are in another. It can signal and trace no process but its own, so that limits hold. It is
not a sandbox unless one is asked for (``--sandbox``, by bubblewrap): without it a candidate's Python file can read and
write everything that its account can.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "OUTCOMES": "workbench.judge.outcomes",
    "SCHEMA": "workbench.judge.verdict",
    "SCHEMA_FILE": "workbench.judge.verdict",
    "Found": "workbench.judge.verdict",
    "Judge": "workbench.judge.judge",
    "Judgement": "workbench.judge.verdict",
    "NoSandbox": "workbench.judge.sandbox",
    "Verdict": "workbench.judge.verdict",
    "check": "workbench.judge.checking",
    "check_kernelbench": "workbench.judge.kernelbench.judging",
    "check_many": "workbench.judge.many",
}
"""A solution's process imports this package before torch."""

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.judge.checking import check as check
    from workbench.judge.judge import Judge as Judge
    from workbench.judge.kernelbench.judging import check_kernelbench as check_kernelbench
    from workbench.judge.many import check_many as check_many
    from workbench.judge.outcomes import OUTCOMES as OUTCOMES
    from workbench.judge.sandbox import NoSandbox as NoSandbox
    from workbench.judge.verdict import SCHEMA as SCHEMA
    from workbench.judge.verdict import SCHEMA_FILE as SCHEMA_FILE
    from workbench.judge.verdict import Found as Found
    from workbench.judge.verdict import Judgement as Judgement
    from workbench.judge.verdict import Verdict as Verdict


__getattr__, __dir__ = lazily(__name__, _LAZY)
