"""One thread group per token, one warp per page, one block per query head: the design of vLLM's first kernel.

The kernel is ``cuda_src/paged_attention_thread_group.cu``. vLLM derives THREAD_GROUP_SIZE and VEC_SIZE from page size
and dtype; here they are tuned independently, under the rules that vLLM's derivation follows implicitly.
"""

from __future__ import annotations

from workbench.attention.ops.cache_problem import SCALES_OR_ONE
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, PagedAttentionProblem, macros
from workbench.attention.ops.paged_attention.rules import GRID, PAGE_SIZE, WANTED_IN_FLIGHT
from workbench.attention.ops.rules import THREADS, rules, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Footprint, Restriction

_OTHER_REGISTERS = 64
"""Registers beside row sums: key vectors (32), addresses, loop state."""


def _row_sums(config: Config, problem: PagedAttentionProblem) -> int:
    """Return the number of rows of V whose sums one thread keeps in registers."""
    lanes_per_row = max(config["BLOCK_SIZE"] // config["V_VEC_SIZE"], 1)
    return -(-problem.head_size * lanes_per_row // 32)


def _shared_bytes(config: Config, problem: PagedAttentionProblem) -> tuple[int, int]:
    """Return static and dynamic shared memory in bytes: query and per-warp partial results; one logit per token."""
    warps = config["NUM_THREADS"] // 32
    pages = -(-problem.max_seq_len // config["BLOCK_SIZE"])
    return 4 * (problem.head_size * (warps + 1) + 2 * warps), 4 * pages * config["BLOCK_SIZE"]


RESTRICTIONS = rules(
    PAGE_SIZE,
    ("groups divide a warp", "32 % THREAD_GROUP_SIZE == 0"),
    ("a warp stays in its page", "BLOCK_SIZE % (32 / THREAD_GROUP_SIZE) == 0"),
    ("whole key vectors", "head_size % (THREAD_GROUP_SIZE * VEC_SIZE) == 0"),
    ("a vector keeps to its x group", "x % VEC_SIZE == 0 and head_size % x == 0", "x = 16 / sizeof(cache element)"),
    ("16-byte key loads", "VEC_SIZE * cache_itemsize <= 16"),
    ("16-byte value loads", "V_VEC_SIZE * cache_itemsize <= 16"),
    ("a warp reads whole value rows", "BLOCK_SIZE % V_VEC_SIZE == 0 and 32 % (BLOCK_SIZE // V_VEC_SIZE) == 0"),
    THREADS,
    Restriction(
        "registers",
        f"head_size * BLOCK_SIZE / V_VEC_SIZE / 32 row sums + {_OTHER_REGISTERS} <= min(255, 65536 / NUM_THREADS)",
        lambda c, p: _row_sums(c, p) + _OTHER_REGISTERS <= min(255, 65536 // c["NUM_THREADS"]),
    ),
    shared_memory(
        lambda config, problem: sum(_shared_bytes(config, problem)),
        "4 * (max_seq_len in whole pages + head_size * (warps + 1) + 2 * warps)",
    ),
    GRID,
)


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return vLLM's derivation: as many threads per token as a warp has for a page, 16 bytes per group and load.

    A thread takes at most 8 elements, so that 8-bit ones and their floats stay in registers. There are more warps than
    vLLM's four if the logits of a long sequence leave room for few blocks, because too few loads would be in flight
    (see `_enough_threads`).
    """
    block_size, itemsize = problem.page, problem.cache_itemsize
    group = max(32 // block_size, 1)
    vec = min(max(16 // (group * itemsize), 1), 8)
    while vec > 1 and problem.head_size % (group * vec):
        vec //= 2
    config = {
        "BLOCK_SIZE": block_size,
        "THREAD_GROUP_SIZE": group,
        "VEC_SIZE": vec,
        "V_VEC_SIZE": min(16 // itemsize, 8, block_size),
    }
    return config | {"NUM_THREADS": _enough_threads(config, problem)}


def _enough_threads(config: Config, problem: PagedAttentionProblem) -> int:
    """Return 128, 256 or 512 threads, enough for WANTED_IN_FLIGHT bytes per multiprocessor, with 8 pages per warp."""
    chosen, most = 128, 0
    for threads in (128, 256, 512):
        block = _footprint({**config, "NUM_THREADS": threads}, problem)
        in_flight = block.resident(problem.arch) * block.bytes_in_flight
        short = problem.max_seq_len < 8 * config["BLOCK_SIZE"] * threads // 32
        if threads > 128 and (short or _row_sums(config, problem) + _OTHER_REGISTERS > block.registers):
            break
        if in_flight > most:
            chosen, most = threads, in_flight
        if most >= WANTED_IN_FLIGHT:
            break
    return chosen


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    """Return the footprint of a block; in flight are a thread's loads of keys or of values, if they are fewer."""
    itemsize = problem.cache_itemsize
    most = 64 if itemsize == 1 else 128  # bytes of a thread
    key_loads = problem.head_size // (config["THREAD_GROUP_SIZE"] * config["VEC_SIZE"])
    loads = ((key_loads, config["VEC_SIZE"]), (_row_sums(config, problem), config["V_VEC_SIZE"]))
    thread_bytes = min(_largest_divisor(count, most // (width * itemsize)) * width * itemsize for count, width in loads)
    return Footprint(
        blocks=problem.num_heads * problem.num_seqs,
        threads=config["NUM_THREADS"],
        registers=_registers(config, problem),
        shared_bytes=sum(_shared_bytes(config, problem)),
        bytes_in_flight=config["NUM_THREADS"] * thread_bytes,
    )


def _registers(config: Config, problem: PagedAttentionProblem) -> int:
    """Return the registers granted to a thread; see RESIDENT_THREADS in the kernel."""
    few = _row_sums(config, problem) <= (8 if problem.cache_itemsize == 1 else 16)
    return 128 if few or config["NUM_THREADS"] > 256 else 255


def _largest_divisor(count: int, limit: int) -> int:
    """Return the largest divisor of ``count`` up to ``limit``: so many loads of equal size are in registers at once."""
    return max((divisor for divisor in range(1, min(count, limit) + 1) if count % divisor == 0), default=1)


VARIANT = CudaVariant(
    op="paged_attention",
    name="cuda_thread_group",
    idea="a thread group per token, a warp per page, a block per query head (vLLM v1)",
    source=cuda_sources() / "paged_attention_thread_group.cu",
    steps=(
        CudaStep(
            kernel="paged_attention_thread_group",
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs),
            shared_bytes=lambda config, problem: _shared_bytes(config, problem)[1],
            arguments=ARGUMENTS | SCALES_OR_ONE,
        ),
    ),
    space={
        "BLOCK_SIZE": (8, 16, 32, 64, 128),
        "THREAD_GROUP_SIZE": (1, 2, 4, 8, 16, 32),
        "VEC_SIZE": (1, 2, 4, 8),
        "V_VEC_SIZE": (1, 2, 4, 8),
        "NUM_THREADS": (32, 64, 128, 256, 512),
    },
    restrictions=RESTRICTIONS,
    layouts=("x",),
    dtypes=("float32", "float16", "bfloat16"),
    features=("fp8_e4m3", "fp8_e5m2", "int8", "token_scales"),
    defaults=default_config,
    footprint=_footprint,
    macros=macros,
)
