"""Savings by sharing blocks, measured on the real `BlockManager`: parallel sampling, beam search, common prefixes.

The measure is that of Figure 15 in Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention" (2023): blocks saved by sharing, as a fraction of the blocks without sharing. Here both are summed over
the steps of all requests, each run to its end. In parallel sampling and beam search, requests share nothing with each
other, so each runs alone. A common prefix is shared between requests, so that study simulates a full queue
(`workbench.attention.cache_studies.waste.simulate`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workbench.attention.cache_studies.traces import Request
from workbench.attention.cache_studies.waste import OPT_13B_SLOTS, Paged, WasteResult, simulate
from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.kvcache.errors import check_count
from workbench.errors import ArgumentError

_TOKENS = 50
"""Number of tokens that may continue a beam."""


@dataclass(frozen=True)
class SharingResult:
    """Savings by sharing within each request of a trace.

    Attributes:
        method: "parallel sampling" or "beam search".
        ways: sequences of each request.
        block_size: tokens per block.
        saved: blocks saved, as a fraction of the blocks without sharing, both summed over all steps.
        copied_tokens: slots copied by copy-on-write.
        contiguous_copied_tokens: tokens that a contiguous cache copies for the same work: prompts copied to every row,
            and rows that take over another row's history.
    """

    method: str
    ways: int
    block_size: int
    saved: float
    copied_tokens: int
    contiguous_copied_tokens: int


@dataclass(frozen=True)
class PublishedSharing:
    """Savings that the paper reports for OPT-13B, by number of sequences per request."""

    method: str
    workload: str
    saved: Mapping[int, float]


PAPER_SHARING = (
    PublishedSharing("parallel sampling", "Alpaca", {2: 0.0609, 4: 0.0853, 6: 0.0979}),
    PublishedSharing("parallel sampling", "ShareGPT", {2: 0.162, 6: 0.305}),
    PublishedSharing("beam search", "Alpaca", {2: 0.3756, 4: 0.5313, 6: 0.5516}),
    PublishedSharing("beam search", "ShareGPT", {2: 0.443, 6: 0.663}),
)
"""Published savings. Alpaca: labels of Figure 15. ShareGPT: ranges of section 6.3, whose ends we take for 2 and 6."""


def parallel_sampling(trace: Sequence[Request], ways: int, *, block_size: int = 16) -> SharingResult:
    """Measure what sharing saves when ``ways`` samples of each request share its prompt and nothing after it.

    Every sample generates the number of tokens that the trace gives for its request.
    """
    return _study("parallel sampling", trace, ways, block_size, lambda index: lambda: list(range(ways)))


def beam_search(
    trace: Sequence[Request], ways: int, *, block_size: int = 16, concentration: float = 2.0, seed: int = 0
) -> SharingResult:
    """Measure what sharing saves in beam search, where the best continuations of all beams become the next beams.

    No model scores the continuations. Each beam's next-token probabilities are drawn from a Dirichlet distribution over
    50 tokens, peaked like those of a language model, and the beams with the highest sum of log probabilities survive.
    The result depends on that distribution, because it decides how long beams share their history.

    Args:
        trace: requests, each run alone.
        ways: beam width.
        block_size: tokens per block.
        concentration: sum of the Dirichlet parameters; at 2.0 the most probable token has probability 0.49 on average,
            and larger values make the tokens more equal.
        seed: seed of the probabilities.
    """
    if not concentration > 0:
        raise ArgumentError("concentration", concentration, "a positive number", "2.0 is peaked, 50 is even.")

    def parents_of(index: int) -> Callable[[], list[int]]:
        rng = random.Random(f"{seed} {index}")
        scores = [0.0]

        def next_parents() -> list[int]:
            nonlocal scores
            candidates = []
            for beam, score in enumerate(scores):
                weights = [rng.gammavariate(concentration / _TOKENS, 1.0) for _ in range(_TOKENS)]
                total = sum(weights)
                best = heapq.nlargest(ways, weights)
                candidates += [(score + math.log(max(weight / total, 1e-30)), beam) for weight in best]
            chosen = heapq.nlargest(ways, candidates)
            scores = [score for score, _ in chosen]
            return _keep_in_place([beam for _, beam in chosen])

        return next_parents

    return _study("beam search", trace, ways, block_size, parents_of)


def common_prefix(
    trace: Sequence[Request], prefix_tokens: int, *, block_size: int = 16, capacity: int = OPT_13B_SLOTS
) -> tuple[WasteResult, WasteResult]:
    """Simulate a full queue of requests that start with the same tokens, without the prefix cache and with it.

    Compare ``sharing_saved`` and ``mean_batch`` of the two results. The prefix is added to the input tokens of the
    trace. (The paper's translation prompts share 80 and 341 tokens, section 6.4.)
    """
    check_count("prefix_tokens", prefix_tokens, 0, "Tokens that all prompts start with.")
    without, cached = (
        simulate(trace, Paged(block_size, capacity, shared_prefix=prefix_tokens, prefix_caching=caching))
        for caching in (False, True)
    )
    return without, cached


def _keep_in_place(parents: list[int]) -> list[int]:
    """Reorder parents so that as many beams as possible keep their place."""
    places: list[int | None] = [None] * len(parents)
    rest = []
    for parent in parents:
        if places[parent] is None:
            places[parent] = parent
        else:
            rest.append(parent)
    return [rest.pop() if parent is None else parent for parent in places]


def _study(
    method: str,
    trace: Sequence[Request],
    ways: int,
    block_size: int,
    parents_of: Callable[[int], Callable[[], list[int]]],
) -> SharingResult:
    """Run every request alone and sum up what its sequences share.

    ``parents_of(index)`` makes the function of a request that returns, before each step, the parent of each sequence.
    """
    check_count("ways", ways, 1, "Sequences of each request.")
    saved = without = copied = contiguous = 0
    for index, request in enumerate(trace):
        longest = -(-request.total_tokens // block_size)
        manager = BlockManager(ways * longest, block_size)
        manager.allocate(0, request.input_tokens)
        for beam in range(1, ways):
            manager.fork(0, beam)
        contiguous += (ways - 1) * request.input_tokens
        next_parents = parents_of(index)
        for step in range(request.output_tokens):
            parents = next_parents()
            moved = {beam: parent for beam, parent in enumerate(parents) if beam != parent}
            if moved and step:  # before the first step all beams hold just the prompt
                manager.reorder(moved)
                contiguous += len(moved) * manager.num_tokens(0)
            placement = manager.append_batch(dict.fromkeys(range(ways), 1))
            copied += len(placement.copies) * block_size
            counts = manager.statistics()
            saved += counts.saved_blocks
            without += counts.saved_blocks + counts.used_blocks
    return SharingResult(method, ways, block_size, saved / without, copied, contiguous)
