"""A small language model that runs on the caches and kernels of this package.

::

    from workbench.attention.models import load_gpt, stream_text
    model, tokenizer = load_gpt()
    for piece in stream_text(model, tokenizer, "The with statement", max_new_tokens=40):
        print(piece, end="")

The names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.packages import lazily

_LAZY = {
    "CACHES": "workbench.attention.models.caches",
    "CheckpointError": "workbench.attention.models.checkpoint",
    "ContiguousCache": "workbench.attention.models.caches",
    "Engine": "workbench.attention.models.engine",
    "GPT": "workbench.attention.models.gpt",
    "GPTConfig": "workbench.attention.models.gpt",
    "NoCache": "workbench.attention.models.caches",
    "PagedCache": "workbench.attention.models.caches",
    "Sampling": "workbench.attention.models.sampling",
    "beam_search": "workbench.attention.models.beam",
    "decode_case": "workbench.attention.models.decode_step",
    "generate": "workbench.attention.models.generation",
    "held_out_documents": "workbench.attention.models.shipped",
    "load_gpt": "workbench.attention.models.shipped",
    "make_cache": "workbench.attention.models.caches",
    "parallel_samples": "workbench.attention.models.generation",
    "stream": "workbench.attention.models.generation",
    "stream_text": "workbench.attention.models.generation",
    "training_record": "workbench.attention.models.shipped",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.attention.models.beam import beam_search as beam_search
    from workbench.attention.models.caches import CACHES as CACHES
    from workbench.attention.models.caches import ContiguousCache as ContiguousCache
    from workbench.attention.models.caches import NoCache as NoCache
    from workbench.attention.models.caches import PagedCache as PagedCache
    from workbench.attention.models.caches import make_cache as make_cache
    from workbench.attention.models.checkpoint import CheckpointError as CheckpointError
    from workbench.attention.models.decode_step import decode_case as decode_case
    from workbench.attention.models.engine import Engine as Engine
    from workbench.attention.models.generation import generate as generate
    from workbench.attention.models.generation import parallel_samples as parallel_samples
    from workbench.attention.models.generation import stream as stream
    from workbench.attention.models.generation import stream_text as stream_text
    from workbench.attention.models.gpt import GPT as GPT
    from workbench.attention.models.gpt import GPTConfig as GPTConfig
    from workbench.attention.models.sampling import Sampling as Sampling
    from workbench.attention.models.shipped import held_out_documents as held_out_documents
    from workbench.attention.models.shipped import load_gpt as load_gpt
    from workbench.attention.models.shipped import training_record as training_record


__getattr__, __dir__ = lazily(__name__, _LAZY)
