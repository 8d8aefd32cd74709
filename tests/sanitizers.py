"""``python tests/sanitizers.py address``: the core and the driver library under ASan and UBSan; ``thread``: under TSan.

Compiles both into an environment of their own, build/sanitizers/KIND (minutes), over the packages of the one that runs
this. Then runs the tests of the PTX machine and the driver there, and the fuzzers for ``--seconds``. Its status is
1 if a test failed or a sanitizer reported something.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
LIBRARIES = {"address": "libasan.so", "thread": "libtsan.so"}
# Python and its packages keep memory to the end; the fuzzers ask for more than there is.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": f"suppressions={CHECKOUT / 'tests' / 'thread_sanitizer.txt'}:report_signal_unsafe=0",
}
# TSan refuses threads in the child of a fork, as test_workers makes them; under GCC 12's ASan one in twenty such
# children hangs, in a place that is not known. test_aarch64 runs another processor's program, and both sanitizers
# reserve more addresses than the limit of test_memory_limits.
LEFT_OUT = ("workers", "aarch64", "memory_limits")
DRIVER = (
    "library", "hooks", "driver_faults", "graphs", "linking", "runtime", "runtime_calls", "runtime_graphs",
    "host_libraries",
)  # fmt: skip


def environment(kind: str) -> Path:
    """Compile into an environment of its own; return its Python."""
    folder = CHECKOUT / "build" / "sanitizers" / kind
    python = folder / "environment" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    outside = [path for path in sys.path if path.endswith("site-packages")] or [sysconfig.get_path("purelib")]
    (Path(site) / "packages.pth").write_text("\n".join(outside) + "\n")
    settings = {"build-dir": str(folder / "cmake"), "cmake.build-type": "RelWithDebInfo", "install.strip": "false"}
    settings["cmake.define.SANITIZERS"] = SANITIZERS[kind]
    command = [str(python), "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    for name, value in settings.items():
        command += ["-C", f"{name}={value}"]
    plain = {name: value for name, value in os.environ.items() if name != "WORKBENCH_WARNINGS"}
    subprocess.run([*command, "-e", str(CHECKOUT)], env=plain, check=True)
    return python


def preloaded(kind: str) -> str:
    """The sanitizer's library, which must come before all others, and C++'s, whose exceptions it intercepts."""
    found = []
    for name in (LIBRARIES[kind], "libstdc++.so"):
        asked = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        found.append(asked.stdout.strip())
    return ":".join(found)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python tests/sanitizers.py", description=__doc__)
    parser.add_argument("kind", choices=SANITIZERS)
    parser.add_argument("--seconds", type=float, default=60, help="of the fuzzers; 0 for none")
    parser.add_argument("tests", nargs="*", help="arguments of pytest in the place of the tests")
    chosen = parser.parse_intermixed_args()
    if shutil.which("g++") is None:
        parser.error("it takes g++: apt-get install g++")
    python, kind = environment(chosen.kind), chosen.kind
    # TSan needs addresses that are not random.
    before = ["setarch", platform.machine(), "-R"] if kind == "thread" and shutil.which("setarch") else []
    variables = os.environ | OPTIONS | {"LD_PRELOAD": preloaded(kind)}
    files = sorted(str(path) for path in (CHECKOUT / "tests" / "ptx").glob("test_*.py"))
    files = [path for path in files if Path(path).stem.removeprefix("test_") not in LEFT_OUT]
    files += [f"tests/driver/test_{name}.py" for name in DRIVER]
    runs = [["-m", "pytest", "-p", "no:cacheprovider", "-o", "timeout=0", "-n", "0", "-q", *(chosen.tests or files)]]
    if chosen.seconds:
        runs.append(["tests/ptx/fuzz", "--seconds", str(chosen.seconds)])
    statuses = [subprocess.run([*before, str(python), *run], cwd=CHECKOUT, env=variables).returncode for run in runs]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
