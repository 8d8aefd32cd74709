"""Verdicts on Triton's kernels for sm_90 with warps that have tasks, and with tensor maps that they make."""

from __future__ import annotations

import dataclasses
import functools

import pytest

import workbench as wb

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

import triton_rings
from test_rings import is_proved
from test_rules import changed

from workbench.toolchain import CompiledKernel, compile_triton

COPIED = {
    "grid": ("cdiv(m, 16)", "cdiv(n, 64)"), "args": dict.fromkeys(("out", "x"), "float16[m, n]"),
}  # fmt: skip
PRODUCT = {
    "grid": ("cdiv(m, 128)", "cdiv(n, 64)"),
    "args": {"a": "float16[m, k]", "b": "float16[n, k]", "c": "float16[m, n]"},
}
DESCRIBED = {
    "grid": ("cdiv(m, 64)", "cdiv(n, 64)"),
    "args": {
        "a": "TensorMap(float16[m, k], [64, 64], swizzle=128)", "b": "TensorMap(float16[n, k], [64, 64], swizzle=128)",
        "c": "TensorMap(float16[m, n], [64, 64], swizzle=128)",
    },
}  # fmt: skip


@functools.cache
def copied(**promises: int) -> CompiledKernel:
    kinds = {"out": "*fp16", "x": "*fp16", "m": "i32", "n": "i32"}
    boxes = {"BLOCK_M": 16, "BLOCK_N": 64}
    return compile_triton(triton_rings.copied, kinds, boxes, arch="sm_90", attributes=promises)


@functools.cache
def product() -> CompiledKernel:
    kinds = dict.fromkeys("abc", "*fp16") | dict.fromkeys("mnk", "i32")
    boxes, promises = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, {"n": 16, "k": 16}
    return compile_triton(
        triton_rings.specialised_product, kinds, boxes, arch="sm_90", num_stages=3, attributes=promises
    )


@functools.cache
def described() -> CompiledKernel:
    kinds = dict.fromkeys("abc", "tensordesc<fp16[64,64]>") | {"k": "i32"}
    return compile_triton(
        triton_rings.specialised,
        kinds,
        dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K"), 64),
        arch="sm_90",
        num_stages=3,
    )


def edited(kernel: CompiledKernel, line: str, new: str = "", place: int = 0, old: str = "") -> CompiledKernel:
    """Replace ``old``, or the whole line, in one of the lines of a kernel's PTX with a text in them."""
    lines = kernel.ptx.splitlines(keepends=True)
    found = [number for number, one in enumerate(lines) if line in one][place]
    lines[found] = lines[found].replace(old, new) if old else new
    return dataclasses.replace(kernel, ptx="".join(lines))


def test_a_copy_by_maps_that_the_kernel_makes():
    proof = wb.prove(copied(n=16), **COPIED)
    assert proof.ok, proof


FENCE = "fence.proxy.tensormap"
WRITTEN = """{ .reg .pred other; .reg .b32 id; mov.u32 id, %tid.x; setp.eq.u32 other, id, 1; bar.warp.sync -1;
@other st.shared.b32 [global_smem+SPOT], 5; bar.warp.sync -1; }
"""


@pytest.mark.parametrize("line", [FENCE, "bar.warp.sync", "mbarrier.try_wait", "expect_tx"])
def test_a_slip_in_the_ptx_of_a_copy_is_not_proved(line):
    new = "setp.eq.u32 complete, 0, 0;\n" if line == "mbarrier.try_wait" else ""
    assert not is_proved(edited(copied(n=16), line, new), COPIED)


def test_rules_of_maps_that_a_kernel_makes_are_needed():
    unpromised, smaller = copied(), COPIED | {"args": {"out": "float16[m, n]", "x": "float16[m - 1, n]"}}
    for where, old, new, kernel, family in (
        ("made_maps._box_of", "not thread.holds(state.path, valid)", "False", unpromised, COPIED),
        ("made_maps._box_of", "list(whole) == sizes and", "", copied(n=16), smaller),
        ("made_maps.made_box", "if not held.ready:", "if False:", edited(copied(n=16), FENCE), COPIED),
    ):
        assert not is_proved(kernel, family), where
        with changed(where, old, new):
            assert is_proved(kernel, family), where


@pytest.mark.long
def test_warps_with_tasks_from_the_host_s_descriptors():
    """Both groups multiply and store the same tile, which is a race here; all else is proved."""
    proof = wb.prove(described(), **DESCRIBED)
    kinds = {"bounds": "proved", "barriers": "proved", "races": "unknown"}
    assert proof.properties == kinds, proof
    assert all("copies to c, " in one.text for one in proof.counterexamples), proof


SLIPS = {
    "wait": ("mbarrier.try_wait", "setp.eq.u32 complete, 0, 0;\n", ""),
    "arrival": ("mbarrier.arrive.shared", "", ""),
    "bytes": ("expect_tx", "4096", "8192"),
}


@pytest.mark.long
@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_the_ptx_of_a_product_is_refuted_by_a_run(slip):
    line, new, old = SLIPS[slip]
    proof = wb.prove(edited(product(), line, new, old=old), **PRODUCT)
    assert proof.status == "refuted", proof


@pytest.mark.long
def test_a_product_with_specialised_warps_is_proved():
    proof = wb.prove(product(), **PRODUCT)
    assert proof.ok, proof
