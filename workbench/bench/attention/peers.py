"""What others have for the same pages and block tables: torch, FlexAttention, FlashInfer, xformers.

Each is a value with the contract of `Contender`. A peer that is not installed, or that cannot read a cache, says so,
and its place in the table stays blank. All read the same "nhd" pages through the same block table, except the second
of torch's, which is given its tokens gathered beforehand: what a cache without pages would allow.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from workbench.bench.attention.cells import Cell
from workbench.bench.attention.contender import Contender, Prepared
from workbench.bench.attention.inputs import DTYPE, FREE_PAGES, Inputs

_NO_QUANTIZED = "takes keys and values of the query's dtype only"
_WORKSPACE_BYTES = 256 << 20


@dataclass(frozen=True)
class TorchSdpa:
    """``torch.nn.functional.scaled_dot_product_attention`` over tokens gathered from the pages."""

    gathers: bool
    """Whether gathering is timed too; a cache in pages must do it at every step."""
    is_ours = False
    missing = ""
    form = "gathered"

    @property
    def name(self) -> str:
        return "torch_sdpa" if self.gathers else "torch_sdpa_gathered_before"

    @property
    def about(self) -> str:
        return "gather the pages, then SDPA" if self.gathers else "SDPA alone, over tokens gathered beforehand"

    def refuses(self, cell: Cell, arch: str) -> str:
        return "" if cell.cache == "bf16" else f"torch's SDPA {_NO_QUANTIZED}"

    def code(self, cell: Cell) -> Hashable:
        return "nothing"

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        keys, values = (cache.transpose(1, 2) for cache in inputs.caches(self.form))
        query = inputs.query[:, :, None]  # one new token: [num_seqs, num_heads, 1, head_size]

        def compute() -> torch.Tensor:
            if self.gathers:
                inputs.gather()
            return torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, enable_gqa=inputs.cell.group > 1
            )

        return Prepared(compute)


@dataclass(frozen=True)
class FlexAttention:
    """torch's FlexAttention; the block table becomes a block mask over the pages.

    The pages are whole, so that nothing is to be masked. They are listed as partial blocks all the same: its decode
    kernel divides those of a sequence between thread blocks, and full ones by the length of the whole cache.
    """

    name = "flex_attention"
    about = "torch.compile of FlexAttention with the block table as block mask"
    is_ours = False
    form = "nhd"

    @property
    def missing(self) -> str:
        return "" if importlib.util.find_spec("torch.nn.attention.flex_attention") else "this torch has none"

    def refuses(self, cell: Cell, arch: str) -> str:
        if cell.cache != "bf16":
            return f"FlexAttention {_NO_QUANTIZED}"
        if cell.group.bit_count() != 1:
            return "its decode kernel wants a power of two of query heads per KV head"
        # Past this it would read elsewhere, as it multiplies token and stride in 32 bits.
        elements = cell.kv_bytes // 4 + FREE_PAGES * cell.block_size * cell.num_kv_heads * cell.head_size
        return "its decode kernel has 32-bit offsets: fewer than 2**31 keys' elements" if elements >= 2**31 else ""

    def code(self, cell: Cell) -> Hashable:
        return cell  # its shapes are constants

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        from torch.nn.attention.flex_attention import BlockMask

        cell, tables = inputs.cell, inputs.block_tables
        keys, values = (cache.flatten(0, 1).transpose(0, 1)[None] for cache in inputs.caches(self.form))
        num_blocks = keys.shape[2] // cell.block_size
        counts = torch.full((cell.num_seqs, 1, 1), cell.pages, dtype=torch.int32, device=tables.device)
        listed = tables.new_zeros(cell.num_seqs, num_blocks)  # FlexAttention wants a place for every page there is
        listed[:, : cell.pages] = tables
        mask = BlockMask.from_kv_blocks(
            counts,
            listed[:, None, None],  # [num_seqs, 1, 1, num_blocks]: one row of queries, for all heads
            BLOCK_SIZE=(128, cell.block_size),
            seq_lengths=(1, num_blocks * cell.block_size),
            compute_q_blocks=False,
        )
        query = inputs.query[:, :, None]
        attend = self._compiled()

        def compute() -> torch.Tensor:
            return attend(query, keys, values, block_mask=mask, enable_gqa=cell.group > 1)

        return Prepared(compute, {"page": cell.block_size})

    @staticmethod
    @functools.cache
    def _compiled() -> Any:
        from torch._dynamo import config
        from torch.nn.attention.flex_attention import flex_attention

        # Every cell is compiled for its own shape; past its limit torch would fall back to unfused code in silence.
        config.recompile_limit = 1024
        config.accumulated_recompile_limit = 4096
        config.fail_on_recompile_limit_hit = True
        return torch.compile(flex_attention, dynamic=False, fullgraph=True)


@dataclass(frozen=True)
class FlashInfer:
    """FlashInfer's batch decode over a paged cache, its FlashAttention-2 kernels; planned once per cell, not timed."""

    name = "flashinfer"
    about = "BatchDecodeWithPagedKVCacheWrapper.run (fa2), planned beforehand"
    is_ours = False
    form = "nhd"

    @property
    def missing(self) -> str:
        return _missing("flashinfer", "flashinfer-python")

    def refuses(self, cell: Cell, arch: str) -> str:
        return "FlashInfer's decode reads no int8 cache" if cell.cache == "int8" else ""

    def code(self, cell: Cell) -> Hashable:
        return cell.cache, self._packed(cell)

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        import flashinfer

        cell, where = inputs.cell, inputs.query.device
        packed = self._packed(cell)
        workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=where)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=packed, backend="fa2" if packed else "auto"
        )
        caches = inputs.caches(self.form)
        wrapper.plan(
            torch.arange(cell.num_seqs + 1, dtype=torch.int32, device=where) * cell.pages,
            inputs.block_tables.flatten(),
            torch.full((cell.num_seqs,), cell.block_size, dtype=torch.int32, device=where),
            cell.num_heads,
            cell.num_kv_heads,
            cell.head_size,
            cell.block_size,
            q_data_type=DTYPE,
            kv_data_type=caches[0].dtype,
        )
        scales = {} if cell.cache == "bf16" else {"k_scale": inputs.k_scale, "v_scale": inputs.v_scale}
        return Prepared(lambda: wrapper.run(inputs.query, caches, **scales), {"use_tensor_cores": packed})

    @staticmethod
    def _packed(cell: Cell) -> bool:
        """Whether a group's queries share a tile on tensor cores: its documentation says that pays for large groups."""
        return cell.group >= 4


