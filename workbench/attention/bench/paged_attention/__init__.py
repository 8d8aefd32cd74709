"""Paged attention of one new token per sequence, as a fraction of the memory's speed: ``workbench bench attention``.

On a GPU every contender, ours or another library's, is checked against float64 and then timed on the same pages through
the same block tables. The measure is the fraction of the speed at which the same GPU streams memory, because decoding
is nearly all reading. Without a GPU the same grid is *predicted* from counts of the PTX machine on scaled-down cells.
"""

from workbench.attention.bench.paged_attention.benchmark import AttentionBenchmark, run
from workbench.attention.bench.paged_attention.cells import Cell, grid

__all__ = ["AttentionBenchmark", "Cell", "grid", "run"]
