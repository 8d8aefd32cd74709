"""A judge that trusts nothing: is this kernel right, and if not, what failed first and where?

`check` answers for the variants of an op or for a candidate that a program has written, ``workbench check`` does so
in a terminal; `Judge` keeps its processes for many candidates, and `check_many` judges them on an
executor's workers. A `Judgement` has a `Verdict` for each variant,
configuration and case; its JSON is described by ``schema.json`` beside this file. The exit status is that of the first
failure, 0 without one and 2 for a wrong argument; `OUTCOMES` has every outcome with its status and its meaning.

What the candidate's code can touch does not decide: it runs in a process of its own, which answers with plain JSON (see
`workbench.judge.description`) before the seeds of the inputs are drawn, and the reference, the inputs, the machine and
the comparison are in another. It can signal and trace no process but its own, so that limits hold. It is no sandbox
unless one is asked for (``--sandbox``, by bubblewrap): without it a candidate's Python file reads and writes what the
account can that it runs under.
"""

from workbench.judge.checking import check
from workbench.judge.judge import Judge
from workbench.judge.kernelbench.judging import check_kernelbench
from workbench.judge.many import check_many
from workbench.judge.outcomes import OUTCOMES
from workbench.judge.sandbox import NoSandbox
from workbench.judge.verdict import SCHEMA, SCHEMA_FILE, Found, Judgement, Verdict

__all__ = [
    "OUTCOMES",
    "SCHEMA",
    "SCHEMA_FILE",
    "Found",
    "Judge",
    "Judgement",
    "NoSandbox",
    "Verdict",
    "check",
    "check_kernelbench",
    "check_many",
]
