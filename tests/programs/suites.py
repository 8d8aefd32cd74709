"""Run the programs of a public suite on the simulated device and print the row of docs/PROGRAMS.md.

    python tests/programs/suites.py SUITE FOLDER [NAME ...] [--check] [--seconds 45] [--list]

FOLDER is a checkout of the suite. It is copied to a temporary folder, where sizes are reduced as ``suites.toml`` says,
and where each program is built by its own makefile or an nvcc line and then run. Nothing of a suite is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

RULES = Path(__file__).with_name("suites.toml")
SOURCES = (".cu", ".cuh", ".h", ".hpp", ".c", ".cpp", ".cc")
RUN = [sys.executable, "-m", "workbench.cli", "run", "--simulated"]
BUILD_SECONDS = 300

FAILED = re.compile(r"\bFAIL(?:ED|URE)?\b|mismatch|incorrect|\bwrong\b|not ok\b|\bNaN\b|does not match", re.IGNORECASE)
PASSED = re.compile(r"\bPASS(?:ED)?\b|success|\bcorrect|all results match|\bOK\b|TEST PASSED", re.IGNORECASE)
REFUSED = re.compile(
    r"not supported: kernel [^:]*: the machine has no (?P<part>[\w ]+);"
    r"|not supported: (?P<function>\w+)"
    r"|(?P<library>\w+) does not run on the simulated device"
    r"|(?P<header>cu(?:blas|sparse|solver|fft|rand|dnn|tensor|file|pti)|nccl|nvml|npp|mpi|GL/)\w*\.h.*No such file"
    r"|(?P<texture>cudaBindTexture\w*|texture<|tex[123]D\w*)\W.*(?:undefined|not a template)"
    r"|(?P<nested>kernel launch from __device__)|undefined symbol: (?P<drawing>gl[A-Zu]\w+)"
    r"|cannot find -l(?P<linked>\w+)"
    r"|(?P<instruction>[\w.:]+) is not (?:implemented|executed|supported)"
)
NO_DATA = re.compile(
    r"(?:open|read|load|find|access)\w*\b.{0,60}\bfile|file <.*> not found|No such file or directory",
    re.IGNORECASE,
)


@dataclasses.dataclass
class Outcome:
    """How one program of a suite ended."""

    name: str
    verdict: str
    reason: str = ""
    compares: bool = False
    seconds: float = 0.0
    output: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(tomllib.loads(RULES.read_text())))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="only these programs")
    parser.add_argument("--check", action="store_true", help="report faults of the kernels, with their lines")
    parser.add_argument("--seconds", type=float, default=45, help="the time limit of a run")
    parser.add_argument("--work", type=Path, help="the folder to build in, which is then kept")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    given = parser.parse_intermixed_args()
    rules = tomllib.loads(RULES.read_text())[given.suite]
    with tempfile.TemporaryDirectory(prefix=f"{given.suite}-") as scratch:
        work = given.work or Path(scratch) / "suite"
        if not work.exists():
            shutil.copytree(given.folder, work, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        chosen = [(name, path) for name, path in programs(work, rules) if not given.names or name in given.names]
        if given.list:
            print(*(name for name, _ in chosen), sep="\n")
            return 0
        outcomes = []
        for name, path in chosen:
            outcome = run(name, path, rules, work, given.seconds, given.check)
            outcomes.append(outcome)
            print(f"{outcome.name}: {outcome.verdict} in {outcome.seconds:.1f} s {outcome.reason}", flush=True)
            if outcome.verdict != "right" or given.check:
                print("    " + "\n    ".join(outcome.output.strip().splitlines()[-12:]), flush=True)
        print(row(given.suite, outcomes))
    return 0


def programs(folder: Path, rules: dict) -> Iterator[tuple[str, Path]]:
    """Yield names and places of a suite's programs: what its patterns find, then what its table names."""
    suffix, only, without = rules.get("suffix", ""), rules.get("only"), rules.get("without", "^$")
    paths = [path for pattern in rules.get("programs", []) for path in folder.glob(pattern)]
    if "holds" in rules:
        paths = [path for path in paths if next(path.glob(rules["holds"]), None)]
    found = {path.stem.removesuffix(suffix): path for path in paths if not re.search(without, path.name)}
    for name, own in rules.get("program", {}).items():
        if "path" in own:
            found[name] = folder / own["path"]
    yield from sorted((name, path) for name, path in found.items() if only is None or name in only)


def run(name: str, path: Path, rules: dict, root: Path, seconds: float, check: bool) -> Outcome:
    """Build and run one program."""
    own = rules.get("program", {}).get(name, {})
    folder = path if path.is_dir() else path.parent
    if (reason := own.get("needs")) is not None:
        return Outcome(name, "no input", reason)
    for place in (path, *(folder / other for other in own.get("also", []))):
        reduce_sizes(place, rules.get("replace", []) + own.get("replace", []))
    for file, what in own.get("data", {}).items():
        write_data(folder / file, what)
    line = own.get("build", rules["build"]).format(
        name=name, file=path.name, root=root.resolve(), flags=rules.get("flags", "")
    )
    built = subprocess_of([*RUN, "bash", "-c", line], folder, BUILD_SECONDS)
    if built is None or built[0] != 0:
        return judged_build(name, built)
    started = time.monotonic()
    program = str(folder.resolve() / own.get("binary", rules["binary"]).format(name=name))
    arguments = own.get("arguments", rules.get("arguments", ""))
    done = subprocess_of([*RUN, *(["--check"] if check else []), program, *arguments.split()], folder, seconds)
    outcome = judged(name, done, rules | own)
    outcome.seconds = time.monotonic() - started
    return outcome


