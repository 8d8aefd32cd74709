"""Every instruction of the core's table is run by a test of its meaning, but for the ones named here."""

from __future__ import annotations

import pytest
from ptx_collective_cases import texts
from ptx_float_cases import CASES as FLOAT_CASES
from ptx_integer_cases import CASES as INTEGER_CASES
from ptx_mbarrier_cases import random_steps
from ptx_mbarrier_cases import text as mbarrier_text
from ptx_memory_cases import (
    ATOMICS,
    BULK_FILLS,
    CONSTANT_LOADS,
    PARAMETER_LOADS,
    ROUND_TRIPS,
    VECTOR_ATOMICS,
    WIDE_ATOMICS,
)
from ptx_mma_cases import MMAS, SCALED_MMAS
from ptx_rare_cases import CASES as RARE_CASES
from ptx_small_cases import CASES as SMALL_CASES
from ptx_sparse_cases import SPARSE_MMAS
from ptx_support import lane_kernel, module, opcodes_of
from ptx_tcgen05_cases import TCGEN05
from ptx_wgmma_cases import PRODUCTS as WGMMAS
from ptx_wmma_cases import PRODUCTS
from test_semantics import APPROXIMATE

from workbench import ptx
from workbench.errors import UnsupportedInstructionError
from workbench.ptx.families import refused
from workbench.ptx.machine import OPCODES
from workbench.ptx.table import INTERNAL, PAGE, markdown, refusals, rows

# Tested by kernels written out in full: control flow, barriers, copies, named barriers, and by names in test_semantics.
ELSEWHERE = {
    "bra", "trap", "bar.sync", "bar.arrive", "bar.warp.sync", "cp.async", "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.wait_all", "clock.b32", "clock.b64", "nop", "fence", "tcgen05.wait.assembler",
    "div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32",
    "rcp.approx.ftz.f64", "rsqrt.approx.f64", "rsqrt.approx.ftz.f64", "ex2.approx.f16", "ex2.approx.f16x2",
    "ex2.approx.ftz.bf16", "ex2.approx.ftz.bf16x2", "tanh.approx.f16", "tanh.approx.f16x2", "tanh.approx.bf16",
    "tanh.approx.bf16x2", "call", "ret", "param.copy", "registers.save", "registers.restore", "call.vprintf",
    "call.assertfail", "call.malloc", "call.free", "call.set_conditional",
    "isspacep", "cp.async.mbarrier.arrive.shared.b64", "cp.async.mbarrier.arrive.noinc.shared.b64",
    "fence.proxy.async", "fence.mbarrier_init", "fence.proxy.tensormap.release", "fence.proxy.tensormap.acquire",
    "griddepcontrol.wait", "griddepcontrol.launch_dependents",
    "cp.async.bulk.shared.global", "cp.async.bulk.global.shared",
    "cp.async.bulk.tensor.shared.global", "cp.async.bulk.tensor.global.shared", "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read", "tensormap.replace.shared.b32",
    "tensormap.replace.shared.b64", "tensormap.replace.global.b32", "tensormap.replace.global.b64",
    "tensormap.cp_fenceproxy", "mapa.u32", "mapa.u64", "getctarank.u32", "getctarank.u64", "barrier.cluster.arrive",
    "barrier.cluster.wait", "clusterlaunchcontrol.try_cancel",
    "st.async.b32", "st.async.b64", "mbarrier.expect_tx.shared.b64",
    "mbarrier.complete_tx.shared.b64",
    "cp.async.bulk.shared.shared", "tcgen05.ld.red", "tcgen05.shift",
}  # fmt: skip
# No test yet; this list may only shrink.
UNTESTED: set[str] = set()


def test_every_instruction_has_a_semantic_test() -> None:
    kernels = [
        lane_kernel(case.instruction, [case.destination], case.sources)
        for case in INTEGER_CASES + FLOAT_CASES + RARE_CASES + SMALL_CASES
    ]
    kernels += [lane_kernel(f"{name} {{d0}}, {{s0}};", ["f32"], ["f32"]) for name in APPROXIMATE]
    memory = (*ROUND_TRIPS, *PARAMETER_LOADS, *CONSTANT_LOADS, *ATOMICS, *VECTOR_ATOMICS, *WIDE_ATOMICS, *BULK_FILLS)
    kernels += [case.text for case in (*memory, *MMAS, *SCALED_MMAS, *SPARSE_MMAS, *PRODUCTS)] + texts()
    kernels += [case.text((0, 0), (0, 0)) for case in (*WGMMAS, *TCGEN05)]
    kernels += [mbarrier_text(*random_steps(seed)) for seed in range(40)]
    covered = ELSEWHERE | {name for name in OPCODES if name.startswith("contract.")}  # each in test_contraction
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
    assert forms == len([name for name in OPCODES if not name.startswith(INTERNAL)])


def test_the_page_for_readers_is_the_output_of_the_table() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m workbench.ptx.table > workbench/ptx/INSTRUCTIONS.md"


def test_what_the_page_refuses_is_refused_for_that_reason() -> None:
    for name, why in refused.REASONS.items():
        assert refused.reason(name) == why or refused.reason(f"{name}.anything") == why
    listed = " ".join(why for _, why in refusals())
    assert all(why in listed for why in (*refused.REASONS.values(), *refused.FORMS.values()))


# An instruction of every section of the PTX ISA (9.0) that is not in the table, and a word of the reason.
SECTIONS = {
    "shfl.up.b32": ".sync", "vote.all.pred": ".sync", "tcgen05.mma.ws.sp.cta_group::1.kind::f16": "sparse",
    "tcgen05.mma.cta_group::1.kind::f16.ashift": "after the shift",
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32": "red.async",
    "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes": "im2col",
    "red.async.mmio.release.sys.global.add.u32": "red.global",
    "st.async.mmio.release.sys.global.u32": "use st.global",
    "multimem.ld_reduce.global.add.f32": "several GPUs",
    "tex.2d.v4.f32.s32": "textures", "tld4.r.2d.v4.f32.f32": "textures", "txq.width.b32": "textures",
    "istypep.texref": "textures", "suld.b.2d.b32.trap": "surfaces", "sust.b.2d.b32.trap": "surfaces",
    "sured.b.add.2d.b32.trap": "surfaces", "suq.width.b32": "surfaces", "alloca.u64": "stack", "stacksave.u64": "stack",
    "stackrestore.u64": "stack", "vadd.s32.u32.s32": "video", "vset4.s32.u32.s32": "video", "vmad.s32.u32.s32": "video",
    "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16": "Volta", "atom.add.b128": "exch and cas",
    "ldmatrix.sync.aligned.m16n16.x1.shared.b8": ".m16n16.trans",
}  # fmt: skip


@pytest.mark.parametrize("text", SECTIONS)
def test_other_sections_are_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=SECTIONS[text]) as caught:
        ptx.Program(module("no", "", f"{text} %r1, %r2;"))["no"]
    assert text in str(caught.value)
