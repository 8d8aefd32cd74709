"""``workbench bench``: paged attention of one new token per sequence, ours and others', against the memory's speed.

On a GPU every contender is checked against float64 and then timed on the same pages through the same block tables;
what counts is the share of the speed at which the same GPU reads memory in a stream, because decoding is nearly all
reading. Without a GPU the same grid is *predicted* from what the PTX machine counts on scaled-down cells.
"""

from workbench.attention.bench.paged_attention.benchmark import AttentionBenchmark, run
from workbench.attention.bench.paged_attention.cells import Cell, grid

__all__ = ["AttentionBenchmark", "Cell", "grid", "run"]
