"""The running example's commands: ``workbench train-gpt`` and the benchmarks of attention, caches and the model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from workbench.base.options import device_option, json_option, tell, tell_on_the_way, without
from workbench.base.terminal import say


@click.command("train-gpt")
@click.option("--out", default="gpt", show_default=True, type=click.Path(file_okay=False), help="Folder to write to.")
@click.option(
    "--steps", default=None, type=click.IntRange(min=1), help="Optimizer steps (default: the shipped model's)."
)
@click.option("--seed", default=0, show_default=True, help="Of the first weights and the order of the text.")
def train_gpt(out: str, steps: int | None, seed: int) -> None:
    """Train the small model of workbench.attention.models on the text that this Python ships: 15 to 20 minutes of CPU
    time.

    Writes gpt.safetensors, training.json (the record) and held_out.json.gz (what it was not trained on).
    """
    from workbench.attention.models.train import Training, train

    plan = Training(seed=seed) if steps is None else Training(seed=seed, steps=steps)
    say(f"wrote {train(Path(out), plan, say)}")


@click.command("attention")
@device_option
@click.option("--peers", is_flag=True, help="Also torch's SDPA, FlexAttention, FlashInfer, xformers, where installed.")
@click.option("--minutes", default=8.0, show_default=True, help="Stop after so long; the most telling cells go first.")
@click.option("--out", type=click.Path(dir_okay=False), help="The JSON file; one that is there is gone on with.")
@click.option("--model", help="Without a GPU: the one to predict for (default: h200).")
@click.option("--block-size", type=int, help="Tokens per page (default: 16, then 1, 32 and 64 too).")
@json_option
def attention(block_size: int | None, as_json: bool, **options: Any) -> None:
    """Paged attention against the speed at which this GPU reads memory; without a GPU the times are predicted.

    Interrupt it whenever you like: what was found is kept.
    """
    from workbench.attention.bench.paged_attention import grid, run

    result = run(cells=grid(block_size), progress=tell_on_the_way, **options)
    say(result.ledger.to_document() if as_json else str(result))
    if result.ended == "stopped":
        sys.exit(130)
    if not result.all_correct:
        sys.exit(1)


@click.command("kvcache")
@click.option("--rounds", default=200, show_default=True, help="Times that each operation is timed at each size.")
@json_option
def kvcache(as_json: bool, **options: Any) -> None:
    """The block manager at 1,000 to 1,000,000 blocks: allocate, append, fork and free should cost the same."""
    from workbench.attention.bench.kvcache import run

    tell(run(**options), as_json)


@click.command("flash-attention")
@click.argument("measured", metavar="MEASURED.csv")
@click.option("--model", default="h100-sxm", show_default=True, help="The GPU to predict for, of sm_90.")
@click.option("--clock-mhz", type=float, help="The clock of its multiprocessors (default: the model's).")
@json_option
def flash_attention(measured: str, as_json: bool, **options: Any) -> None:
    """Predicted times of attention for Hopper beside FlashAttention-3's, measured elsewhere.

    The file has the columns batch, seqlen, heads, head_size, causal (1 or 0) and measured_us.
    """
    from workbench.attention.bench.flash_attention import run

    result = run(measured, progress=lambda row: tell_on_the_way(f"{row.shape}: {row.predicted_us:,.0f} µs"), **options)
    tell(result, as_json)


@click.command("generate")
@click.option("--new-tokens", default=160, show_default=True, help="Tokens that each sequence generates.")
@without("peers", "Leave out transformers' batched generate on the same weights.")
@json_option
def generate(as_json: bool, **options: Any) -> None:
    """The small model over every cache: tokens per second, bytes, waste, and growth with length; and the engine beside
    transformers' batched generate (extra hf)."""
    from workbench.attention.bench.generate import run

    tell(run(**options), as_json)


@click.command("perplexity")
@click.option("--windows", "num_windows", type=click.IntRange(min=2), help="Windows of text (default: all there are).")
@json_option
def perplexity(as_json: bool, **options: Any) -> None:
    """Tell what a quantized cache does to the small model: perplexity for every dtype and scale, with intervals."""
    from workbench.attention.bench.perplexity import run

    tell(run(**options), as_json)
