"""Accesses that leave the array from which their address is computed, and stay in memory of the kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.ptx.provenance import origins

SOURCE = Path(__file__).parent / "cuda_extents.cu"
LINES = SOURCE.read_text().splitlines()


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, device="sim")


def check(module, name: str, at: int, **launch):
    launch = {"grid": 1, "block": 32, "args": [np.zeros(64, np.int32), at]} | launch
    return wb.check_kernel(getattr(module, name), **launch)


def told(report, mark: str, *words: str) -> None:
    line = 1 + next(i for i, text in enumerate(LINES) if text.endswith(f"// {mark}"))
    found = [finding for finding in report.findings if finding.kind == "out-of-bounds"]
    assert [finding.line for finding in found] == [line], str(report)
    for part in words:
        assert part in found[0].message


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("stores", 8, ["element 8 of counts, which has 8; it lands in after"]),
        ("stores", -1, ["element -1 of counts, which has 8; it lands in before"]),
        ("loads", 7, ["element 8 of counts, which has 8"]),
        ("counts_up", 11, ["element 11 of counts", "32 times"]),
        ("widens", 8, ["element 8 of counts"]),
        ("walks", 9, ["of counts, which has 8", "in all from element 8 to element 9"]),
        ("generic", 12, ["element 12 of counts", "lands in after"]),
        ("copies", 8, ["element 8 of counts", "lands in after"]),
        ("stores", -20, ["element -20 of counts, which has 8"]),  # outside of all shared memory
    ],
)
def test_a_shared_array_ends_where_its_neighbour_begins(module, name, at, words):
    told(check(module, name, at), name, *words)


@pytest.mark.parametrize(
    "name", ["stores", "loads", "counts_up", "widens", "walks", "generic", "copies", "goes_beyond"]
)
def test_inside_of_its_array_nothing_is_told(module, name):
    report = check(module, name, 6, shared_bytes=64)
    assert report.ok
    assert not [note for note in report.notes if "element" in str(note)]


def test_dynamic_shared_memory_is_another_array(module):
    told(check(module, "goes_beyond", 9, shared_bytes=64), "goes_beyond", "of counts, which has 8", "lands in dynamic")


@pytest.mark.parametrize("name", ["carved", "of_a_struct", "chosen", "two_buffers"])
def test_what_programs_may_mean_is_no_finding(module, name):
    assert check(module, name, 9, shared_bytes=64).ok


@pytest.mark.parametrize("name", ["of_device", "of_constant"])
def test_variables_of_the_module_end_too(module, name):
    assert check(module, name, 7, block=1).ok
    for at in (8, 300):  # where nothing is, and in the next one
        told(check(module, name, at, block=1), name, f"element {at} of", "which has 8")


def test_a_view_ends_where_the_next_one_begins(module):
    pool = np.zeros((2, 32), np.int32)
    assert check(module, "of_arguments", 31, block=1, args=[pool[0], pool[1], 31]).ok
    report = check(module, "of_arguments", 32, block=1, args=[pool[0], pool[1], 32])
    told(report, "of_arguments", "element 32 of keys, which has 32, of shape (32,)", "that is byte 0 of ", "values")


def test_a_difference_of_pointers_leads_from_one_argument_to_another(module):
    pool = np.zeros((2, 32), np.int32)
    assert check(module, "between", 3, args=[pool[0], pool[1], np.zeros(32, np.int32), 3]).ok


def test_a_store_between_the_elements_of_a_view_is_a_note():
    import torch

    module = wb.load_cuda(SOURCE, device="sim", strided=True)

    def notes(at: int) -> list[str]:
        view, values = torch.zeros(4, 16, dtype=torch.int32)[:, :8], torch.zeros(64, dtype=torch.int32)
        report = check(module, "of_arguments", at, block=1, args=[view, values, at])
        assert report.ok
        return [line for line in str(report).splitlines() if "store between elements" in line]

    assert not notes(23)
    (note,) = notes(24)
    assert "element 24 of keys, which has 56, a view of shape (4, 8) with strides (16, 1)" in note


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("mov.u32 %r1, a; st.shared.u32 [%r1+4], %r9;", "a"),
        ("mov.u32 %r1, a; add.s32 %r2, %r1, %r8; st.shared.u32 [%r2], %r9;", "a"),
        ("mov.u32 %r1, a; mad.lo.s32 %r2, %r8, 4, %r1; st.shared.u32 [%r2], %r9;", "a"),
        ("mov.u32 %r1, a; sub.s32 %r2, %r1, %r8; st.shared.u32 [%r2], %r9;", "a"),
        ("mov.u32 %r1, a; and.b32 %r2, %r1, -16; st.shared.u32 [%r2], %r9;", "a"),
        ("ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r9;", 0),
        ("mov.u32 %r1, a; mov.u32 %r2, b; selp.b32 %r3, %r1, %r2, %p1; st.shared.u32 [%r3], %r9;", None),
        ("mov.u32 %r1, a; mov.u32 %r1, b; st.shared.u32 [%r1], %r9;", None),
        ("mov.u32 %r1, a; ld.shared.u32 %r1, [%r4]; st.shared.u32 [%r1], %r9;", None),
        ("mov.u32 %r1, a; and.b32 %r2, %r1, 15; add.s32 %r3, %r2, %r8; st.shared.u32 [%r3], %r9;", None),
        ("mov.u32 %r1, a; sub.s32 %r2, %r8, %r1; st.shared.u32 [%r2], %r9;", None),
        ("mov.u32 %r1, a; xor.b32 %r2, %r1, %r8; st.shared.u32 [%r2], %r9;", None),
        ("ld.param.u64 %rd1, [n]; st.global.u32 [%rd1], %r9;", None),
    ],
)
def test_the_origin_of_an_address(code, found):
    from workbench.ptx.parse import parse

    text = f".version 8.0\n.target sm_80\n.visible .entry k(.param .u64 p, .param .u64 n) {{ {code} }}"
    parsed = parse(text)
    accesses = origins(parsed.body(parsed.entries["k"]).rows(), ["a", "b"], {"p": 0})
    assert [one.origin for one in accesses] == ([] if found is None else [found])
