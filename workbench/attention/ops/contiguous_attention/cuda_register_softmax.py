"""An online softmax per thread group, all in registers, each key and value read once for several query heads.

The kernel is ``cuda_src/contiguous_attention_register_softmax.cu``.
"""

from __future__ import annotations

from workbench.attention.ops.cache_problem import head_macros
from workbench.attention.ops.contiguous_attention.problem import ARGUMENTS, GRID, ContiguousAttentionProblem
from workbench.attention.ops.rules import STATIC_SHARED, THREADS, rules, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Restriction

_OTHER_REGISTERS = 40
"""Registers beside queries, sums and vectors: addresses, loop state, scores."""
_DEFAULT_REGISTERS = 168
"""Largest number of registers of an untuned configuration: three blocks of 128 threads fit on a multiprocessor."""

SPACE = {
    "HEADS_PER_BLOCK": (1, 2, 4, 8),
    "THREAD_GROUP_SIZE": (1, 2, 4, 8, 16, 32),
    "VEC_SIZE": (1, 2, 4, 8),
    "TOKENS_IN_FLIGHT": (1, 2, 4),
    "NUM_THREADS": (64, 128, 256, 512),
}


def _registers(config: Config, problem: ContiguousAttentionProblem) -> int:
    """Return one thread's registers: its slice of queries and sums in fp32, and of the keys and values in flight."""
    elements = -(-problem.head_size // config["THREAD_GROUP_SIZE"])
    in_flight = config["TOKENS_IN_FLIGHT"] * elements * problem.itemsize // 4
    return 2 * config["HEADS_PER_BLOCK"] * (elements + 1) + 2 * in_flight + _OTHER_REGISTERS


def _shared_bytes(config: Config, problem: ContiguousAttentionProblem) -> int:
    """Return the bytes of the queries, and of each warp's maximum, sum and output of each head."""
    warps = config["NUM_THREADS"] // 32
    return 4 * config["HEADS_PER_BLOCK"] * ((warps + 1) * problem.head_size + 2 * warps)


RESTRICTIONS = rules(
    ("heads of one group", "num_heads // num_kv_heads % HEADS_PER_BLOCK == 0"),
    ("groups divide a warp", "32 % THREAD_GROUP_SIZE == 0"),
    ("whole vectors", "head_size % (THREAD_GROUP_SIZE * VEC_SIZE) == 0"),
    ("16-byte loads", "VEC_SIZE * itemsize <= 16"),
    THREADS,
    Restriction(
        "registers",
        "head_size / THREAD_GROUP_SIZE * (2 * HEADS_PER_BLOCK + 2 * TOKENS_IN_FLIGHT * sizeof(cache element) / 4) "
        f"+ 2 * HEADS_PER_BLOCK + {_OTHER_REGISTERS} <= min(255, 65536 / NUM_THREADS)",
        lambda c, p: _registers(c, p) <= min(255, 65536 // c["NUM_THREADS"]),
    ),
    shared_memory(_shared_bytes, "4 * HEADS_PER_BLOCK * ((warps + 1) * head_size + 2 * warps)", static=True),
    GRID,
)


def default_config(problem: ContiguousAttentionProblem) -> dict:
    """Return the widest loads whose slices fit in registers, then as many query heads and tokens in flight as fit."""
    config = {"HEADS_PER_BLOCK": 1, "TOKENS_IN_FLIGHT": 1, "NUM_THREADS": 128}
    for vec in (8, 4, 2, 1):
        group = 32
        while problem.head_size % (group * vec) and group > 1:
            group //= 2
        narrowest = config | {"THREAD_GROUP_SIZE": group, "VEC_SIZE": vec}
        fits = vec * problem.itemsize <= 16 and problem.head_size % (group * vec) == 0
        if fits and _registers(narrowest, problem) <= _DEFAULT_REGISTERS:
            config = narrowest
            break
    else:
        config = narrowest
    for name, values in (("HEADS_PER_BLOCK", (2, 4, 8)), ("TOKENS_IN_FLIGHT", (2, 4))):
        for value in values:
            wider = config | {name: value}
            fits = _registers(wider, problem) <= _DEFAULT_REGISTERS and _shared_bytes(wider, problem) <= STATIC_SHARED
            if fits and problem.group % wider["HEADS_PER_BLOCK"] == 0:
                config = wider
    return {name: config[name] for name in SPACE}


VARIANT = CudaVariant(
    op="contiguous_attention",
    name="cuda_register_softmax",
    idea="an online softmax per thread group, in registers; one read of K and V for several query heads",
    source=cuda_sources() / "contiguous_attention_register_softmax.cu",
    steps=(
        CudaStep(
            kernel="contiguous_attention_register_softmax",
            grid=lambda config, problem: (problem.num_heads // config["HEADS_PER_BLOCK"], problem.num_seqs),
            arguments=ARGUMENTS,
        ),
    ),
    space=SPACE,
    restrictions=RESTRICTIONS,
    layouts=("contiguous",),
    dtypes=("float32", "float16", "bfloat16"),
    defaults=default_config,
    macros=lambda config, problem: head_macros(config, problem) | {"GROUP": problem.group},
)
