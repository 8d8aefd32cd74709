"""A small language model that runs on the caches and kernels of this package: the end of the walk::

    from workbench.models import load_gpt, stream_text
    model, tokenizer = load_gpt()
    for piece in stream_text(model, tokenizer, "The with statement", max_new_tokens=40):
        print(piece, end="")

The names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import lazily

_LAZY = {
    "CACHES": "workbench.models.caches",
    "CheckpointError": "workbench.models.checkpoint",
    "ContiguousCache": "workbench.models.caches",
    "Engine": "workbench.models.engine",
    "GPT": "workbench.models.gpt",
    "GPTConfig": "workbench.models.gpt",
    "NoCache": "workbench.models.caches",
    "PagedCache": "workbench.models.caches",
    "Sampling": "workbench.models.sampling",
    "beam_search": "workbench.models.beam",
    "decode_case": "workbench.models.decode_step",
    "generate": "workbench.models.generation",
    "held_out_documents": "workbench.models.shipped",
    "load_gpt": "workbench.models.shipped",
    "make_cache": "workbench.models.caches",
    "parallel_samples": "workbench.models.generation",
    "stream": "workbench.models.generation",
    "stream_text": "workbench.models.generation",
    "training_record": "workbench.models.shipped",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.models.beam import beam_search as beam_search
    from workbench.models.caches import CACHES as CACHES
    from workbench.models.caches import ContiguousCache as ContiguousCache
    from workbench.models.caches import NoCache as NoCache
    from workbench.models.caches import PagedCache as PagedCache
    from workbench.models.caches import make_cache as make_cache
    from workbench.models.checkpoint import CheckpointError as CheckpointError
    from workbench.models.decode_step import decode_case as decode_case
    from workbench.models.engine import Engine as Engine
    from workbench.models.generation import generate as generate
    from workbench.models.generation import parallel_samples as parallel_samples
    from workbench.models.generation import stream as stream
    from workbench.models.generation import stream_text as stream_text
    from workbench.models.gpt import GPT as GPT
    from workbench.models.gpt import GPTConfig as GPTConfig
    from workbench.models.sampling import Sampling as Sampling
    from workbench.models.shipped import held_out_documents as held_out_documents
    from workbench.models.shipped import load_gpt as load_gpt
    from workbench.models.shipped import training_record as training_record


__getattr__, __dir__ = lazily(__name__, _LAZY)
