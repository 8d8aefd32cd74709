"""Measure torch's simulated device in one run, and print the rows of docs/TORCH.md.

    python tests/driver/torch_device/figures.py [ROUNDS]

Each figure is the least of several, beside its peer's, in turn: other programs on the machine slow both.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TYPICAL = Path(__file__).with_name("typical") / "test_typical.py"
START = "import torch; print(torch.ones(1, device={device!r}).item())"
CALLS = """
import json, sys, time
import torch, triton, triton.language as tl

device = sys.argv[1]

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def microseconds(function, count):
    function()
    rounds = []
    for _ in range(15):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        rounds.append((time.perf_counter() - begin) / count * 1e6)
    return min(rounds)

x, y = torch.ones(16, device=device), torch.ones(16, device=device)
found = {"operator": microseconds(lambda: torch.add(x, y), 1000)}
found["launch"] = microseconds(lambda: double[(1,)](x, 16, BLOCK=16), 100)
print(json.dumps(found))
"""
SIMULATED = (sys.executable, "-m", "workbench.cli", "run")


def seconds(command: list[str], **variables: str) -> tuple[float, str]:
    """Return how long a command takes, and what it prints."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, done.stdout


def tests(**variables: str) -> float:
    """Return the seconds that pytest says the ten tests take."""
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--noconftest"]
    options += [] if variables.get("TRITON_INTERPRET") else ["--simulated-gpu=h200"]
    _, text = seconds([sys.executable, "-m", "pytest", *options, str(TYPICAL)], **variables)
    found = re.search(r"10 passed.* in ([\d.]+)s", text)
    assert found, text
    return float(found[1])


def main() -> None:
    """Print a row for each figure: ours, and the peer's."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    folder = tempfile.TemporaryDirectory()
    program, start = Path(folder.name) / "calls.py", Path(folder.name) / "start.py"
    interpreted = {"TRITON_INTERPRET": "1", "TYPICAL_DEVICE": "cpu"}
    found: dict[str, list[float]] = {}
    with folder:
        program.write_text(CALLS)
        start.write_text(START.format(device="cuda"))
        for _ in range(rounds):
            found.setdefault("start", []).append(seconds([*SIMULATED, str(start)])[0])
            peer = [sys.executable, "-c", START.format(device="cpu")]
            found.setdefault("start, peer", []).append(seconds(peer)[0])
            ours = json.loads(seconds([*SIMULATED, str(program), "cuda"])[1].splitlines()[-1])
            peers = json.loads(seconds([sys.executable, str(program), "cpu"], **interpreted)[1])
            for name in ours:
                found.setdefault(name, []).append(ours[name])
                found.setdefault(f"{name}, peer", []).append(peers[name])
            found.setdefault("tests", []).append(tests())
            found.setdefault("tests, peer", []).append(tests(**interpreted))
    best = {name: min(values) for name, values in found.items()}
    print("| | simulated device | peer |\n|---|---|---|")
    print(f"| start of a program | {best['start']:.1f} s | {best['start, peer']:.1f} s, `import torch` on the CPU |")
    print(f"| a small operator | {best['operator']:.1f} us | {best['operator, peer']:.1f} us on a CPU tensor |")
    print(f"| a launch by Triton | {best['launch']:.0f} us | {best['launch, peer']:.0f} us under TRITON_INTERPRET |")
    print(
        f"| ten tests, compiled before | {best['tests']:.1f} s | {best['tests, peer']:.1f} s under TRITON_INTERPRET |"
    )
    print(f"| ten tests, the first time | {found['tests'][0]:.1f} s | |")


if __name__ == "__main__":
    main()
