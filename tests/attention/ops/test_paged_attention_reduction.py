"""Partitions combined by the block that is done last: one launch, few loads, and counters."""

import dataclasses

import pytest
import torch
from fitting import fitted
from sampling import long_if

from workbench.analysis.prediction.chain import dependent_chain
from workbench.attention.ops.paged_attention import VARIANTS, case
from workbench.attention.ops.paged_attention.cuda_grouped_mma import VARIANT as CUDA_GROUPED
from workbench.attention.ops.paged_attention.cuda_partitioned import VARIANT as CUDA
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT as TRITON_GROUPED
from workbench.attention.ops.paged_attention.triton_partitioned import VARIANT as TRITON
from workbench.errors import KernelFault

SMALL = {
    CUDA.name: {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64},
    CUDA_GROUPED.name: {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "TILE_TOKENS": 16, "NUM_STAGES": 2, "NUM_THREADS": 64},
    TRITON.name: {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 1},
    TRITON_GROUPED.name: {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 1},
}
SPLIT = pytest.mark.parametrize(
    "variant", [CUDA, CUDA_GROUPED, TRITON, TRITON_GROUPED], ids=lambda variant: variant.name
)


def prepared(variant, one, **changes):
    """(problem, tensors with a workspace, configuration)."""
    config = {**SMALL[variant.name], **changes}
    problem = one.problem(config)
    tensors = one.inputs(problem)
    return problem, dataclasses.replace(tensors, workspace=variant.workspace(config, problem, tensors)), config


def launched(variant, problem, tensors, config, sim, **options):
    launch = dataclasses.replace(variant, workspace=None).launch(config, problem, tensors)
    (kernel,) = variant.kernels(config, problem, machine_code=False)
    return sim.launch(kernel, launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, **options)


def of(variant, **fields):
    """A case that the variant reads, of eight query heads for two KV heads."""
    return fitted(variant, case("small", **{"layout": variant.layouts[0], "num_heads": 8, "num_kv_heads": 2, **fields}))


@pytest.mark.parametrize(
    "variant",
    [
        long_if(one.name == "triton_descriptors", one, id=one.name)  # its kernel is triton_grouped's
        for one in VARIANTS
        if one.language != "torch"
    ],
)
def test_every_variant_is_one_launch(variant):
    one = of(variant, seq_lens=(3000, 40))
    arch = variant.machine_arch(one.problem())
    config = variant.default_config(one.problem(arch=arch))
    problem = one.problem(config, arch=arch)
    assert (
        len(variant.kernels(config, problem, arch, machine_code=False))
        == len(variant.launches(config, problem, one.inputs(problem)))
        == 1
    )


# Of the block that combines 64 partitions, rounds of loads that do not wait for each other, one after the other; those
# of a group are of all its heads. A kernel of its own, with a loop over the partitions, had 49 (CUDA) and 65 (Triton).
ROUNDS = {CUDA: 2, CUDA_GROUPED: 8, TRITON: 2, TRITON_GROUPED: 8}


@SPLIT
@pytest.mark.sampled(2)
def test_few_loads_after_one_another(variant, sim):
    one = of(variant, num_heads=4, num_kv_heads=1, head_size=128, seq_lens=(64 * 128,))
    warps = {"NUM_THREADS": 128} if variant.language == "cuda" else {"num_warps": 4}
    problem, tensors, config = prepared(variant, one, **warps)
    report = launched(variant, problem, tensors, config, sim, statistics=True)
    assert one.check(tensors.out).ok
    assert report.grid[2] == 64
    (atomic,) = (line for line in report.lines if "atom." in line.text)
    after = [line for line in report.lines if line.ptx_line > atomic.ptx_line]
    assert dependent_chain(after, warps=4 * report.grid[0]).global_loads == ROUNDS[variant]


@SPLIT
@pytest.mark.parametrize("length", [1, 100, 128])
@pytest.mark.sampled(6)
def test_one_partition_leaves_nothing_behind(variant, length, sim):
    """The answer is written at once: no partial results, no counter, no room for them."""
    one = of(variant, seq_lens=(length, 0, 1), sinks=True)
    problem, tensors, config = prepared(variant, one)
    assert [tensor.numel() for tensor in vars(tensors.workspace).values()] == [0, 0, 0]
    report = launched(variant, problem, tensors, config, sim, statistics=True, checks=True)
    assert one.check(tensors.out).ok
    assert not report.findings
    assert report.unique_bytes_written == tensors.out.nbytes
    assert not any(line.executions for line in report.lines if "atom." in line.text)


@SPLIT
@pytest.mark.sampled(2)
def test_short_sequences_of_a_batch_leave_nothing_behind(variant, sim):
    """Also one whose window leaves one partition."""
    one = of(variant, seq_lens=(500, 100, 128, 0, 129), sliding_window=100)
    problem, tensors, config = prepared(variant, one)
    out, stats, counters = vars(tensors.workspace).values()
    out.fill_(torch.nan)
    stats.fill_(torch.nan)
    launched(variant, problem, tensors, config, sim)
    assert one.check(tensors.out).ok
    assert [not sums.isnan().all() for sums in out] == [False, False, False, False, True]
    assert not counters.any()


@SPLIT
@pytest.mark.sampled(2)
def test_the_order_in_which_blocks_are_done_changes_no_bit(variant, sim):
    one = of(variant, seq_lens=(2400, 300), head_size=32)
    results = []
    for threads in (1, 2, 2):
        problem, tensors, config = prepared(variant, one)
        launched(variant, problem, tensors, config, sim, checks=threads == 1)  # checks: one block after the other
        results.append(tensors.out.clone())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def found_wrong(variant, one, sim):
    """What is wrong with two launches on the same counters; empty if nothing is."""
    problem, tensors, config = prepared(variant, one)
    for number in (1, 2):
        tensors.out.fill_(torch.nan)
        try:
            report = launched(variant, problem, tensors, config, sim, checks=True)
        except KernelFault as fault:
            return f"launch {number}: {fault}"
        if report.findings:
            return f"launch {number}: {report.findings[0]}"
        check = one.check(tensors.out)
        if not check.ok:
            return f"launch {number}: {check}"
    return "counters" if tensors.workspace.counters.any() else ""


def runs(variant):
    """Uneven lengths, a window, sinks; and more partitions, and heads of a group, than are asked for together."""
    heads = 10 if "grouped" in variant.name else 2
    return (
        of(variant, seq_lens=(300, 1, 129, 0, 500), sliding_window=300, sinks=True),
        of(variant, seq_lens=(34 * 128 + 5,), num_heads=heads, num_kv_heads=1, head_size=128, sinks=True),
        of(variant, seq_lens=(0, 5)),
    )


@SPLIT
@pytest.mark.sampled(4)
def test_two_launches_on_the_same_counters(variant, sim):
    for one in runs(variant):
        assert not found_wrong(variant, one, sim)