@dataclass(frozen=True)
class Xformers:
    """xformers' split-K decode in Triton, with tiles as small as a page: its own of 64 tokens need pages of 64."""

    name = "xformers"
    about = "triton_splitk with a paged mask, tiles of at most a page"
    is_ours = False
    form = "nhd"

    @property
    def missing(self) -> str:
        return _missing("xformers", "xformers")

    def refuses(self, cell: Cell, arch: str) -> str:
        return "" if cell.cache == "bf16" else "xformers' paged decode takes no int8 and no plain fp8 cache"

    def code(self, cell: Cell) -> Hashable:
        return cell  # its sizes are constants

    def prepare(self, inputs: Inputs, device: Any) -> Prepared:
        from xformers.ops import fmha
        from xformers.ops.fmha.attn_bias import PagedBlockDiagonalPaddedKeysMask

        cell = inputs.cell
        tile = min(cell.block_size, fmha.triton_splitk.FwOp.BLOCK_N)
        operator = type("PageSizedTiles", (fmha.triton_splitk.FwOp,), {"BLOCK_N": tile})
        mask = PagedBlockDiagonalPaddedKeysMask.from_seqlens(
            [1] * cell.num_seqs,
            [cell.context] * cell.num_seqs,
            inputs.block_tables,
            cell.block_size,
            device=inputs.query.device,
        )
        shape = (1, -1, cell.num_kv_heads, cell.group, cell.head_size)
        query = inputs.query.view(shape)
        # The stride of zero over a group's query heads is how it is told that they share keys and values.
        keys, values = (
            cache.flatten(0, 1)[None, :, :, None].expand(-1, -1, -1, cell.group, -1)
            for cache in inputs.caches(self.form)
        )

        def compute() -> torch.Tensor:
            return fmha.memory_efficient_attention_forward(query, keys, values, attn_bias=mask, op=operator)

        return Prepared(compute, {"BLOCK_N": tile})


PEERS: tuple[Contender, ...] = (TorchSdpa(True), TorchSdpa(False), FlexAttention(), FlashInfer(), Xformers())
"""In the order of the table."""

PACKAGES = ("flashinfer-python", "xformers")
"""Whose versions belong to a result beside those that the workbench itself runs on."""


def _missing(module: str, package: str) -> str:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed"
    return "" if importlib.util.find_spec(module) else f"{package} cannot be imported"
