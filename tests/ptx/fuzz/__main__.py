"""``python tests/ptx/fuzz --seconds 3600 --seed 7``: random programs until the time is over."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)  # as pytest has it
    with tempfile.TemporaryDirectory(prefix="workbench-fuzz-") as home:
        os.environ["WORKBENCH_HOME"] = home  # random kernels are not worth keeping
        from fuzz.command import main

        sys.exit(main())
