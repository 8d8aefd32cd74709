"""Parts of a trial as the plain values that a store keeps: counts, predictions, resources and timings."""

from __future__ import annotations

from typing import TypedDict


class MachineCounts(TypedDict):
    """Counts of a launch's machine code: see `workbench.analysis.prediction.machine_counts`."""

    instructions: int
    pipes: dict[str, int]
    local_bytes: int
    clocks: float
    waits: dict[str, float]


class ChainSteps(TypedDict):
    """Steps of one warp's dependent chain: see `workbench.analysis.prediction.chain.Chain`."""

    global_loads: float
    shared_accesses: float
    arithmetic: float
    barriers: float


class PipelineCounts(TypedDict):
    """Clocks of each recorded block, the number of recorded blocks along x, y and z, and the launch's grid."""

    clocks: list[int]
    cut: list[int]
    grid: list[int]


class SampleRecord(TypedDict):
    """Sample of blocks that the counts come from: see `workbench.ptx.sample.Sampled`."""

    blocks: int
    of: int
    error: float | None
    because: str


class Counts(TypedDict, total=False):
    """Counts of one launch, or of several together, which are its ``parts``.

    See `workbench.analysis.prediction.counting.counts_of`. A row stored by an earlier version may lack some.
    ``machine`` is missing if the machine code cannot be read, ``pipeline`` and ``sharing`` if no blocks were recorded,
    ``sample`` if the launch was not sampled.
    """

    grid_blocks: int
    block_threads: int
    registers: int
    shared_bytes: int
    spill_bytes: int
    stack_bytes: int
    warp_instructions: int
    thread_instructions: int
    mix: dict[str, int]
    global_load_requests: int
    global_load_sectors: int
    global_store_requests: int
    global_store_sectors: int
    global_bytes_requested: int
    shared_requests: int
    shared_wavefronts: int
    shared_ideal_wavefronts: int
    shared_conflicts: int
    operand_wavefronts: int
    unique_bytes_read: int
    unique_bytes_written: int
    block_bytes_read: int
    atomic_queue: int
    read_again: list[int]
    tensor_flops: int
    tensor_flops_8_bits: int
    tensor_flops_4_bits: int
    chain: ChainSteps
    pipeline: PipelineCounts
    sharing: float
    machine: MachineCounts
    sample: SampleRecord
    parts: list[Counts]


class PredictionRecord(TypedDict, total=False):
    """Fields of a `workbench.analysis.prediction.predict.Prediction`; the known ones if others predicted the time."""

    seconds: float
    bound_by: str
    parts: dict[str, float]
    device: str
    waves: float
    occupancy: float
    version: int


class Resources(TypedDict, total=False):
    """Resources of the main kernel: registers and spills of a thread, shared memory of a block, occupancy.

    ``remarks`` are statements of ptxas about the code of all kernels.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    threads_per_block: int | None
    occupancy: float
    blocks_per_sm: int
    limited_by: str
    compiler: str
    kernel_key: str
    remarks: list[str]


class Timing(TypedDict, total=False):
    """Method of a GPU's samples, what disturbed them ("" for nothing), and the clock before and after."""

    method: str
    samples: int
    disturbed: str
    clock_mhz_before: int
    clock_mhz_after: int
