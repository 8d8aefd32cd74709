"""Threads ordered by locks, flags, fences, named barriers, __syncwarp: no finding; one when the order is taken away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import right_and_faulty

from workbench import ptx

SOURCE = Path(__file__).parent / "cuda_order.cu"
LINES = SOURCE.read_text().splitlines()
KINDS = {
    "same_bytes": "shared race", "reads_its_own": "warp race", "returns_early": "divergent barrier",
    "spin_lock": "shared race", "lock_of_lanes": "shared race", "flag": "shared race", "release_acquire": "shared race",
    "named_barriers": "shared race", "arrive_and_wait": "shared race", "neighbours": "warp race",
    "halves_of_a_warp": "warp race", "one_store": "warp race", "merged_tail": "divergent barrier",
}  # fmt: skip
DATA = np.arange(1, 257, dtype=np.int32)


def expected(kernel: str) -> np.ndarray | None:
    t, lane = np.arange(128), np.arange(128) % 32
    return {
        "same_bytes": DATA[31 - lane],
        "reads_its_own": DATA[lane],
        "returns_early": np.where(t < 40, DATA[39 - t], -1),
        "spin_lock": np.full(128, DATA[[0, 32, 64, 96]].sum()),
        "lock_of_lanes": np.full(128, DATA[:128].sum()),
        "flag": np.where(t < 32, 0, DATA[lane]),
        "release_acquire": np.where(t == 0, DATA[0], 0),
        "named_barriers": DATA[t ^ 32],
        "arrive_and_wait": np.where((t >= 32) & (t < 64), DATA[t - 32], 0),
        "neighbours": DATA[t ^ 1],
        "halves_of_a_warp": np.where(t & 16, 0, DATA[t + 16] * 2),
        "one_store": DATA[t // 2],
        "merged_tail": np.where(t < 40, DATA[39 - t], 5),
    }[kernel]


@pytest.fixture(scope="module")
def texts() -> dict[bool, str]:
    return right_and_faulty(SOURCE)


def run(text: str, kernel: str) -> tuple[ptx.LaunchReport, np.ndarray]:
    out = np.zeros(256, np.int32)
    return ptx.Program.from_text(text)[kernel].launch(1, 128, [out, DATA], checks=True, seconds_limit=20), out[:128]


@pytest.mark.parametrize("kernel", KINDS)
def test_ordered(texts: dict[bool, str], kernel: str) -> None:
    report, out = run(texts[False], kernel)
    assert report.findings == [], report
    np.testing.assert_array_equal(out, expected(kernel))


def test_the_tail_is_merged_indeed(texts: dict[bool, str]) -> None:
    """Otherwise ``merged_tail`` tests nothing: one store, behind the label that the early return jumps to."""
    body = texts[False].split(".entry merged_tail(")[1].split("\n}\n")[0]
    assert body.count("st.global") == 1
    assert body.index("bar.sync") < body.index("st.global")


@pytest.mark.parametrize("kernel", KINDS)
def test_not_ordered(texts: dict[bool, str], kernel: str) -> None:
    report, _ = run(texts[True], kernel)
    assert report.findings, kernel
    assert {finding.kind for finding in report.findings} == {KINDS[kernel]}, report
    start = next(i for i, text in enumerate(LINES) if f" {kernel}(" in text)
    side = next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith("// side"))
    assert side in {line for f in report.findings for line in (f.line, f.other_line)}, report
    assert all(f.line for f in report.findings)
    assert all(f.other_thread != f.thread for f in report.findings), report
