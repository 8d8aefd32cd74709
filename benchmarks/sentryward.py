"""``wb.prove`` beside SentryWard, which verifies PTX for fixed sizes: ``python -m benchmarks.sentryward PROGRAM``.

PROGRAM is ``sentryward`` of an environment of its own (``pip install sentryward==0.1.1``). Seconds are CPU seconds.
"""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import workbench as wb
from workbench.base.terminal import say
from workbench.ptx.parse import parse

KERNELS = Path(__file__).parents[1] / "tests" / "proof" / "kernels.cu"
TILES = {"grid": "blocks", "block": 64, "args": {"out": "float32[blocks, 64]", "x": "float32[blocks, tiles, 256]"}}
TURNED = {
    "grid": ("cdiv(cols, 16)", "cdiv(rows, 16)"), "block": (16, 16),
    "args": {"out": "float32[cols, rows]", "x": "float32[rows, cols]"},
}  # fmt: skip
SUM = {"grid": "cdiv(n, 128)", "block": 128, "args": {"out": "float32[cdiv(n, 128)]", "x": "float32[n]"}}
PRODUCT = {
    "grid": ("cdiv(N, 8)", "cdiv(M, 8)"), "block": (8, 8),
    "args": {"c": "float32[M, N]", "a": "float32[M, K]", "b": "float32[K, N]"},
}  # fmt: skip
ADD = {"grid": "cdiv(n, 256)", "block": 256, "args": dict.fromkeys("xyz", "float32[n]")}
CASES: tuple[tuple[str, str, int, dict[str, Any], tuple[int, ...], Mapping[str, int]], ...] = (
    ("vector add, 4,096 elements", "add", 0, ADD, (16, 1, 1), {"n": 4096}),
    ("the same, 1,048,576 elements", "add", 0, ADD, (4096, 1, 1), {"n": 1 << 20}),
    ("transpose, 60 x 90", "turned", 0, TURNED, (6, 4, 1), {"rows": 60, "cols": 90}),
    ("the same, 960 x 1,440", "turned", 0, TURNED, (90, 60, 1), {"rows": 960, "cols": 1440}),
    ("transpose without its barrier", "turned", 1, TURNED, (6, 4, 1), {"rows": 60, "cols": 90}),
    ("sum of a block, 1,000 elements", "block_sum", 0, SUM, (8, 1, 1), {"n": 1000}),
    ("sum of a block, a barrier missing", "block_sum", 1, SUM, (8, 1, 1), {"n": 1000}),
    ("matmul in tiles, 24 x 24 x 32", "product", 0, PRODUCT, (3, 3, 1), {"M": 24, "N": 24, "K": 32}),
    ("two stages of `cp.async`, 64 tiles", "staged", 0, TILES, (1, 1, 1), {"tiles": 64}),
    ("the same, 4,096 tiles", "staged", 0, TILES, (1, 1, 1), {"tiles": 4096}),
    ("two stages, a barrier missing, 64 tiles", "staged", 2, TILES, (1, 1, 1), {"tiles": 64}),
    ("three stages of `cp.async`, 64 tiles", "ringed", 0, TILES, (1, 1, 1), {"tiles": 64}),
    ("three stages, a wait too late, 64 tiles", "ringed", 1, TILES, (1, 1, 1), {"tiles": 64}),
)  # fmt: skip


def theirs(program: str, kernel: Any, block: Any, grid: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[str, float]:
    """Return SentryWard's answer for one launch, with CPU seconds."""
    x, y = block if isinstance(block, tuple) else (block, 1)
    compiled = kernel.compiled
    named = zip(compiled.parameter_names, parse(compiled.ptx).entries[compiled.name].parameters, strict=True)
    given = {
        "schema": "spverify.kernel-input/v1", "entry": compiled.name,
        "launch": {"grid_dim": grid, "block_dim": [x, y, 1], "cluster_dim": [1, 1, 1], "dynamic_shared_bytes": 0},
        "arguments": [{"parameter": one.name, "type": "u32", "value": sizes[n]} for n, one in named if n in sizes],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(compiled.ptx)
        (Path(folder) / "input.json").write_text(json.dumps(given))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [program, "kernel.ptx", "--input", "input.json", "--timeout", "300"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(ran.stdout)["result"]
    return answer, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.argument("program")
def main(program: str) -> None:
    """Print a table in Markdown of both answers."""
    say("| kernel | SentryWard, these sizes | CPU s | `wb.prove`, all sizes | CPU s |\n|---|---|---|---|---|")
    for words, name, slip, family, grid, sizes in CASES:
        kernel = getattr(wb.load_cuda(KERNELS, device="sim", macros={"SLIP": slip}), name)
        proof = wb.prove(kernel, **family)
        answer, seconds = theirs(program, kernel, family["block"], grid, sizes)
        say(f"| {words} | {answer.replace('_', ' ')} | {seconds:.1f} | {proof.status} | {proof.seconds:.1f} |")


if __name__ == "__main__":
    main()
