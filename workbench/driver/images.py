"""Module images: PTX, with ptxas's resource figures of its kernels in a first line if our nvcc made the image.

The line is a comment, so the image is valid PTX for everything else, a real driver included.
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
from workbench.toolchain.sass import Resources, parse_ptxas_log

_MARK = "// workbench resources "


def image(ptx: str, resources: Mapping[str, Resources]) -> bytes:
    """Return the image: ``ptx`` behind a comment line that holds the resources of its kernels."""
    facts = {name: dataclasses.astuple(one) for name, one in resources.items()}
    return f"{_MARK}{json.dumps(facts)}\n{ptx}".encode()


@lru_cache(maxsize=64)
def resources_of(text: str, arch: str) -> Mapping[str, Resources]:
    """Return the resources of each kernel by name: from the image's first line, else from ptxas.

    The mapping is empty if there is no ptxas, or none that accepts this PTX.
    """
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
