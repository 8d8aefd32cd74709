"""Every instruction of the core's table is run by a test of its meaning, but for the ones named here."""

from __future__ import annotations

from ptx_collective_cases import texts
from ptx_float_cases import CASES as FLOAT_CASES
from ptx_integer_cases import CASES as INTEGER_CASES
from ptx_memory_cases import ATOMICS, PARAMETER_LOADS, ROUND_TRIPS
from ptx_support import lane_kernel, opcodes_of
from test_semantics import APPROXIMATE

from workbench.ptx.machine import OPCODES
from workbench.ptx.table import markdown, rows

# Tested by kernels written out in full: control flow, barriers, copies, named barriers, and by names in test_semantics.
ELSEWHERE = {
    "bra", "trap", "bar.sync", "bar.arrive", "bar.warp.sync", "cp.async", "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.wait_all", "clock.b32", "clock.b64", "nop", "fence", "pack.b32.2", "pack.b64.2", "pack.b64.4",
    "unpack.b32.2",
    "unpack.b64.2", "unpack.b64.4", "div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32",
    "rcp.approx.ftz.f64", "rsqrt.approx.f64", "rsqrt.approx.ftz.f64", "ex2.approx.f16", "ex2.approx.f16x2",
    "ex2.approx.ftz.bf16", "ex2.approx.ftz.bf16x2", "tanh.approx.f16", "tanh.approx.f16x2", "tanh.approx.bf16",
    "tanh.approx.bf16x2", "call", "ret", "param.copy", "registers.save", "registers.restore", "call.vprintf",
    "call.assertfail", "isspacep",
}  # fmt: skip
# No test yet; this list may only shrink.
UNTESTED: set[str] = set()


def test_every_instruction_has_a_semantic_test() -> None:
    kernels = [lane_kernel(case.instruction, [case.destination], case.sources) for case in INTEGER_CASES + FLOAT_CASES]
    kernels += [lane_kernel(f"{name} {{d0}}, {{s0}};", ["f32"], ["f32"]) for name in APPROXIMATE]
    kernels += [case.text for case in (*ROUND_TRIPS, *PARAMETER_LOADS, *ATOMICS)] + texts()
    covered = set(ELSEWHERE)
    for kernel in kernels:
        covered |= opcodes_of(kernel)
    assert covered <= set(OPCODES), "a name in ELSEWHERE that the table does not have"
    assert set(OPCODES) - covered == UNTESTED


def test_the_table_for_readers_has_every_instruction() -> None:
    text = markdown()
    assert f"{len(OPCODES)} canonical instructions" in text
    for name in ("add", "mma.m16n8k16", "ld.global", "bar.sync", "cp.async", "atom.shared.add", "call.vprintf"):
        assert f"| `{name}` |" in text, name
    forms = sum(len(row[2].split(", ")) if row[2] else 1 for row in rows())
    assert forms == len([name for name in OPCODES if not name.startswith(("param.copy", "registers.", "nop"))])
