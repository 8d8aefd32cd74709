"""Which statements of the modules for a GPU no test executes: ``python tests/simulated_gpu/blind.py``.

Runs the tests of these modules, those of the simulated GPU among them, and compares what they leave out with
``blind.txt``. The exit status is 0 if that lists exactly the blind ones, at most `MOST`, each with a reason.
Statements outside of functions are executed by importing the module, and do not count.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
LIST = Path(__file__).with_name("blind.txt")
MOST = 20
MODULES = (
    "workbench/launch/devices.py",
    "workbench/launch/gpu*.py",
    "workbench/launch/sim.py",
    "workbench/tuning/gpu_*.py",
    "workbench/tuning/measuring/measure.py",
    "workbench/tuning/measuring/isolation.py",
    "workbench/attention/bench/paged_attention",
    "workbench/tuning/bench/streaming.py",
    "workbench/tuning/bench/machine.py",
)
TESTS = (
    "tests/launch",
    "tests/attention/bench",
    "tests/tuning",
    "tests/ops/declared",
    "tests/ops/export",
    "tests/attention/ops/test_paged_attention_gpu.py",
    "tests/attention/models/test_decode_step.py",
    "tests/launch/test_loading_variables.py",
    "tests/base/test_worker.py",
    "tests/driver/test_clients.py",
    "tests/driver/test_run.py",
    "tests/judge/test_rounded_products.py",
    "tests/ptx/test_groups.py",
    "tests/ptx/test_launch.py",
)
SETTINGS = """
[run]
data_file = {folder}/data
parallel = true
sigterm = true
concurrency = thread
source = {checkout}/workbench
"""


def listed() -> dict[tuple[str, str], str]:
    """(module, statement) -> the reason why it is blind, as ``blind.txt`` says: ``module: statement  # reason``."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            place, _, reason = line.rpartition("  # ")
            module, _, statement = place.partition(": ")
            found[module, statement] = reason
    return found


def modules() -> list[Path]:
    """The files that are looked at."""
    found = []
    for pattern in MODULES:
        path = CHECKOUT / pattern
        found += sorted(path.rglob("*.py")) if path.is_dir() else sorted(path.parent.glob(path.name))
    return found


def statements(path: Path) -> dict[int, str]:
    """The statements inside functions by line, as text; docstrings are none."""
    text, found = path.read_text(), {}
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        body = function.body if isinstance(function.body, list) else []
        for statement in (inner for outer in body for inner in ast.walk(outer)):
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if isinstance(statement, ast.stmt) and not is_docstring:
                found[statement.lineno] = lines[statement.lineno - 1].strip()
    return found


def blind() -> dict[tuple[str, str], int]:
    """(module, statement) -> its line, of those that no test executes. Runs the tests: minutes."""
    import coverage

    with tempfile.TemporaryDirectory(prefix="workbench-blind-") as name:
        settings = Path(name) / "settings"
        settings.write_text(SETTINGS.format(folder=name, checkout=CHECKOUT))
        # sitecustomize.py starts the count in every process.
        path = os.pathsep.join([str(Path(__file__).with_name("site")), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"COVERAGE_PROCESS_START": str(settings), "PYTHONPATH": path}
        environment["WORKBENCH_REQUIRE_GPU_DOUBLE"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
        if status := subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode:
            print(f"the tests ended with status {status}: what they were to execute may be missing below")
        count = coverage.Coverage(config_file=str(settings))
        count.combine()
        found = {}
        for path in modules():
            missing, known = set(count.analysis2(str(path))[3]), statements(path)
            module = str(path.relative_to(CHECKOUT))
            found |= {(module, text): line for line, text in known.items() if line in missing}
    return found


def main() -> int:
    """Print what is blind and what is wrong with the list; the number of faults."""
    found, known = blind(), listed()
    for (module, statement), line in sorted(found.items()):
        print(f"{module}:{line}: {statement}  # {known.get((module, statement), 'NOT LISTED')}")
    faults = [f"not listed: {module}: {text}" for module, text in found.keys() - known.keys()]
    faults += [f"listed, and executed: {module}: {text}" for module, text in known.keys() - found.keys()]
    faults += [f"{len(found)} statements are blind, at most {MOST} may be"] if len(found) > MOST else []
    print(f"{len(found)} blind statements of {sum(len(statements(path)) for path in modules())}")
    print("\n".join(faults))
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
