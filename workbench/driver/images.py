"""What is loaded as a module: PTX, and in front of it, where our nvcc made it, what ptxas said about its kernels.

The line is a comment, so that the image is PTX for anybody else too, a real driver included.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from workbench.errors import MissingToolError
from workbench.toolchain import tools
from workbench.toolchain.assembly import Resources
from workbench.toolchain.sass import parse_ptxas_log

_MARK = "// workbench resources "


def image(ptx: str, resources: Mapping[str, Resources]) -> bytes:
    """PTX with the resources of its kernels."""
    facts = {name: dataclasses.astuple(one) for name, one in resources.items()}
    return f"{_MARK}{json.dumps(facts)}\n{ptx}".encode()


@lru_cache(maxsize=64)
def resources_of(text: str, arch: str) -> Mapping[str, Resources]:
    """The resources of each kernel: as the image says, else asked of ptxas; empty where no ptxas takes this PTX."""
    if text.startswith(_MARK):
        facts = json.loads(text[len(_MARK) : text.index("\n")])
        return {name: Resources(*values) for name, values in facts.items()}
    try:
        ptxas = tools.find_program("ptxas")
    except MissingToolError:
        return {}
    with tempfile.TemporaryDirectory(prefix="workbench-ptxas-") as folder:
        file = Path(folder) / "module.ptx"
        file.write_text(text)
        command = [str(ptxas), "-v", f"-arch={arch}", "-o", "/dev/null", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return parse_ptxas_log(done.stderr) if done.returncode == 0 else {}
