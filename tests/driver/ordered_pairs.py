"""Runs pairs of small programs in this process, and prints the findings of each as a line of JSON.

In the form "bug" a program does not wait for something, in the form "fixed" it does.
"""

import json
from collections.abc import Callable, Sequence

from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch

LAUNCHES = Launches()


def watch_all() -> None:
    """Check the launches of this process; to be called before a driver starts."""
    watch(Watch(LAUNCHES, device_model(), checks=True))


def run(pairs: Sequence[Callable[[bool], object]], synchronize: Callable[[], object]) -> None:
    """Run both forms of every pair."""
    for pair in pairs:
        for form in ("fixed", "bug"):
            pair(form == "fixed")
            synchronize()
            found = [
                {"kind": one.kind, "line": one.line, "other": one.other_line, "text": str(fault)}
                for fault in LAUNCHES.take().faults
                if (one := fault.finding) is not None
            ]
            print(json.dumps({"pair": pair.__name__, "form": form, "found": found}), flush=True)
