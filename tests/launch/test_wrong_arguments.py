"""Every kind of wrong value at every parameter of the public functions: an error of ours, or a right result.

Nothing else may come out: no AttributeError of None, no refusal of a schema by torch, nothing of NumPy.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sampling import long_if

import workbench as wb
from workbench.attention.kvcache import ContiguousKVCache, PagedKVCache
from workbench.attention.ops.causal_attention import causal_attention
from workbench.attention.ops.causal_attention_backward import causal_attention_backward
from workbench.attention.ops.contiguous_attention import contiguous_attention
from workbench.attention.ops.copy_blocks import copy_blocks
from workbench.attention.ops.gather_cache import gather_cache
from workbench.attention.ops.paged_attention import paged_attention
from workbench.attention.ops.reshape_and_cache import reshape_and_cache
from workbench.attention.ops.swap_blocks import swap_blocks
from workbench.errors import WorkbenchError

SOURCE = 'extern "C" __global__ void ones(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }'
SIZE, HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, BLOCKS = 2, 4, 2, 64, 16, 8

NAMES = (
    "paged_attention", "causal_attention", "causal_attention_backward", "contiguous_attention", "reshape_and_cache",
    "gather_cache", "copy_blocks", "swap_blocks", "load_cuda", "load_ptx", "check_kernel", "trace_kernel", "variants",
    "compare", "tune", "PagedKVCache", "ContiguousKVCache",
)  # fmt: skip


def wrong_values() -> list[Any]:
    return [
        None, 2.5, -1, 0, True, float("nan"), 2**70, "x", "", b"x", "\x1b[31m", [], (), {}, object(), lambda: 1,
        np.zeros(3), torch.zeros(()), torch.zeros(1, 1, 1, 1, 1), torch.zeros(3, dtype=torch.int64),
        torch.zeros(2, 2, dtype=torch.bool), torch.zeros(2, 3, 4, device="meta"),
        torch.full((2, 3), -5, dtype=torch.int32), torch.full((2,), 2**30, dtype=torch.int32),
    ]  # fmt: skip


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@functools.cache
def functions() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Each with arguments that are right."""
    cache = random(BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_SIZE)
    query, new = random(SIZE, HEADS, HEAD_SIZE), random(SIZE, KV_HEADS, HEAD_SIZE)
    tables = torch.arange(6, dtype=torch.int32).reshape(SIZE, 3)
    lengths = torch.tensor([33, 20], dtype=torch.int32)
    both = {"key_cache": cache, "value_cache": cache.clone(), "layout": "nhd"}
    paged = {**both, "block_tables": tables, "seq_lens": lengths}
    pages = {"pairs": torch.tensor([[0, 1]])}
    sizes = {"num_layers": 1, "num_kv_heads": KV_HEADS, "head_size": HEAD_SIZE, "device": "cpu"}
    some = random(1, 2, 8, 16)
    kernel = wb.load_cuda(SOURCE, device="sim").ones
    run = {"kernel": kernel, "grid": 1, "block": 32, "args": [np.zeros(32, np.float32), 32]}
    once = {"budget": 1, "record": False, "store": "tuned.db"}
    torch_copy = wb.variants("copy_blocks")[0]
    return {
        "paged_attention": (paged_attention, {"query": query, **paged}),
        "causal_attention": (causal_attention, {"query": some, "key": some, "value": some}),
        "causal_attention_backward": (
            causal_attention_backward,
            {"query": some, "key": some, "value": some, "output": some, "lse": some[..., 0], "d_output": some},
        ),
        "contiguous_attention": (
            contiguous_attention,
            {"query": query, "kv_cache": random(2, SIZE, KV_HEADS, 40, HEAD_SIZE), "seq_lens": lengths},
        ),
        "reshape_and_cache": (
            reshape_and_cache,
            {"key": new, "value": new.clone(), **both, "slot_mapping": torch.tensor([3, 40])},
        ),
        "gather_cache": (gather_cache, paged),
        "copy_blocks": (copy_blocks, {"key_caches": [cache], "value_caches": [cache.clone()], **pages}),
        "swap_blocks": (swap_blocks, {"source_caches": [cache], "target_caches": [cache.clone()], **pages}),
        "load_cuda": (wb.load_cuda, {"source_or_path": SOURCE, "device": "sim"}),
        "load_ptx": (wb.load_ptx, {"text_or_path": kernel.compiled.ptx, "device": "sim"}),
        "check_kernel": (wb.check_kernel, run),
        "trace_kernel": (wb.trace_kernel, run),
        "PagedKVCache": (PagedKVCache, {**sizes, "num_blocks": BLOCKS, "block_size": BLOCK_SIZE}),
        "ContiguousKVCache": (ContiguousKVCache, {**sizes, "max_batch_size": SIZE, "max_seqlen": 40}),
        "variants": (wb.variants, {"op": "copy_blocks"}),
        "trace": (wb.trace, {"op": "copy_blocks", "variant": "cuda_vectors"}),
        "tune": (wb.tune, {"op": "copy_blocks", "variants": "cuda_vectors", "device": "sim", "quick": True, **once}),
        "check": (wb.check, {"op": "copy_blocks", "variants": "cuda_vectors", "seeds": 1}),
        "compare": (wb.compare, {"op": "copy_blocks", "variants": [torch_copy.name], "device": "sim"}),
    }


@pytest.mark.parametrize("name", [*NAMES, *(long_if(True, name) for name in ("trace", "check"))])
def test_a_wrong_value_is_refused_by_name_or_does_no_harm(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # a name may be a file's
    function, right = functions()[name]
    function(**right)
    tried, foreign = 0, []
    parameters = inspect.signature(function).parameters.values()
    for parameter in [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]:
        for value in wrong_values():
            tried += 1
            try:
                function(**{**right, parameter: value})
            except WorkbenchError:
                pass
            except Exception as error:
                foreign.append(f"{parameter}={value!r:.40}: {type(error).__name__}: {error}")
    assert tried >= len(wrong_values())
    assert not foreign, "\n".join(foreign)


def test_the_message_names_the_argument_what_came_and_what_is_allowed() -> None:
    function, right = functions()["paged_attention"]
    for name, value, words in (
        ("seq_lens", None, "seq_lens: got None (NoneType); allowed: a torch.Tensor"),
        ("variant", 2.5, "variant: got 2.5 (float); allowed: a string"),
        ("config", "x", "config: got 'x' (str); allowed: a mapping or None"),
        ("scale", "a", "scale: got 'a' (str); allowed: a number or None"),
    ):
        with pytest.raises(WorkbenchError) as caught:
            function(**{**right, name: value})
        assert str(caught.value).startswith(words)
