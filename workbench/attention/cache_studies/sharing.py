"""What sharing blocks saves: parallel sampling, beam search and a common prefix, on the real `BlockManager`.

Saved is what Kwon et al. plot in Figure 15 of "Efficient Memory Management for Large Language Model Serving with
PagedAttention" (2023): blocks saved by sharing over blocks without sharing, here summed over the steps of all requests,
each run to its end. The requests of these two studies share nothing with each other, so that each can run alone; a
common prefix is shared between requests, which takes a full queue (`workbench.attention.cache_studies.waste.simulate`).
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
"""Tokens that a beam may go on with."""


@dataclass(frozen=True)
class SharingResult:
    """What sharing within each request saved, over a trace.

    Attributes:
        method: "parallel sampling" or "beam search"; ways: sequences of each request.
        saved: blocks saved over blocks without sharing, both summed over all steps.
        copied_tokens: slots copied by copy-on-write.
        contiguous_copied_tokens: tokens that a contiguous cache copies for the same: prompts spread over the rows, and
            rows that take over another row's history.
    """

    method: str
    ways: int
    block_size: int
    saved: float
    copied_tokens: int
    contiguous_copied_tokens: int


@dataclass(frozen=True)
class PublishedSharing:
    """What the paper reports for OPT-13B: sequences of a request -> blocks saved over blocks without sharing."""

    method: str
    workload: str
    saved: Mapping[int, float]


PAPER_SHARING = (
    PublishedSharing("parallel sampling", "Alpaca", {2: 0.0609, 4: 0.0853, 6: 0.0979}),
    PublishedSharing("parallel sampling", "ShareGPT", {2: 0.162, 6: 0.305}),
    PublishedSharing("beam search", "Alpaca", {2: 0.3756, 4: 0.5313, 6: 0.5516}),
    PublishedSharing("beam search", "ShareGPT", {2: 0.443, 6: 0.663}),
)
"""Alpaca: the labels of Figure 15. ShareGPT: the ranges in section 6.3, whose ends are taken for 2 and 6 ways."""


def parallel_sampling(trace: Sequence[Request], ways: int, *, block_size: int = 16) -> SharingResult:
    """Several samples of each request: they share the prompt, and part at the first token that they generate.

    All samples of a request are as long as its trace says.
    """
    return _study("parallel sampling", trace, ways, block_size, lambda index: lambda: list(range(ways)))


def beam_search(
    trace: Sequence[Request], ways: int, *, block_size: int = 16, concentration: float = 2.0, seed: int = 0
) -> SharingResult:
    """Beam search of a given width. In each step the best continuations of all beams become the next beams.

    There is no model here to score continuations. Each beam's next-token probabilities are drawn at random, peaked as
    a language model's are (a Dirichlet distribution over 50 tokens), and the beams of highest total log-probability
    survive. How long histories stay common depends on that, so treat the result as one of a family.

    Args:
        concentration: sum of the Dirichlet parameters; at 2.0 the most probable token has 0.49 on average, and more
            makes the tokens more alike.
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
    """A full queue of requests that all start with the same tokens: without the prefix cache, and with it.

    ``sharing_saved`` and ``mean_batch`` of the two results say what the cache is worth. The prefix comes on top of the
    input tokens of the trace. (The paper's translation prompts have 80 and 341 such tokens, section 6.4.)
    """
    check_count("prefix_tokens", prefix_tokens, 0, "Tokens that all prompts start with.")
    without, cached = (
        simulate(trace, Paged(block_size, capacity, shared_prefix=prefix_tokens, prefix_caching=caching))
        for caching in (False, True)
    )
    return without, cached


def _keep_in_place(parents: list[int]) -> list[int]:
    """The same parents in an order that leaves as many beams as possible where they are."""
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
    """Run every request alone; before each step, beam i goes on from ``next_parents()[i]`` (beams: from beam 0)."""
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
            if moved and step:  # in the first step all beams are the prompt
                manager.reorder(moved)
                contiguous += len(moved) * manager.num_tokens(0)
            placement = manager.append_batch(dict.fromkeys(range(ways), 1))
            copied += len(placement.copies) * block_size
            counts = manager.statistics()
            saved += counts.saved_blocks
            without += counts.saved_blocks + counts.used_blocks
    return SharingResult(method, ways, block_size, saved / without, copied, contiguous)
