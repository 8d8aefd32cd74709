"""Named rows of scores with a known answer: positions by a sort in Python, exact.

What follows a row's scores is NaN, so that a kernel that reads it is told by its answer or by the checks. Scores are
N(0, 1), or drawn from a few values ("ties"), or all equal, or with infinities and zeros of both signs ("special").
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.named_case import OfSequences, by_name, check_bits
from workbench.attention.ops.top_k_positions.problem import TopKProblem, TopKTensors
from workbench.ops import Check

FAMILIES = ("normal", "ties", "equal", "special")


@dataclass(frozen=True)
class TopKCase(OfSequences):
    """Rows of scores, one for each sequence of ``seq_lens`` tokens; ``k`` positions are chosen of each."""

    k: int
    seq_lens: tuple[int, ...]
    family: str = "normal"
    seed: int = 0
    _problem = TopKProblem

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_lens", tuple(self.seq_lens))
        self._check_choices(family=FAMILIES)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``small 5 of 4x100 ties``."""
        return f"{self.name} {self.k} of {self.num_seqs}x{self.max_seq_len} {self.family}"

    def minimum_bytes(self, problem: TopKProblem) -> int:
        """Return the bytes that must cross memory once: scores, lengths and positions."""
        return 4 * (self.total_tokens + self.num_seqs + self.num_seqs * self.k)

    def inputs(self, problem: TopKProblem, device: str | torch.device = "cpu") -> TopKTensors:
        """Return fresh tensors; rows are a few elements longer than the longest sequence."""
        rows = _scores(self)
        scores = torch.full((len(rows), self.max_seq_len), torch.nan)
        for row, values in zip(scores, rows, strict=True):
            row[: len(values)] = values
        lengths = torch.tensor(self.seq_lens, dtype=torch.int32)
        out = torch.full((len(rows), self.k), -7, dtype=torch.int32)
        return TopKTensors(scores.to(device), lengths.to(device), out.to(device))

    def reference(self) -> torch.Tensor:
        """Return the positions, ``[num_seqs, k] int32``."""
        return _answer(self)

    def check(self, out: torch.Tensor) -> Check:
        """Judge positions, which are exact; ``max_error`` is the largest difference of two."""
        return check_bits(out, self.reference(), torch.int32)


@functools.lru_cache(maxsize=16)
def _scores(case: TopKCase) -> tuple[torch.Tensor, ...]:
    """Draw the scores of each sequence."""
    generator = torch.Generator().manual_seed(case.seed)
    rows = []
    for length in case.seq_lens:
        scores = torch.randn(length, generator=generator)
        if case.family == "ties":
            scores = scores.round()
        elif case.family == "equal":
            scores = torch.full((length,), -2.5)
        elif case.family == "special":
            values = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-45, -1e-45, 3e38, -3e38])
            scores = values[torch.randint(len(values), (length,), generator=generator)]
        rows.append(scores)
    return tuple(rows)


@functools.lru_cache(maxsize=16)
def _answer(case: TopKCase) -> torch.Tensor:
    answer = torch.full((case.num_seqs, case.k), -1, dtype=torch.int32)
    for row, scores in zip(answer, _scores(case), strict=True):
        values = scores.tolist()
        chosen = sorted(sorted(range(len(values)), key=lambda position: (-values[position], position))[: case.k])
        row[: len(chosen)] = torch.tensor(chosen, dtype=torch.int32)
    return answer


CASES = by_name(
    TopKCase("small", k=5, seq_lens=(40, 5, 0, 4, 6, 1)),
    TopKCase("ties", k=64, seq_lens=(300, 64, 65, 63), family="ties"),
    TopKCase("equal", k=33, seq_lens=(129, 33, 1), family="equal"),
    TopKCase("special", k=40, seq_lens=(200, 41), family="special"),
    TopKCase("deepseek-v3.2", k=2048, seq_lens=(6000, 2048, 3)),
)
