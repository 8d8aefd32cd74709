"""Runs pairs of small programs in this process, and prints the findings and the value of each as a line of JSON.

In the form "bug" a program does not wait for something, in the form "fixed" it does. With the argument "late" and a
seed they run late instead, without checks.
"""

import json
import sys
from collections.abc import Callable, Sequence

from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch

LAUNCHES = Launches()
LATE = sys.argv[1:2] == ["late"]


def watch_all() -> None:
    """Check the launches of this process, or run them late; to be called before a driver starts."""
    seed = int(sys.argv[2]) if LATE else 0
    watch(Watch(LAUNCHES, device_model(), checks=not LATE, late=LATE, first_schedule=seed))


def run(pairs: Sequence[Callable[[bool], object]], synchronize: Callable[[], object]) -> None:
    """Run both forms of every pair."""
    for pair in pairs:
        for form in ("fixed", "bug"):
            result = pair(form == "fixed")
            synchronize()
            value = float(result.sum()) if hasattr(result, "sum") else float(result)
            found = [
                {"kind": one.kind, "line": one.line, "other": one.other_line, "text": str(fault)}
                for fault in LAUNCHES.take().faults
                if (one := fault.finding) is not None
            ]
            print(json.dumps({"pair": pair.__name__, "form": form, "value": value, "found": found}), flush=True)
