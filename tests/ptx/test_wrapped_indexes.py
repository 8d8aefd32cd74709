"""Indexes of 32 bits that wrap and lead to an element inside of their array."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

# What each kernel reads of `x`, where `page * stride` is 2**32 and `n` is the array's length.
SOURCE = """
extern "C" __global__ void NAME(float *out, const float *x, const INT *pages, INT stride, int n)
{
    INT page = pages[threadIdx.x];
    out[threadIdx.x] = READ;
}
"""
WRAPS = {
    "product": ("int", "x[page * stride + threadIdx.x]"),
    "without_sign": ("unsigned", "x[page * stride + threadIdx.x]"),
    "shift": ("unsigned", "x[(page << 20) + threadIdx.x]"),
    "sum": ("unsigned", "x[page * (stride / 2) + page * (stride / 2)]"),
    "sum_of_both": ("unsigned", "x[(page * 0x80000u) + (stride * 0x800u)]"),
    "two_products": ("int", "x[(page * stride + 1) * 2]"),
    "in_a_loop": (
        "int",
        "[&] { float y = 0; for (int i = 0; i < n; ++i) y += x[page * stride + i]; return y; }()",
    ),
    "scaled": ("unsigned", "reinterpret_cast<const float *>(reinterpret_cast<const char *>(x) + page * stride)[1]"),
}
FITS = {
    "wide": ("int", "n > (long long)page * stride ? x[(long long)page * stride] : 0"),
    "left_out": ("int", "page ? 0.f : x[page * stride]"),
    "clamped": ("int", "x[page > 100 ? 0 : page * stride]"),
    "hash": ("unsigned", "x[page * 2654435761u % n]"),
    "masked": ("unsigned", "x[page * stride & 7]"),
    "shifted_back": ("unsigned", "x[(page * 0x9e3779b1u) >> 29]"),
    "generator": ("unsigned", "x[(page * 1664525u + 1013904223u) % n]"),
    "cancels": ("int", "x[(page * stride + 3) - page * stride]"),
    "below_zero": ("int", "x[8 + (page / 4096 - 2)]"),
    "large": ("unsigned", "x[(page * 0x80000u + 5) - 0x80000000u]"),
}


def check(name: str, kind: str, read: str, page: int):
    kernel = getattr(wb.load_cuda(SOURCE.replace("NAME", name).replace("INT", kind).replace("READ", read)), name)
    pages = np.full(32, page, np.int32 if kind == "int" else np.uint32)
    args = [np.zeros(32, np.float32), np.zeros(64, np.float32), pages, 1 << 20, 8]
    return wb.check_kernel(kernel, grid=1, block=32, args=args)


@pytest.mark.parametrize("name", WRAPS)
def test_an_index_that_wraps_is_a_finding(name):
    kind, read = WRAPS[name]
    report = check(name, kind, read, 4096)
    found = [finding for finding in report.findings if finding.kind == "wrapped index"]
    assert [finding.line for finding in found] == [5], str(report)
    assert "does not fit into 32 bits" in found[0].message
    assert found[0].other_line == 5
    assert found[0].buffer == "x", found[0].message
    assert found[0].count >= 32


@pytest.mark.parametrize("name", WRAPS)
def test_a_smaller_one_is_none(name):
    assert not [one for one in check(name, *WRAPS[name], 0).findings if one.kind == "wrapped index"]


@pytest.mark.parametrize("name", FITS)
def test_what_fits_or_is_meant_is_none(name):
    report = check(name, *FITS[name], 4096)
    assert report.ok, str(report)
