"""FlashInfer's decode over a paged cache: every kernel that it has for it, in both layouts of pages.

By its source (0.6.1 and 0.7.2), ``k_scale``, ``bmm1_scale`` and ``bmm2_scale`` cost nothing if they are Python floats,
because they are arguments of the launch. ``v_scale`` of the wrapper does cost: ``run`` multiplies the output in a
further kernel, unless it is None or exactly 1.0. So it is omitted, and is the `Prepared.factor` instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.bench.paged_attention.cells import BenchmarkCell
from workbench.attention.bench.paged_attention.contender import Contender, Prepared, Way
from workbench.attention.bench.paged_attention.inputs import DTYPE, BenchmarkInputs
from workbench.attention.bench.paged_attention.peers.installed import missing
from workbench.base.packages import arch_number

_LAYOUTS = ("NHD", "HND")
_WORKSPACE_BYTES = 256 << 20
"""Bytes of a workspace for partial results and semaphores; FlashInfer's documentation recommends 128 MB.

Semaphores must be zero at first, so each way gets a new workspace.
"""


@dataclass(frozen=True)
class FlashInfer(Contender):
    """The fastest of FlashInfer's decode kernels; planning, once per cell, is not timed."""

    name = "flashinfer"
    about = (
        "the fastest of trtllm_batch_decode_with_kv_cache (backend auto) and BatchDecodeWithPagedKVCacheWrapper.run "
        "(fa2, fa3, CUDA cores), pages NHD or HND, planned beforehand; the wrapper's v_scale, a kernel more, is left "
        "to the weights that the output meets next"
    )
    is_ours = False
    tunes = False

    @property
    def missing(self) -> str:
        """Reason why FlashInfer cannot run here; empty if it can."""
        return missing("flashinfer", "flashinfer-python")

    def ways(self, cell: BenchmarkCell) -> Sequence[Way]:
        """Return a way for each kernel and layout."""
        trtllm = [TrtllmDecode(layout) for layout in reversed(_LAYOUTS)]  # HND is its default
        return *trtllm, *(Wrapper(kernels, layout) for kernels in ("fa2", "cuda cores", "fa3") for layout in _LAYOUTS)


@dataclass(frozen=True)
class TrtllmDecode(Way):
    """The function ``trtllm_batch_decode_with_kv_cache``: TensorRT-LLM's kernels, XQA on Hopper."""

    layout: str

    @property
    def label(self) -> str:
        """Name of the kernels and the layout."""
        return f"trtllm_batch_decode {self.layout}"

    @property
    def form(self) -> str:
        """Layout of the cache that it reads."""
        return self.layout.lower()

    def refuses(self, cell: BenchmarkCell, arch: str) -> str:
        """Return the reason why it cannot compute a cell; empty if it can."""
        if cell.cache == "int8":
            return "its documentation names bf16, fp16 and fp8_e4m3 caches only"
        if _major(arch) not in (9, 10, 12):
            return "it has kernels for compute capability 9, 10 and 12 only"
        if cell.block_size not in (16, 32, 64, 128):
            return "it reads pages of 16, 32, 64 or 128 tokens"
        return "" if cell.head_size % 16 == 0 and cell.head_size <= 256 else "its head_size is 16 to 256 in steps of 16"

    def code(self, cell: BenchmarkCell) -> Hashable:
        """Return a key of the code that it compiles for a cell."""
        return "trtllm", cell.cache, cell.block_size, cell.head_size, cell.group

    def prepare(self, inputs: BenchmarkInputs, device: Any) -> Prepared:
        """Allocate a workspace and return the function, ready to run."""
        from flashinfer.decode import trtllm_batch_decode_with_kv_cache

        cell, caches = inputs.cell, inputs.caches(self.form)
        workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=inputs.query.device)

        def compute() -> torch.Tensor:
            return trtllm_batch_decode_with_kv_cache(
                query=inputs.query,
                kv_cache=caches,
                workspace_buffer=workspace,
                block_tables=inputs.block_tables,
                seq_lens=inputs.seq_lens,
                max_seq_len=cell.context,
                bmm1_scale=cell.head_size**-0.5 * inputs.k_scale,
                bmm2_scale=inputs.v_scale,
                kv_layout=self.layout,
                backend="auto",
            )

        return Prepared(compute, {"kernels": "trtllm_batch_decode", "backend": "auto", "kv_layout": self.layout})


@dataclass(frozen=True)
class Wrapper(Way):
    """The class ``BatchDecodeWithPagedKVCacheWrapper``: a kernel for CUDA cores, or a prefill kernel of one query."""

    kernels: str
    """Kernels to use: "fa2" or "fa3" on tensor cores, or "cuda cores"."""
    layout: str

    @property
    def label(self) -> str:
        """Name of the kernels and the layout."""
        return f"wrapper {self.kernels} {self.layout}"

    @property
    def form(self) -> str:
        """Layout of the cache that it reads."""
        return self.layout.lower()

    def refuses(self, cell: BenchmarkCell, arch: str) -> str:
        """Return the reason why it cannot compute a cell; empty if it can."""
        if cell.cache == "int8":
            return "FlashInfer's decode reads no int8 cache"
        if self.kernels == "fa3" and (cell.cache != "bf16" or _major(arch) != 9):
            return "fa3 is for compute capability 9 and caches of the query's dtype"
        if self.kernels == "cuda cores" and cell.group not in (1, 2, 3, 4, 8):
            return "its kernel for CUDA cores takes groups of 1, 2, 3, 4 or 8 query heads"
        return ""

    def code(self, cell: BenchmarkCell) -> Hashable:
        """Return a key of the code that it compiles for a cell."""
        return self.kernels, cell.cache, cell.head_size

    def prepare(self, inputs: BenchmarkInputs, device: Any) -> Prepared:
        """Plan the cell and return the wrapper, ready to run."""
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper

        cell, caches, where = inputs.cell, inputs.caches(self.form), inputs.query.device
        tensor_cores = self.kernels != "cuda cores"
        wrapper = BatchDecodeWithPagedKVCacheWrapper(
            torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=where),
            self.layout,
            use_tensor_cores=tensor_cores,
            backend=self.kernels if tensor_cores else "auto",
        )
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
        scale = {} if cell.cache == "bf16" else {"k_scale": inputs.k_scale}
        config = {"kernels": self.kernels, "use_tensor_cores": tensor_cores, "kv_layout": self.layout}
        return Prepared(lambda: wrapper.run(inputs.query, caches, **scale), config, factor=inputs.v_scale)


def _major(arch: str) -> int:
    """Return the major compute capability, for example 9 for ``"sm_90"``."""
    return arch_number(arch) // 10
