"""The clients of the driver that are tried, each by a program in client_programs; CLIENTS.md is the list of them."""

from __future__ import annotations

import ast
from pathlib import Path

PROGRAMS = Path(__file__).parent / "client_programs"
# The program, and the package by which the client comes, in the version that is tried.
CLIENTS = {
    "on_cuda_bindings": "cuda-bindings 13.5.0",
    "on_cuda_core": "cuda-core 1.2.2",
    "on_numba_cuda": "numba-cuda 0.30.4",
    "on_tinygrad": "tinygrad 0.14.0",
    "on_kernel_tuner": "kernel_tuner 1.5.0",
    "on_cupy": "cupy-cuda13x 14.2.0",
}
HEAD = """
# Clients of the simulated driver

Every line is a feature that a program in `tests/driver/client_programs` tests. `pytest -m long
tests/driver/test_client_programs.py` runs the programs with the versions named here; `python tests/driver/clients.py >
workbench/driver/CLIENTS.md` writes this page. [PYCUDA.md](PYCUDA.md) lists the features of PyCUDA.

Start a program with `workbench run program.py`, or call `workbench.simulated_driver()` before it imports its client.
Some clients show only the code of an error. Then `workbench.simulated_driver().last_error` says what is wrong and what
to use instead, and `last_fault` is the finding on the kernel that failed. A forked process gets
CUDA_ERROR_NOT_INITIALIZED: start workers with spawn, each with a driver of its own. Ctrl-C ends a kernel with
KeyboardInterrupt.
"""


def page() -> str:
    """CLIENTS.md."""
    lines = [HEAD.strip()]
    for program, package in CLIENTS.items():
        tree = ast.parse((PROGRAMS / f"{program}.py").read_text())
        lines += ["", f"## {package}", "", *ast.get_docstring(tree).splitlines(), ""]
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and (what := ast.get_docstring(function)):
                lines.append(f"- {'not here: ' if function.name.startswith('no_') else ''}{what}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")
