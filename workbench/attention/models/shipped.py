"""The checkpoint that the package ships, the record of its training, and the held-out text."""

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
    """Load the shipped model and its tokenizer, or a checkpoint that ``workbench train-gpt`` wrote.

    Raises:
        CheckpointError: if the file cannot be used; see `workbench.attention.models.checkpoint.load`.
    """
    return checkpoint.load(path or FOLDER / "gpt.safetensors", dtype=dtype, device=device)


def training_record() -> dict[str, Any]:
    """Return the record of the shipped checkpoint's training.

    It has the source of the text and its licence, the sizes, seed, date, time, loss curve and held-out loss.
    """
    return json.loads((FOLDER / "training.json").read_text())


def held_out_documents() -> dict[str, str]:
    """Return the documents, by name, that the shipped checkpoint was not trained on (Python's text, PSF-2.0)."""
    return json.loads(gzip.decompress((FOLDER / "held_out.json.gz").read_bytes()))
