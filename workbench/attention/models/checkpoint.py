"""Checkpoints: a model and its tokenizer in one safetensors file, which runs no code when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch.overrides import TorchFunctionMode

from workbench.attention.models.gpt import GPT, GPTConfig
from workbench.attention.models.tokenizer import Tokenizer
from workbench.base.packages import replace_file
from workbench.errors import WorkbenchError

FORMAT = "workbench.gpt.1"
_MERGES = "tokenizer.merges"


class CheckpointError(WorkbenchError):
    """A file that is not a checkpoint of this package, or whose weights do not fit; nothing was loaded."""


def save(path: str | Path, model: GPT, tokenizer: Tokenizer, *, dtype: torch.dtype = torch.float16) -> None:
    """Write a checkpoint with its weights in ``dtype``."""
    tensors = {name: weight.detach().to("cpu", dtype).contiguous() for name, weight in model.state_dict().items()}
    tensors[_MERGES] = torch.tensor(tokenizer.merges, dtype=torch.int32).view(-1, 2)
    replace_file(path, serialize(tensors, metadata={"format": FORMAT, "config": json.dumps(asdict(model.config))}))


def load(
    path: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> tuple[GPT, Tokenizer]:
    """Load a model, ready to generate, and its tokenizer.

    Args:
        path: file that `save` or ``workbench train-gpt`` wrote.
        dtype: element type of the weights in memory, and of the model's keys and values; use float32 on a CPU.
        device: where the weights go.

    Raises:
        CheckpointError: if the file does not exist or has another format, or if weights are missing, misshapen, not
            finite or too many.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is not readable as safetensors: {error}. `workbench train-gpt` writes such a file."
        ) from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is a safetensors file of format {metadata.get('format')!r}; allowed: {FORMAT!r}. "
            "Checkpoints of other models do not load here; `workbench train-gpt` writes one that does."
        )
    try:
        config = GPTConfig(**json.loads(metadata["config"]))
        tokenizer = Tokenizer(tensors.pop(_MERGES).tolist())
        with torch.device("meta"), _Unfilled():
            model = GPT(config)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: its sizes or its merges cannot be used: {error}. Train it again.") from error
    wrong = _differences(model, tensors)
    if tokenizer.vocab_size != config.vocab_size:
        wrong.append(f"{_MERGES}: {tokenizer.vocab_size} token ids for a model of {config.vocab_size}")
    if wrong:
        more = "; and more" if len(wrong) > 4 else ""
        raise CheckpointError(f"{path}: {'; '.join(wrong[:4])}{more}. Nothing was loaded.")
    model.load_state_dict({name: weight.to(device, dtype) for name, weight in tensors.items()}, assign=True)
    return model.eval().requires_grad_(False), tokenizer


class _Unfilled(TorchFunctionMode):
    """A mode in which modules skip the initialization of weights.

    On the device "meta" a random initialization has no effect, but imports torch's compiler, which takes seconds.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _differences(model: GPT, tensors: dict[str, torch.Tensor]) -> list[str]:
    """Return a line for each tensor that is missing, misshapen, not finite or unknown as a weight of the model."""
    wrong = []
    for name, weight in model.state_dict().items():
        found = tensors.get(name)
        if found is None or found.shape != weight.shape:
            wrong.append(f"{name}: {'missing' if found is None else tuple(found.shape)}, not {tuple(weight.shape)}")
        elif not (found.is_floating_point() and bool(found.isfinite().all())):
            wrong.append(f"{name}: not finite numbers")
    return wrong + [f"{name}: not a weight of this model" for name in tensors if name not in model.state_dict()]
