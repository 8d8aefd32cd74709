"""Commands of the running example: ``workbench train-gpt`` and the benchmarks of attention, caches and the model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from workbench.analysis.device_models import device_model
from workbench.base.packages import checked, device_option, json_option, say, tell, tell_on_the_way, without


@click.command("train-gpt")
@click.option("--out", default="gpt", show_default=True, type=click.Path(file_okay=False), help="Folder to write to.")
@click.option(
    "--steps", default=None, type=click.IntRange(min=1), help="Optimizer steps (default: the shipped model's)."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the initial weights and of the order of the text.")
def train_gpt(out: str, steps: int | None, seed: int) -> None:
    """Train the small model of workbench.attention.models: 15 to 20 minutes of CPU time.

    The text is that which this Python ships. Writes gpt.safetensors, training.json (the record of the training) and
    held_out.json.gz (documents left out of the training text).
    """
    from workbench.attention.models.train import Training, train

    plan = Training(seed=seed) if steps is None else Training(seed=seed, steps=steps)
    say(f"wrote {train(Path(out), plan, say)}")


@click.command("attention")
@device_option
@click.option(
    "--peers", is_flag=True, help="Also time torch's SDPA, FlexAttention, FlashInfer, xformers, where installed."
)
@click.option("--minutes", default=8.0, show_default=True, help="Time limit; the most informative cells run first.")
@click.option("--out", type=click.Path(dir_okay=False), help="JSON file for the results; an existing one is continued.")
@click.option("--model", callback=checked(device_model), help="Without a GPU: the GPU to predict for (default: h200).")
@click.option("--block-size", type=int, help="Tokens per page (default: 16, then also 1, 32 and 64).")
@json_option
def attention(block_size: int | None, as_json: bool, **options: Any) -> None:
    """Compare paged attention with the speed at which this GPU reads memory; without a GPU, predict the times.

    You can interrupt it at any time: the results so far are kept.
    """
    from workbench.attention.bench.paged_attention import grid, run

    result = run(cells=grid(block_size), progress=tell_on_the_way, **options)
    say(result.ledger.to_document() if as_json else str(result))
    if result.ended == "stopped":
        sys.exit(130)
    if not result.all_correct:
        sys.exit(1)


@click.command("kvcache")
@click.option("--rounds", default=200, show_default=True, help="Number of timings of each operation at each size.")
@json_option
def kvcache(as_json: bool, **options: Any) -> None:
    """Time the block manager at 1,000 to 1,000,000 blocks: allocate, append, fork and free should cost the same."""
    from workbench.attention.bench.kvcache import run

    tell(run(**options), as_json)


@click.command("flash-attention")
@click.argument("measured", metavar="MEASURED.csv")
@click.option(
    "--model",
    default="h100-sxm",
    show_default=True,
    callback=checked(device_model),
    help="The sm_90 GPU to predict for.",
)
@click.option("--clock-mhz", type=float, help="Clock of the multiprocessors in MHz (default: the model's).")
@json_option
def flash_attention(measured: str, as_json: bool, **options: Any) -> None:
    """Predict times of attention on Hopper beside those of FlashAttention-3, measured elsewhere.

    The file has the columns batch, seqlen, heads, head_size, causal (1 or 0) and measured_us (microseconds).
    """
    from workbench.attention.bench.flash_attention import run

    result = run(measured, progress=lambda row: tell_on_the_way(f"{row.shape}: {row.predicted_us:,.0f} µs"), **options)
    tell(result, as_json)


@click.command("generate")
@click.option("--new-tokens", default=160, show_default=True, help="Tokens that each sequence generates.")
@without("peers", "Leave out transformers' batched generate on the same weights.")
@json_option
def generate(as_json: bool, **options: Any) -> None:
    """Run the small model over every cache: tokens per second, bytes, waste, and growth with length.

    Also times the engine beside transformers' batched generate (extra hf).
    """
    from workbench.attention.bench.generate import run

    tell(run(**options), as_json)


@click.command("perplexity")
@click.option("--windows", "num_windows", type=click.IntRange(min=2), help="Number of windows of text (default: all).")
@json_option
def perplexity(as_json: bool, **options: Any) -> None:
    """Measure the small model's perplexity with a quantized cache, for every dtype and scale, with intervals."""
    from workbench.attention.bench.perplexity import run

    tell(run(**options), as_json)
