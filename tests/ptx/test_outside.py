"""CUDA files with inline PTX as public projects write it: right and clean, or refused with the line and why."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from workbench import ptx
from workbench.errors import UnsupportedInstructionError
from workbench.toolchain import compile_cuda, compile_cuda_module

FOLDER = Path(__file__).parent / "outside"


def launch(
    file: str,
    name: str,
    grid: int,
    block: int,
    *args: object,
    arch: str = "sm_80",
    macros: dict[str, int] | None = None,
) -> ptx.LaunchReport:
    """Runs one kernel with checks, and refuses none of them."""
    kernel = compile_cuda(FOLDER / f"{file}.cu", name, arch=arch, macros=macros or {})
    return ptx.Program(kernel.ptx)[name].launch(grid, block, args, checks=True, statistics=True, seconds_limit=30)


def test_swizzled_gemm() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(16, 64)).astype(np.float16), rng.normal(size=(64, 8)).astype(np.float16)
    c = np.full((16, 8), np.nan, np.float32)
    report = launch("swizzled_gemm", "gemm", 1, 32, a, b, c, 13)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    expected[13:] = 0  # rows that the copy fills with zeros
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)
    assert report.findings == []
    # The swizzle is there so that no bank is asked twice.
    reads = [line for line in report.lines if line.text.startswith("ldmatrix") and ".x4" in line.text]
    assert sum(line.wavefronts for line in reads) == sum(line.ideal_wavefronts for line in reads) == 16


def test_int4_weights() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 32, 100, dtype=np.uint64).astype(np.uint32)
    scale = rng.uniform(0.01, 2, 100).astype(np.float16)
    out = np.zeros((100, 8), np.float16)
    assert launch("int4_weights", "dequantise", 2, 64, words, scale, out, 100).findings == []
    nibbles = (words[:, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(np.int64)
    expected = (nibbles - 8).astype(np.float16) * scale[:, None]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("width", [1, 31, 33, 200])
def test_softmax_rows(width: int) -> None:
    x = np.random.default_rng(width).normal(size=(6, width)).astype(np.float32) * 20
    out, lse = np.zeros_like(x), np.zeros(6, np.float32)
    assert launch("softmax_rows", "softmax", 3, 64, x, out, lse, 30.0, width).findings == []
    capped = np.tanh(x.astype(np.float64) / 30) * 30
    e = np.exp(capped - capped.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=2e-2, atol=1e-6)  # tanh.approx: 2^-11
    np.testing.assert_allclose(lse, np.log2(np.exp(capped).sum(1)), rtol=1e-3, atol=2e-2)


def test_cache_hints() -> None:
    x = np.random.default_rng(2).integers(-99, 99, (200, 4)).astype(np.int32)
    out, scratch = np.zeros_like(x), np.zeros(64, np.uint32)
    assert launch("cache_hints", "hinted_copy", 2, 128, x, out, scratch, 200).findings == []
    assert (out == x).all()
    assert scratch[0] == 200


def test_warp_roles() -> None:
    x = np.random.default_rng(3).integers(-99, 99, (9, 32)).astype(np.int32)
    out = np.zeros(65, np.int32)
    assert launch("warp_roles", "roles", 1, 96, x, out, 9, arch="sm_90").findings == []
    total = x.sum(0)
    assert out.tolist() == [*total, *total[::-1], 9]


def test_barriers_with_phases() -> None:
    out = np.zeros(64, np.int32)
    assert launch("warp_roles", "phases", 1, 64, out, arch="sm_90").findings == []
    assert out.tolist() == [10] * 32 + [11] * 32


def test_bit_tricks() -> None:
    x = np.random.default_rng(4).integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
    x[:4] = [0, 5, 999, 1000]
    out = np.zeros((32, 8), np.uint32)
    assert launch("bit_tricks", "tricks", 1, 32, x, out).findings == []
    odd = sum(1 << i for i in range(32) if x[i] & 1)
    for lane in range(32):
        value = int(x[lane])
        signed = value - (1 << 32) if value >> 31 else value
        shift = 32 - value.bit_length() if value else 0xFFFFFFFF
        bytes_ = [value >> 8 * i & 255 for i in range(4)]
        weights = [0x04, 0x03, 0x02, 0x01]
        dot = sum((b - 256 if b > 127 else b) * w for b, w in zip(bytes_, weights, strict=True)) + 7
        differences = sum(abs(b - w) for b, w in zip(bytes_, [0x40, 0x30, 0x20, 0x10], strict=True)) + 1
        assert out[lane].tolist() == [
            sum(int(x[i] & 3) == value & 3 for i in range(lane)), odd if value & 1 else 0, int(x.max()),
            ((shift << 8) & 0xFFFFFFFF) | (value >> 4 & 255), dot & 0xFFFFFFFF, pack_of(signed),
            1 if signed < 1000 else 6, differences,
        ]  # fmt: skip


def pack_of(value: int) -> int:
    """Two packs one after the other: {c, a, b} of (-300, 5) above those of (value, 300)."""
    clamp = lambda v: max(-128, min(127, v)) & 255  # noqa: E731
    first = clamp(value) << 8 | clamp(300)
    return (first << 16 | clamp(-300) << 8 | clamp(5)) & 0xFFFFFFFF


def test_last_block() -> None:
    x = np.random.default_rng(5).normal(size=5000).astype(np.float32)
    for _ in range(2):  # the counter wraps to zero for the next launch
        partial, out = np.zeros(7, np.float32), np.zeros(1, np.float32)
        assert launch("last_block", "total", 7, 32, x, partial, out, 5000).findings == []
        np.testing.assert_allclose(out, x.sum(dtype=np.float64), rtol=1e-4, atol=1e-3)
    partial = np.zeros(7, np.float32)
    report = launch("last_block", "total", 7, 32, x, partial, out, 5000, macros={"NO_ORDER": 1})
    assert "global race" in {finding.kind for finding in report.findings}


def test_fp8_tile() -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.choice([-1.5, -0.25, 0, 0.5, 1, 2, 3.5], size=(rows, 32)).astype(np.float32) for rows in (16, 8))
    c = np.zeros((16, 8), np.float32)
    assert launch("fp8_tile", "product", 1, 32, a, b, c, arch="sm_89").findings == []
    assert (c == a @ b.T).all()


REFUSED = {"sum_of_blocks": "a bulk reduction in shared memory", "image_box": "im2col"}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    source = FOLDER / "hopper_only.cu"
    lines = source.read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if f" {name}(" in line)
    line = next(i for i in range(start, len(lines)) if f"// refused: {REFUSED[name]}" in lines[i])
    kernels = compile_cuda_module(source, arch="sm_90a").kernels
    with pytest.raises(UnsupportedInstructionError) as caught:
        ptx.Program(kernels[name].ptx)[name]
    message = str(caught.value)
    written = re.search(r'asm volatile\("([^\s;"]+)', lines[line])[1]
    assert f"kernel {name}" in message
    assert written in message
    assert f"hopper_only.cu:{line + 1}" in message
    assert REFUSED[name] in message
