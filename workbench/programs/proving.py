"""The runner of ``workbench prove PROGRAM``: run it, then prove the kernels that it launched."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

from workbench.analysis.seen_launches import SeenLaunch
from workbench.base.options import Pages, tell
from workbench.base.terminal import say
from workbench.programs.device_options import DeviceOptions
from workbench.programs.running import NOTHING_RAN, run_program


def prove_program(
    program: str, arguments: Sequence[str], *, arch: str | None, effort: int | None, nvcc: str, as_json: bool,
    pages: Pages,
) -> int:  # fmt: skip
    """Run a program on simulated devices, prove its kernels, and return the exit status.

    The status is the program's own if it failed. With ``as_json`` what the program prints goes to stderr. Raises
    MissingToolError without Z3, before anything runs.
    """
    if importlib.util.find_spec("z3") is None:  # else the program would find the CUDA runtime that torch loads
        from workbench.proof.solver import require_solver

        require_solver()
    output = _output_to_stderr() if as_json else None

    def told(seen: list[SeenLaunch]) -> int:
        if not seen:
            say(f"workbench: {program} launched nothing on a simulated device: nothing was proved. An op in a file is "
                f"{program}:NAME", err=True)  # fmt: skip
            return NOTHING_RAN
        from workbench.proof.launches import EFFORT, ProgramProofs, prove_launches

        found = ProgramProofs(program, tuple(prove_launches(seen, effort=effort or EFFORT)))
        sys.stdout.flush()
        if output is not None:
            os.dup2(output, 1)
        tell(found, as_json)
        pages.write(found)
        return found.exit_status

    options = DeviceOptions(arch=arch, prove=True, force=True)
    return run_program(program, arguments, options, nvcc=nvcc, told=told)


def _output_to_stderr() -> int:
    """Send what is written to file descriptor 1 to stderr; return a descriptor of what it was."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept
