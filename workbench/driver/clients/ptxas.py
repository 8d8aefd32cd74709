"""The ``ptxas`` that compilers find beside the simulated driver: ``python -m workbench.driver.clients.ptxas``.

A compiler that calls ptxas to make machine code (cuTile's ``tileiras`` does) gets its own PTX back, behind a line with
the resources of its kernels (see images.py), because the simulated driver runs PTX. NVIDIA's ptxas runs first: its
messages and its exit status are the program's. Any call but one for one cubin of one file is only passed on to NVIDIA's
ptxas.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.terminal import say
from workbench.driver.images import image
from workbench.errors import MissingToolError, WorkbenchError
from workbench.toolchain import nvcc
from workbench.toolchain.sass import parse_ptxas_log

_OUTPUT = ("-o", "--output-file")
_VERBOSE = ("-v", "--verbose")
_OBJECTS = ("-c", "--compile-only", "-ewp", "--extensible-whole-program")  # for nvlink, which takes machine code
_INFORMATION = re.compile(r"ptxas info\b|\s+\d+ bytes stack frame")
_TOO_OLD = re.compile(r"Unsupported \.version|(?:Value|Architecture) '?sm_\w+'? is not defined")


def main(arguments: Sequence[str]) -> int:
    """Run one command line, print NVIDIA's messages to stderr, and return the exit status."""
    try:
        files = [Path(word) for word in arguments if word.endswith(".ptx") and not word.startswith("-")]
        output = _output(arguments)
        if len(files) != 1 or output is None or any(word in _OBJECTS for word in arguments):
            return subprocess.run([str(nvcc.assembler()), *arguments], check=False).returncode
        return _assemble(arguments, files[0], output)
    except WorkbenchError as error:
        say(error, err=True)
        return 1


def _output(arguments: Sequence[str]) -> Path | None:
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in _OUTPUT:
            return Path(value) if equals else Path(arguments[at + 1]) if at + 1 < len(arguments) else None
    return None


def _assemble(arguments: Sequence[str], file: Path, output: Path) -> int:
    try:
        command = [str(nvcc.assembler()), *arguments, *([] if any(word in _VERBOSE for word in arguments) else ["-v"])]
    except MissingToolError:
        replace_file(output, image(file.read_text(), {}))
        return 0
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    if done.returncode != 0 and not _TOO_OLD.search(log):
        sys.stderr.write(log)
        return done.returncode
    known = parse_ptxas_log(log) if done.returncode == 0 else {}
    replace_file(output, image(file.read_text(), known))
    if done.returncode == 0:
        asked = any(word in _VERBOSE for word in arguments)
        sys.stderr.writelines(line for line in log.splitlines(keepends=True) if asked or not _INFORMATION.match(line))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