def subprocess_of(command: list[str], folder: Path, seconds: float) -> tuple[int, str] | None:
    """Run a command; return its status and what it wrote, None past the limit."""
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None
        except BaseException:
            os.killpg(process.pid, 9)
            raise
    return process.returncode, output


def judged_build(name: str, built: tuple[int, str] | None) -> Outcome:
    if built is None:
        return Outcome(name, "too slow", "to build")
    reason = refusal(built[1])
    return Outcome(name, "refused" if reason else "other", reason or "does not build", output=built[1])


def judged(name: str, done: tuple[int, str] | None, rules: dict) -> Outcome:
    """Judge a run: right if it ended with 0 and nothing that it printed says otherwise."""
    if done is None:
        return Outcome(name, "too slow")
    status, output = done
    said = "\n".join(line for line in output.splitlines() if not line.startswith("workbench: "))
    reason = refusal(output)
    if reason:
        return Outcome(name, "refused", reason, output=output)
    if status != 0 and NO_DATA.search(said):
        return Outcome(name, "no input", output=output)
    if (failed := re.search(rules.get("wrong", FAILED), said)) is not None:
        return Outcome(name, "other", f"says {failed[0].partition(':')[0]!r}", output=output)
    if status != 0:
        return Outcome(name, "other", f"ends with {status}", output=output)
    return Outcome(name, "right", compares=re.search(rules.get("compares", PASSED), said) is not None, output=output)


def refusal(output: str) -> str | None:
    """Return what the simulated device refused by name."""
    found = REFUSED.search(output)
    if found is None:
        return None
    kind, what = next((kind, what) for kind, what in found.groupdict().items() if what)
    told = {"texture": "textures", "nested": "launches from the device", "drawing": "OpenGL", "GL/": "OpenGL"}
    return told.get(kind) or told.get(what, what)


def reduce_sizes(path: Path, replacements: list[list[str]]) -> None:
    """Replace by regular expressions in the sources of a program."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in SOURCES]
    for file in files if replacements else []:
        text = file.read_text(errors="surrogateescape")
        changed = text
        for pattern, instead in replacements:
            changed = re.sub(pattern, instead, changed)
        if changed != text:
            file.write_text(changed, errors="surrogateescape")


def write_data(file: Path, what: str) -> None:
    """Write an input that a suite keeps elsewhere, of random values: ``"numbers 4096 20 80"``."""
    kind, *words = what.split()
    file.parent.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(1)
    if kind == "bytes":
        file.write_bytes(chosen.randbytes(int(words[0])))
    elif kind == "numbers":
        count, low, high = map(int, words[:3])
        lines = [" ".join(words[3:])] if words[3:] else []
        file.write_text("\n".join([*lines, *(f"{chosen.uniform(low, high):.4f}" for _ in range(count))]) + "\n")
    elif kind == "integers":
        count, low, high = map(int, words[:3])
        lines = [" ".join(words[3:]).replace("\\n", "\n")] if words[3:] else []
        file.write_text("\n".join([*lines, *(str(chosen.randint(low, high)) for _ in range(count))]) + "\n")
    elif kind == "graph":
        nodes, degree = map(int, words)
        lines = [str(nodes), *(f"{i * degree} {degree}" for i in range(nodes)), "", "0", "", str(nodes * degree)]
        file.write_text("\n".join([*lines, *(f"{chosen.randrange(nodes)} 1" for _ in range(nodes * degree))]) + "\n")
    elif kind == "hurricanes":  # of records of 48 characters, with latitude and longitude from the 28th on
        places = ((chosen.uniform(7, 70), chosen.uniform(0, 99)) for _ in range(int(words[0])))
        file.write_text("".join(f"{'':28}{lat:5.1f}{lng:5.1f}{'':10}\n" for lat, lng in places))
    elif kind == "text":
        file.write_text(" ".join(words).replace("\\n", "\n") + "\n")
    elif kind == "mesh":  # each element with its area, and with a neighbour and a normal on each of four sides
        count = int(words[0])
        sides = ((1, "1 0 0"), (-1, "-1 0 0"), (7, "0 1 0"), (-7, "0 -1 0"))
        lines = [" ".join(f"{(i + step) % count + 1} {normal}" for step, normal in sides) for i in range(count)]
        file.write_text("\n".join([str(count), *(f"1.0 {line}" for line in lines)]) + "\n")
    else:
        raise ValueError(f"unknown data {what!r}")


def row(suite: str, outcomes: list[Outcome]) -> str:
    """Return the suite's line of the table in docs/PROGRAMS.md."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    cells = [suite, len(outcomes), counts["right"], sum(outcome.compares for outcome in outcomes)]
    for verdict in ("refused", "too slow", "no input", "other"):
        reasons = Counter(one.reason for one in outcomes if one.verdict == verdict and one.reason not in ("", "data"))
        told = ", ".join(f"{reason} ({count})" if count > 1 else reason for reason, count in reasons.most_common())
        cells.append(f"{counts[verdict]}: {told}" if told else counts[verdict])
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
