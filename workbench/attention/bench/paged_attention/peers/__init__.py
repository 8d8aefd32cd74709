"""Peers: decode attention of other libraries over the same pages: torch, FlexAttention, FlashInfer, xformers.

Each is a value with the interface of `Contender`. A peer that is not installed, or cannot read a cache, reports it, and
its place in the table stays blank. Each runs in every way that its documentation recommends as fast, and the fastest
counts. All read the same pages through the same block table, in the layout that they require, except the second of
torch's: it gets its tokens gathered beforehand, as from a cache without pages.
"""

from workbench.attention.bench.paged_attention.contender import Contender
from workbench.attention.bench.paged_attention.peers.flash_infer import FlashInfer
from workbench.attention.bench.paged_attention.peers.flex_attention import FlexAttention
from workbench.attention.bench.paged_attention.peers.split_k import Xformers
from workbench.attention.bench.paged_attention.peers.torch_sdpa import TorchSdpa

PEERS: tuple[Contender, ...] = (TorchSdpa(True), TorchSdpa(False), FlexAttention(), FlashInfer(), Xformers())
"""All peers, in the order of the table."""

PACKAGES = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "xformers")
"""Packages of peers whose versions are recorded with a result."""

__all__ = ["PACKAGES", "PEERS", "FlashInfer", "FlexAttention", "TorchSdpa", "Xformers"]
