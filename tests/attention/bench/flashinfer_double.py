"""FlashInfer without a GPU: its functions with their own signatures, computed by torch on the pages that it is given.

They hold a caller to what the real ones document, and count the kernels that an argument's form would add. Signatures
are those of flashinfer-python 0.6.1 and 0.7.2.post1 (`test_attention_peers_long.py` compares them).
"""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

from workbench.attention.ops.paged_attention.reference import attend

VERSIONS = ("0.6.1", "0.7.2.post1")
extra_kernels: list[str] = []
"""What would have run beside the attention."""


def attention(query, keys, values, tables, seq_lens, scale):
    """``[num_seqs, num_heads, head_dim]`` float32 from pages ``[num_pages, page_size, num_kv_heads, head_dim]``."""
    out = []
    for seq, length in enumerate(seq_lens.tolist()):
        pages = tables[seq].long()
        key, value = (
            cache.view(torch.uint8)[pages].view(cache.dtype).flatten(0, 1)[:length].double() for cache in (keys, values)
        )
        out.append(attend(query[seq].double(), key, value, scale=scale))
    return torch.stack(out).float()


def as_nhd(cache, kv_layout):
    assert kv_layout in ("NHD", "HND")
    assert cache.is_contiguous()
    return cache if kv_layout == "NHD" else cache.transpose(1, 2).contiguous()


def zeroed(workspace):
    assert workspace.dtype == torch.uint8
    assert not workspace.any(), "must be initialized to 0 for its first use"
    workspace.fill_(1)  # what a run leaves there


class Wrapper:
    """What both versions of the wrapper do alike."""

    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        use_tensor_cores=False,
        paged_kv_indptr_buffer=None,
        paged_kv_indices_buffer=None,
        paged_kv_last_page_len_buffer=None,
        backend="auto",
        jit_args=None,
    ):
        zeroed(float_workspace_buffer)
        assert backend in (("fa2", "fa3") if use_tensor_cores else ("auto",))
        self.layout, self.planned = kv_layout, None

    def _plan(self, indptr, indices, last_page_len, heads, kv_heads, head_dim, page_size, *, q_data_type, kv_data_type):
        for tensor in (indptr, indices, last_page_len):
            assert tensor.dtype == torch.int32
        counts = indptr.diff()
        assert int(indptr[0]) == 0
        assert len(indices) == int(indptr[-1])
        assert len(set(counts.tolist())) == 1, "the double takes sequences of as many pages each"
        self.seq_lens = (counts - 1) * page_size + last_page_len
        self.tables = indices.view(len(counts), -1)
        self.planned = (heads, kv_heads, head_dim, page_size, q_data_type, kv_data_type)

    def _run(self, q, paged_kv_cache, k_scale, v_scale):
        heads, kv_heads, head_dim, page_size, q_dtype, kv_dtype = self.planned
        keys, values = (as_nhd(cache, self.layout) for cache in paged_kv_cache)
        assert q.shape == (len(self.tables), heads, head_dim)
        assert keys.shape[1:] == values.shape[1:] == (page_size, kv_heads, head_dim)
        assert (q.dtype, keys.dtype, values.dtype) == (q_dtype, kv_dtype, kv_dtype)
        scale = head_dim**-0.5
        if k_scale is not None:
            if not isinstance(k_scale, float):
                extra_kernels.append("k_scale")
            scale *= k_scale
        out = attention(q, keys, values, self.tables, self.seq_lens, scale)
        if v_scale is not None and not (isinstance(v_scale, float) and v_scale == 1.0):
            extra_kernels.append("v_scale")
            out *= v_scale
        return out.to(q.dtype)


def trtllm(query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale, bmm2_scale, kv_layout):
    assert isinstance(kv_cache, tuple), "a list would be taken for one tensor"
    keys, values = (as_nhd(cache, kv_layout) for cache in kv_cache)
    assert keys.shape[1] in (16, 32, 64, 128), "Invalid page_size"
    assert block_tables.dtype == seq_lens.dtype == torch.int32
    assert block_tables.shape[0] == query.shape[0]
    assert int(seq_lens.max()) <= max_seq_len <= block_tables.shape[1] * keys.shape[1]
    extra_kernels.extend("scale" for scale in (bmm1_scale, bmm2_scale) if not isinstance(scale, float))
    return (attention(query, keys, values, block_tables, seq_lens, bmm1_scale) * bmm2_scale).to(query.dtype)


