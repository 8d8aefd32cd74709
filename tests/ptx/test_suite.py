"""Kernels in the style of textbooks: right by value, without a finding, and with one for every barrier taken away."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from workbench import ptx
from workbench.toolchain import compile_cuda_module

FOLDER = Path(__file__).parent / "suite"
DATA = np.random.default_rng(5).normal(size=2 * 48 * 48).astype(np.float32)
ROWS = DATA[:512].reshape(4, 128).astype(np.float64)


class Sample(NamedTuple):
    """``expected`` gives the first elements of the output; ``redundant`` are the barriers that order nothing.

    They stand by position: after the last step of a loop, where each thread goes on with what it wrote itself; before
    the first use of scratch memory; between two steps of one and the same thread.
    """

    file: str
    kernel: str
    expected: Callable[[], np.ndarray]
    grid: tuple[int, ...] = (4,)
    block: tuple[int, ...] = (128,)
    redundant: tuple[int, ...] = ()


def products() -> np.ndarray:
    a, b = DATA.astype(np.float64).reshape(2, 48, 48)
    return a @ b


def exponentials() -> np.ndarray:
    e = np.exp(ROWS - ROWS.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def normalised() -> np.ndarray:
    centred = ROWS - ROWS.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)


def windows() -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(DATA[:518].astype(np.float64), 7).mean(1)


def split_by_sign() -> np.ndarray:
    return np.concatenate([np.concatenate([row[row < 0], row[row >= 0]]) for row in ROWS])


def counted() -> np.ndarray:
    bins = (np.abs(DATA[:512] * np.float32(8))).astype(np.int32) & 15
    return np.bincount(bins, minlength=16)


def square() -> np.ndarray:
    return DATA[:4096].reshape(64, 64).T


SUMS, PREFIXES = (lambda: ROWS.sum(1)), (lambda: np.cumsum(ROWS, 1))
SAMPLES = [
    Sample("reduce_scan", "reduce_interleaved", SUMS, redundant=(7,)),
    Sample("reduce_scan", "reduce_strided", SUMS, redundant=(7,)),
    Sample("reduce_scan", "reduce_unrolled_warp", SUMS, redundant=(2, 12)),
    Sample("reduce_scan", "reduce_shuffle", SUMS),
    Sample("reduce_scan", "scan_hillis_steele", PREFIXES, redundant=(7,)),
    Sample("reduce_scan", "scan_blelloch", PREFIXES, redundant=(7, 8)),
    Sample("reduce_scan", "scan_warp_shuffle", PREFIXES),
    Sample("tiles", "transpose_plain", square, (2, 2), (32, 8)),
    Sample("tiles", "transpose_padded", square, (2, 2), (32, 8)),
    Sample("tiles", "matmul_tiled", products, (3, 3), (16, 16), (5,)),
    Sample("tiles", "stencil", windows),
    Sample("tiles", "bitonic_sort", lambda: np.sort(ROWS, 1)),
    Sample("tiles", "histogram", counted),
    Sample("tiles", "softmax", exponentials, redundant=(0,)),
    Sample("tiles", "layer_norm", normalised, redundant=(0,)),
    Sample("tiles", "radix_step", split_by_sign),
]
IDS = [sample.kernel for sample in SAMPLES]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {
        name: next(iter(compile_cuda_module(FOLDER / f"{name}.cu", arch="sm_80").kernels.values())).ptx
        for name in {sample.file for sample in SAMPLES}
    }


def run(text: str, sample: Sample) -> tuple[ptx.LaunchReport, np.ndarray]:
    out = np.zeros(4096, np.int32 if sample.kernel == "histogram" else np.float32)
    kernel = ptx.Program(text)[sample.kernel]
    return kernel.launch(sample.grid, sample.block, [out, DATA], checks=True, seconds_limit=20), out


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_right_and_clean(texts: dict[str, str], sample: Sample) -> None:
    report, out = run(texts[sample.file], sample)
    expected = sample.expected().ravel()
    np.testing.assert_allclose(out[: expected.size], expected, rtol=1e-5, atol=1e-5)
    assert report.findings == [], report


def mutants(text: str, kernel: str) -> list[str]:
    """The module with one barrier or fence of the kernel taken out, in their order."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if re.search(rf"\.entry {kernel}\b", line))
    end = next(i for i in range(start, len(lines)) if lines[i] == "}")
    gone = [i for i in range(start, end) if re.search(r"\b(bar(rier)?\.(cta\.|warp\.)?sync|membar|fence)\b", lines[i])]
    return ["\n".join([*lines[:i], "", *lines[i + 1 :]]) for i in gone]


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_every_barrier_is_missed(texts: dict[str, str], sample: Sample) -> None:
    removed = mutants(texts[sample.file], sample.kernel)
    assert removed
    silent = tuple(i for i, mutant in enumerate(removed) if not run(mutant, sample)[0].findings)
    assert silent == sample.redundant, f"of {len(removed)} barriers"
