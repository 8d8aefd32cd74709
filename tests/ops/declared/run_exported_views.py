"""A process with a simulated GPU that gives exported files tensors of every layout, and prints how they fare."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from views import EXPORTED, FORMS, PAIRS, outcome, pair, paired, view

if __name__ == "__main__":
    found = {}
    for form in EXPORTED:
        op, layouts = FORMS[form]
        exported = runpy.run_path(str(Path(sys.argv[1]) / f"{form}.py"))[op.name]
        writes = form.endswith("in_place")
        found[form] = {name: outcome(exported, view(name, "cuda"), writes=writes) for name in layouts}
    exported = runpy.run_path(str(Path(sys.argv[1]) / "pair.py"))[pair.name]
    found["pair"] = {columns: paired(exported, columns, "cuda") for columns in PAIRS}
    print("\n" + json.dumps(found))
