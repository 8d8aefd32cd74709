"""Every fence, wait, arrival, count and group of the kernels for sm_90a and sm_100a left out or shifted by one.

Each is noticed, or harmless for a reason that stands here.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import test_cluster_matmul
import test_hopper
import torch
from sampling import long_if
from test_hopper import ORDERS

from benchmarks import block_scaled
from workbench.attention.ops.causal_attention import CausalAttentionCase
from workbench.attention.ops.causal_attention.cuda_tcgen05 import VARIANT as TCGEN05
from workbench.attention.ops.causal_attention.cuda_wgmma import VARIANT as WGMMA
from workbench.errors import KernelFault, UnsupportedInstructionError
from workbench.ptx import LaunchReport, Program, PtxKernel, PtxSyntaxError

ATTENTION, TENSOR_ATTENTION = "causal_attention_wgmma", "causal_attention_tcgen05"
# Rows, columns and depth: of the products of a cluster so much that no unrolled step is without work.
CLUSTERS = {"matmul_multicast": (128, 64, 384), "matmul_split_k": (64, 64, 1792)}
SMALL = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2}
ATTENTIONS = {
    ATTENTION: (WGMMA, SMALL, "sm_90"),
    TENSOR_ATTENTION: (TCGEN05, {**SMALL, "BLOCK_M": 256, "RESCALE_ABOVE": 0}, "sm_100"),
}
# The same of a block-scaled product, so much that each unrolled step fills a stage again.
SCALED = {"matmul_mxfp8": (128, 128, 11 * 128), "matmul_nvfp4": (128, 128, 11 * 256)}
STRICT = (TENSOR_ATTENTION, *SCALED)  # those that have the fences which only a strict launch asks for
# Two blocks, of five tiles in two stages, the last with padding; and one of padding alone.
CASE = CausalAttentionCase(
    "lengths", 1, 1, 64, 300, num_seqs=2, num_queries=140, query_lens=(140, 0), seq_lens=(270, 0),
    dtype="float16", lse=True,
)  # fmt: skip

# By the words of a statement: what is done to it. A wait is a loop: its branch back goes, and its poll before that.
LEFT_OUT = (
    "fence.proxy.async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group", "mbarrier.init.", "fence.mbarrier_init", "mbarrier.arrive", "bar.sync", "bar.arrive",
    "barrier.cluster.arrive", "barrier.cluster.wait", "@!over bra", "tcgen05.fence", "tcgen05.wait", "tcgen05.commit",
    "tcgen05.alloc", "tcgen05.dealloc",
)  # fmt: skip
COUNTED = ("mbarrier.init.", "mbarrier.arrive.expect_tx")
# How many of a kind go unnoticed, and why nothing can notice them.
HARMLESS = {
    ("doubled", "bar.sync", "left out"): (1, "the last one: nobody accesses shared memory after it"),
    ("pipeline", "wgmma.fence", "left out"): (3, "in an unrolled loop, where products alone touch the registers"),
    ("pipeline", "mbarrier.arrive", "left out"): (1, "the last one: no stage is filled again"),
    **{
        (kernel, "wgmma.fence", "left out"): (3, "in an unrolled loop, where products alone touch the registers")
        for kernel in CLUSTERS
    },
    **{(kernel, "@!over bra", "left out"): (2, "the first ones: all stages are empty") for kernel in CLUSTERS},
    ("matmul_multicast", "mbarrier.arrive", "left out"): (1, "the last one: no stage is filled again"),
    ("matmul_mxfp8", "tcgen05.commit", "left out"): (1, "of the last step: no stage is filled again"),
    (ATTENTION, "wgmma.fence", "left out"): (1, "the first one: nothing has touched the registers of its products"),
    (ATTENTION, "bar.sync", "left out"): (1, "the turns of the warp groups: arrivals that nobody waits for are a note"),
}


@functools.cache
def program(kernel: str) -> Program:
    """That of a kernel."""
    if kernel in CLUSTERS:
        return Program.from_text(test_cluster_matmul.loaded(kernel).compiled.ptx)
    if kernel in SCALED:
        return block_scaled.program()
    if kernel not in ATTENTIONS:
        return test_hopper.program()
    variant, config, arch = ATTENTIONS[kernel]
    (compiled,) = variant.kernels(config, CASE.problem(arch=arch), arch, machine_code=False)
    return Program.from_text(compiled.ptx)


@functools.cache
def scaled_factors(kernel: str) -> list[block_scaled.BlockScaled]:
    """The matrices of a block-scaled product."""
    torch.manual_seed(0)
    m, n, k = SCALED[kernel]
    return [block_scaled.quantize(kernel.removeprefix("matmul_"), torch.randn(rows, k))[0] for rows in (m, n)]


def launched(kernel: PtxKernel, name: str, **options: Any) -> tuple[float, LaunchReport]:
    """The error of one launch, and its report; of most kernels 1 for one past its bound."""
    if name in CLUSTERS:
        given, c, expected = test_cluster_matmul.launch_of(name, *CLUSTERS[name])
        shape = given.pop("grid"), given.pop("block"), given.pop("args")
        report = kernel.launch(*shape, seconds_limit=30, **given, **options)
        return float((c.double() - expected).abs().max() > 2e-3), report
    if name in SCALED:
        a, b = scaled_factors(name)
        given, c = block_scaled.launch_of(a, b)
        report = kernel.launch(**given, seconds_limit=30, **options)
        return float(not ((c - a.values() @ b.values().T).abs() < 1e-2).all()), report
    if name not in ATTENTIONS:
        return test_hopper.launched(kernel, name, **options)
    variant, config, arch = ATTENTIONS[name]
    problem = CASE.problem(arch=arch)
    tensors = CASE.inputs(problem)
    launch = variant.launch(config, problem, tensors)
    report = kernel.launch(
        launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, seconds_limit=30, **options
    )
    return float(not CASE.check(tensors.out).ok), report


class Mutant(NamedTuple):
    kernel: str
    line: int
    words: str
    change: str
    text: str


def mutants(kernel: str) -> Iterator[Mutant]:
    """Those of one kernel, each with the PTX of the whole module."""
    module = program(kernel).module
    lines, entry = module.text.splitlines(), module.entries[kernel]
    for number in range(module.line_of(entry.body_start) - 1, module.line_of(entry.body_end)):
        line = lines[number].strip()
        words = next((words for words in LEFT_OUT if words in line), None)
        if words is None:
            continue

        def changed(text: str, number: int = number) -> str:
            before = [*lines[: number - 1], ""] if "bra" in lines[number] else lines[:number]
            return "\n".join([*before, text, *lines[number + 1 :]])

        yield Mutant(kernel, number, words, "left out", changed(""))
        if any(counted in line for counted in COUNTED):
            target, register = re.match(r"(.*), (%r\d+);", line).groups()
            more = f"{{ .reg .b32 %more; add.u32 %more, {register}, 1; {target}, %more; }}"
            yield Mutant(kernel, number, words, "one more", changed(more))


def noticed(mutant: Mutant) -> str:
    """What gives a mutant away: a finding's kind, a fault, a wrong value; empty if nothing does."""
    try:
        kernel = Program(mutant.text)[mutant.kernel]
    except (UnsupportedInstructionError, PtxSyntaxError) as error:
        return f"refused: {error}"
    for order in (*ORDERS, *([{"strict": True}] if mutant.kernel in STRICT else [])):
        try:
            error, report = launched(kernel, mutant.kernel, checks=True, **order)
        except KernelFault as fault:
            return fault.finding.kind
        if report.findings:
            return report.findings[0].kind
        if not error < 1e-4:
            return "wrong values"
    return ""


@pytest.mark.parametrize(
    "kernel", ["doubled", "row_sums", *(long_if(True, name) for name in ("pipeline", *ATTENTIONS, *CLUSTERS, *SCALED))]
)
def test_no_mutant_goes_unnoticed(kernel: str) -> None:
    found = [(mutant, noticed(mutant)) for mutant in mutants(kernel)]
    assert len(found) >= 4
    assert not [f"line {one.line}: {one.words} {one.change}" for one, by in found if by.startswith("refused")]
    missed = Counter((one.kernel, one.words, one.change) for one, by in found if not by)
    assert missed == {kind: count for kind, (count, _) in HARMLESS.items() if kind[0] == kernel}


@pytest.mark.parametrize(("kernel", "step"), [(ATTENTION, 9), (TENSOR_ATTENTION, 20)])
def test_some_mutants_of_attention_are_noticed(kernel: str, step: int) -> None:
    some = [one for one in mutants(kernel) if (kernel, one.words, one.change) not in HARMLESS][step // 2 :: step]
    assert len(some) >= 4
    assert [f"line {one.line}: {one.words} {one.change}" for one in some if not noticed(one)] == []
