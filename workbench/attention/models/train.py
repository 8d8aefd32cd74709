"""Training of the shipped model on the text of the running Python, for ``workbench train-gpt``.

The result is deterministic for one machine, corpus and number of threads: the seed determines the initial weights and
the order of the windows. Muon (Jordan et al., 2024) optimizes the matrices inside the layers, AdamW the other weights.
"""

from __future__ import annotations

import datetime
import gzip
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional

from workbench.attention.models import checkpoint
from workbench.attention.models.corpus import LICENCE, SOURCE, standard_library_text
from workbench.attention.models.evaluate import token_stream, windows
from workbench.attention.models.gpt import GPT, Attend, GPTConfig
from workbench.attention.models.tokenizer import learn
from workbench.base.packages import replace_file

_CONFIG = GPTConfig()
_MATRIX_RATE, _OTHER_RATE = 5e-3, 3e-3
_WARM_UP, _DECAY_FROM = 40, 0.4


@dataclass(frozen=True)
class Training:
    """Parameters of a training run; the defaults made the shipped checkpoint."""

    steps: int = 2200
    batch: int = 4
    seed: int = 0
    evaluate_every: int = 200


def train(folder: Path, plan: Training, say: Callable[[str], None] = print) -> Path:
    """Train the model and write its files into a folder; return the path of the checkpoint.

    The files are ``gpt.safetensors``, ``training.json`` (the record of the run) and ``held_out.json.gz``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cpu_start = time.process_time()
    corpus = standard_library_text()
    tokenizer = learn(corpus.training.values(), _CONFIG.vocab_size)
    stream = token_stream(tokenizer, corpus.training.values())
    held_out = windows(tokenizer, corpus.held_out.values(), _CONFIG.context_length)
    say(f"{len(stream):,} tokens to train on, {held_out.numel():,} held out, {tokenizer.vocab_size} token ids")

    torch.manual_seed(plan.seed)
    model = GPT(_CONFIG)
    curve = _fit(model, stream, held_out, plan, say)
    path = folder / "gpt.safetensors"
    checkpoint.save(path, model, tokenizer)
    model, _ = checkpoint.load(path)  # record the loss of the written weights, which are rounded
    loss = held_out_loss(model, held_out)
    text_bytes = len(tokenizer.decode_bytes(held_out[:, 1:].flatten().tolist()))
    record = {
        "source": SOURCE,
        "licence": LICENCE,
        "python": platform.python_version(),
        "corpus_sha256": corpus.sha256,
        "training_characters": sum(map(len, corpus.training.values())),
        "training_tokens": len(stream),
        "held_out_documents": sorted(corpus.held_out),
        "held_out_tokens": held_out.numel(),
        "config": asdict(_CONFIG),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "plan": asdict(plan),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu_seconds": round(time.process_time() - cpu_start),
        "held_out_loss": round(loss, 4),
        "held_out_perplexity": round(math.exp(loss), 3),
        "held_out_bits_per_byte": round(loss / math.log(2) * held_out[:, 1:].numel() / text_bytes, 4),
        "curve": curve,
    }
    replace_file(folder / "training.json", json.dumps(record, indent=1) + "\n")
    documents = json.dumps(corpus.held_out, ensure_ascii=False).encode()
    replace_file(folder / "held_out.json.gz", gzip.compress(documents, mtime=0))
    say(f"held-out perplexity {record['held_out_perplexity']}, {record['held_out_bits_per_byte']} bits per byte")
    return path


@torch.inference_mode()
def held_out_loss(model: GPT, held_out: torch.Tensor) -> float:
    """Return the mean cross-entropy in nats per token over windows ``[num_windows, length + 1]``."""
    return torch.stack([_loss(model, part) * len(part) for part in held_out.split(8)]).sum().item() / len(held_out)


def _loss(model: GPT, batch: torch.Tensor) -> torch.Tensor:
    inputs, targets = batch[:, :-1], batch[:, 1:]
    positions = torch.arange(inputs.shape[1]).repeat(len(inputs))
    hidden = model(inputs.reshape(-1), positions, _causal_windows(len(inputs)))
    return functional.cross_entropy(model.logits(hidden), targets.reshape(-1))


def _causal_windows(num_seqs: int) -> Attend:
    """Return causal attention for ``num_seqs`` sequences of equal length in a row, with torch's fused backward."""

    def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.unflatten(0, (num_seqs, -1)).transpose(1, 2) for x in (query, key, value))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)

    return attend


def _fit(
    model: GPT, stream: torch.Tensor, held_out: torch.Tensor, plan: Training, say: Callable[[str], None]
) -> list[dict[str, float]]:
    length = model.config.context_length
    matrices = [weight for name, weight in model.blocks.named_parameters() if weight.dim() == 2]
    others = [model.embedding.weight, *(weight for weight in model.parameters() if weight.dim() == 1)]
    optimizers = [
        torch.optim.Muon(matrices, lr=_MATRIX_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=_OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda step: _rate(step, plan.steps)) for each in optimizers]
    order = torch.Generator().manual_seed(plan.seed)
    curve, losses = [], []
    for step in range(1, plan.steps + 1):
        starts = torch.randint(len(stream) - length, (plan.batch, 1), generator=order)
        loss = _loss(model, stream[starts + torch.arange(length + 1)])
        loss.backward()
        losses.append(loss.item())
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        if step % plan.evaluate_every == 0 or step == plan.steps:
            point = {"step": step, "training": sum(losses) / len(losses), "held_out": held_out_loss(model, held_out)}
            curve.append({name: round(value, 4) for name, value in point.items()})
            say(f"step {step} of {plan.steps}: loss {point['training']:.3f}, held out {point['held_out']:.3f}")
            losses = []
    return curve


def _rate(step: int, steps: int) -> float:
    """Return the fraction of the full learning rate at a step: it rises, stays constant, then falls to zero."""
    return min(1.0, (step + 1) / _WARM_UP, (steps - step) / (steps * (1 - _DECAY_FROM)))
