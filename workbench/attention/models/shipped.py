"""What the package ships of its model: the checkpoint, and how it was trained."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import torch

from workbench.attention.models import checkpoint
from workbench.attention.models.gpt import GPT
from workbench.attention.models.tokenizer import Tokenizer

FOLDER = Path(__file__).parents[1] / "recorded" / "gpt"


def load_gpt(
    path: str | Path | None = None, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> tuple[GPT, Tokenizer]:
    """The shipped model and its tokenizer, or those of a checkpoint that ``workbench train-gpt`` wrote.

    Raises:
        CheckpointError: see `workbench.attention.models.checkpoint.load`.
    """
    return checkpoint.load(path or FOLDER / "gpt.safetensors", dtype=dtype, device=device)


def training_record() -> dict[str, Any]:
    """How the shipped checkpoint was trained: source, licence, sizes, seed, date, time, loss curve, held-out loss."""
    return json.loads((FOLDER / "training.json").read_text())


def held_out_documents() -> dict[str, str]:
    """The documents by name that the shipped checkpoint was not trained on (Python's own text, licence PSF-2.0)."""
    return json.loads(gzip.decompress((FOLDER / "held_out.json.gz").read_bytes()))