class OldWrapper(Wrapper):
    def plan(
        self,
        indptr,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        pos_encoding_mode="NONE",
        window_left=-1,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        data_type=None,
        sm_scale=None,
        rope_scale=None,
        rope_theta=None,
        non_blocking=True,
        block_tables=None,
        seq_lens=None,
        fixed_split_size=None,
        disable_split_kv=False,
    ):
        shape = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._plan(indptr, indices, last_page_len, *shape, q_data_type=q_data_type, kv_data_type=kv_data_type)

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
        enable_pdl=None,
        window_left=None,
        sinks=None,
        q_len_per_req=1,
    ):
        return self._run(q, paged_kv_cache, k_scale, v_scale)


class NewWrapper(Wrapper):
    def plan(
        self,
        indptr,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        *deprecated_positional_args,
        **kwargs,
    ):
        assert not deprecated_positional_args, "to be removed"
        self._plan(indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **kwargs)

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
        enable_pdl=None,
        window_left=None,
        sinks=None,
        q_len_per_req=None,
        skip_softmax_threshold_scale_factor=None,
        kv_cache_sf=None,
    ):
        return self._run(q, paged_kv_cache, k_scale, v_scale)


def old_trtllm(
    query,
    kv_cache,
    workspace_buffer,
    block_tables,
    seq_lens,
    max_seq_len,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    window_left=-1,
    out=None,
    out_dtype=None,
    o_sf_scale=None,
    o_sf_vec_size=None,
    sinks=None,
    kv_layout="HND",
    enable_pdl=None,
    backend="auto",
    q_len_per_req=1,
    o_scale=1.0,
    mask=None,
    max_q_len=None,
    cum_seq_lens_q=None,
):
    assert backend == "auto"
    return trtllm(
        query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale, bmm2_scale, kv_layout
    )


def new_trtllm(
    query,
    kv_cache,
    workspace_buffer,
    block_tables,
    seq_lens,
    max_seq_len,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    window_left=-1,
    out=None,
    out_dtype=None,
    o_sf_scale=None,
    o_sf_vec_size=None,
    sinks=None,
    kv_layout="HND",
    enable_pdl=None,
    backend="auto",
    q_len_per_req=1,
    o_scale=1.0,
    mask=None,
    max_q_len=None,
    cum_seq_lens_q=None,
    skip_softmax_threshold_scale_factor=None,
    kv_cache_sf=None,
    uses_shared_paged_kv_idx=True,
    lse=None,
    return_lse=False,
    bmm1_scale_log2=None,
    multi_ctas_kv_counter_buffer=None,
    enable_block_sparse_attention=False,
    cp_world=1,
    cp_rank=0,
    causal_seqlens_kv_global=None,
    bf16q_fp8kv_transform_mode=None,
    request_order=None,
    request_order_plan=None,
):
    assert backend == "auto"
    return trtllm(
        query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, bmm1_scale, bmm2_scale, kv_layout
    )


DOUBLES = {VERSIONS[0]: (OldWrapper, old_trtllm), VERSIONS[1]: (NewWrapper, new_trtllm)}
"""Of each version BatchDecodeWithPagedKVCacheWrapper and trtllm_batch_decode_with_kv_cache."""


def install_modules(monkeypatch, package, version, names):
    """Empty modules that can be imported, of a package that is installed in a version."""
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    installed = importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.version", lambda name: version if name == package else installed(name))
    return modules


def install(monkeypatch, version):
    """Put the double where ``import flashinfer`` finds it."""
    wrapper, decode = DOUBLES[version]
    modules = install_modules(monkeypatch, "flashinfer-python", version, ("flashinfer", "flashinfer.decode"))
    modules["flashinfer"].BatchDecodeWithPagedKVCacheWrapper = wrapper
    modules["flashinfer.decode"].trtllm_batch_decode_with_kv_cache = decode
    monkeypatch.setattr("workbench.attention.bench.paged_attention.peers.flash_infer._WORKSPACE_BYTES", 64)
    extra_kernels.clear()
