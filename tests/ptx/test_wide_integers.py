"""Integers of 128 bits, whose divisions the compiler writes out with carries of sums and differences mixed."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

SOURCE = """
typedef unsigned __int128 Wide;
__device__ void store(unsigned long long *out, Wide value) { out[0] = value, out[1] = value >> 64; }
extern "C" __global__ void wide(unsigned long long *out, const unsigned long long *in) {
    Wide a = (Wide)in[1] << 64 | in[0], b = (Wide)in[3] << 64 | in[2];
    store(out, a + b), store(out + 2, a - b), store(out + 4, a * b), store(out + 6, a / b), store(out + 8, a % b);
    store(out + 10, a / 7), store(out + 12, (Wide)((__int128)a / (__int128)5)), store(out + 14, a >> 77 | a << 51);
}
"""
VALUES = (1, 7, (1 << 64) + 1, 10**18, (1 << 127) + 12345, (1 << 128) - 1, (5 << 64) + 12345678901234567890)
MASK = (1 << 128) - 1


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, options=["--device-int128"], device="sim")


def signed_fifth(value: int) -> int:
    value -= (value >> 127) << 128
    return abs(value) // 5 * (1 if value > 0 else -1)


@pytest.mark.parametrize("a", VALUES)
def test_arithmetic(module, a: int):
    for b in VALUES:
        out = np.zeros(16, np.uint64)
        given = np.array([one >> shift & (1 << 64) - 1 for one in (a, b) for shift in (0, 64)], np.uint64)
        module.wide(1, 1, out, given)
        found = [int(low) | int(high) << 64 for low, high in out.reshape(-1, 2)]
        expected = [a + b, a - b, a * b, a // b, a % b, a // 7, signed_fifth(a), a >> 77 | a << 51]
        assert found == [one & MASK for one in expected], b
