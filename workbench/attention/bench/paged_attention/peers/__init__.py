"""What others have for the same pages and block tables: torch, FlexAttention, FlashInfer, xformers.

Each is a value with the contract of `Contender`. A peer that is not installed, or that cannot read a cache, says so,
and its place in the table stays blank. Each is offered in every way that its documentation holds out as fast, and the
fastest counts. All read the same pages through the same block table, in the layout that they ask for, except the second
of torch's, which is given its tokens gathered beforehand: what a cache without pages would allow.
"""

from workbench.attention.bench.paged_attention.contender import Contender
from workbench.attention.bench.paged_attention.peers.flash_infer import FlashInfer
from workbench.attention.bench.paged_attention.peers.flex_attention import FlexAttention
from workbench.attention.bench.paged_attention.peers.split_k import Xformers
from workbench.attention.bench.paged_attention.peers.torch_sdpa import TorchSdpa

PEERS: tuple[Contender, ...] = (TorchSdpa(True), TorchSdpa(False), FlexAttention(), FlashInfer(), Xformers())
"""In the order of the table."""

PACKAGES = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "xformers")
"""Whose versions belong to a result beside those that the workbench itself runs on."""

__all__ = ["PACKAGES", "PEERS", "FlashInfer", "FlexAttention", "TorchSdpa", "Xformers"]
