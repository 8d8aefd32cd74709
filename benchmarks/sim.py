"""Times of the PTX machine on attention, beside other ways to run kernels without a GPU: ``python -m benchmarks.sim``.

All figures of a result come from one run on one machine: trust the ratios rather than the seconds.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import blocks, long_kernel, tensor_products, tiles
from benchmarks.kernelbench import SOLUTIONS_PER_HOUR, time_per_solution
from workbench import ops, ptx
from workbench.base.options import json_option, tell, without
from workbench.driver.torch_device.library import installed_torch
from workbench.errors import MissingToolError, WorkbenchError, WrongResultError
from workbench.ops.variant import Case, Variant
from workbench.tuning.bench.results import timed

CUDA, TRITON = "cuda_thread_group", "triton_online_softmax"
CHECKOUT = Path(__file__).parents[1]
_REPEATS = 40
_MODES = {
    "bare, 1 core": {"threads": 1},
    "bare, 2 cores": {"threads": 2},
    "statistics, 1 core": {"threads": 1, "statistics": True},
    "all checks, 1 core": {"threads": 1, "checks": True},
    "statistics and all checks, 1 core": {"threads": 1, "statistics": True, "checks": True},
    "on elements of a ring, 1 core": {"threads": 1, "exact": True},
    "infinities and NaN followed, 1 core": {"numerics": ptx.NumericsLog(errors=False)},
    "compared with float64, 1 core": {"numerics": True},
}
_PEER_TIMEOUT_SECONDS = 900
_JUDGES, _CANDIDATES = 2, 12
CANDIDATES_PER_HOUR = 45_000
"""Target of the judge on two cores, in candidates for the softmax per hour."""


@dataclass(frozen=True)
class Row:
    """Time of one measured item; ``ratio`` compares it with ``baseline``.

    ``shadow_ratio`` is the state that checks keep about the buffers, in bytes per byte of the buffers.
    """

    what: str
    seconds: float
    instructions: int | None = None
    baseline: str = ""
    ratio: float | None = None
    shadow_ratio: float | None = None

    @property
    def rate(self) -> float | None:
        """Millions of warp instructions per second; None if they are not counted."""
        return None if self.instructions is None else self.instructions / self.seconds / 1e6


@dataclass(frozen=True)
class SimBenchmark:
    """Result of `run` on ``problem``; every row's output passed its error bound."""

    problem: str
    rows: tuple[Row, ...]

    def row(self, what: str) -> Row:
        """Return the row of a name."""
        return next(row for row in self.rows if row.what == what)

    def to_json(self) -> str:
        """Return the rows as JSON."""
        rows = [dataclasses.asdict(row) | {"million_instructions_per_second": row.rate} for row in self.rows]
        return json.dumps({"problem": self.problem, "rows": rows}, indent=2)

    def __str__(self) -> str:
        lines = [self.problem, f"{'':44}{'ms':>12}{'M warp-instr/s':>16}  ratio"]
        for row in self.rows:
            rate = "" if row.rate is None else f"{row.rate:.1f}"
            ratio = "" if row.ratio is None else f"{row.ratio:.1f}x {row.baseline}"
            if row.shadow_ratio is not None:
                ratio += f"; {row.shadow_ratio:.2f} bytes of shadow state per byte of the buffers"
            digits = 3 if row.seconds > 1e-4 else 6
            lines.append(f"{row.what:44}{row.seconds * 1e3:>12,.{digits}f}{rate:>16}  {ratio}")
        return "\n".join(lines)


def run(
    context: int = 512, *, peers: bool = True, repeats: int = _REPEATS, candidates: int = _CANDIDATES
) -> SimBenchmark:
    """Time fp16 paged attention of 4 sequences x 8 heads x 128 elements, with ``context`` tokens in pages of 16.

    Args:
        context: cached tokens per sequence.
        peers: True also runs Triton's interpreter and Numba's CUDA simulator (about a minute at 512 tokens).
        repeats: runs of each kind on the machine; the fastest counts, because other load slowed down the rest.
        candidates: number of candidates for a softmax that each of two judges judges; 0 omits that row, and that of
            solutions in KernelBench's format.

    Raises:
        MissingToolError: if Numba is missing and ``peers`` is True.
        WrongResultError: if an output misses its bound; nothing is reported then.
    """
    if peers and importlib.util.find_spec("numba") is None:
        raise MissingToolError(
            'Numba is not installed: python -m pip install -e ".[peers]", or --skip-peers (peers=False)'
        )
    op = ops.get("paged_attention")
    case = op.case("small", num_heads=8, num_kv_heads=8, head_size=128, seq_lens=(context,) * 4)
    rows: list[Row] = []
    for name, title in ((CUDA, "CUDA"), (TRITON, "Triton")):
        start = _machine(op.variant(name), case)
        # In turn, so that other load affects all of them.
        rounds = [[start(**options) for options in _MODES.values()] for _ in range(repeats)]
        rows += _compared(title, dict(zip(_MODES, zip(*rounds, strict=True), strict=True)))
    rows += _tiles(repeats)
    rows += _blocks(repeats)
    rows += _front_end(repeats)
    rows += _tensor_products(repeats)
    rows += _simulated_driver(repeats)
    rows += _launch_overhead()
    rows += _triton_programs(peers, repeats)
    rows += [_judging(candidates)] if candidates else []
    torch = installed_torch()
    if candidates and torch is not None and torch.problem is None:  # KernelBench's format needs the simulated GPU
        rows += _solutions(candidates)
    if peers:
        rows.append(_against(_triton_interpreter(op.variant(TRITON), case), "Triton kernel, bare, 1 core", rows))
        rows.append(_against(_numba_simulator(case), "CUDA kernel, bare, 1 core", rows))
    return SimBenchmark(f"paged attention, {case.label}, 8 heads of 128, pages of 16", tuple(rows))


def _compared(title: str, reports: dict[str, tuple[ptx.LaunchReport, ...]]) -> list[Row]:
    """Return one row per mode of a kernel; the first is the baseline of the others."""
    rows: list[Row] = []
    for what, runs in reports.items():
        best = min(runs, key=lambda report: report.seconds)
        row = Row(f"{title} kernel, {what}", best.seconds, best.instructions)
        if rows:
            row = dataclasses.replace(row, baseline=f"the time of {rows[0].what}", ratio=row.seconds / rows[0].seconds)
        if best.has_checks:
            row = dataclasses.replace(row, shadow_ratio=best.shadow_bytes / best.buffer_bytes)
        rows.append(row)
    return rows


def _machine(variant: Variant, case: Case) -> Callable[..., ptx.LaunchReport]:
    """Return a function that runs the variant's default configuration on the PTX machine and checks its output."""
    config = variant.default_config(case.problem())
    problem = case.problem(config)
    tensors = case.inputs(problem)
    compiled = variant.kernels(config, problem, "sm_80", machine_code=False)[0]
    kernel = ptx.Program.from_text(compiled.ptx).kernels[compiled.name]
    launch = variant.launch(config, problem, tensors)
    scratch = [None for parameter in compiled.parameters if parameter.scratch]
    shared_bytes = launch.shared_bytes or compiled.shared_bytes - compiled.static_shared_bytes

    def start(**options: Any) -> ptx.LaunchReport:
        report = kernel.launch(
            launch.grid, launch.block, [*launch.arguments, *scratch], shared_bytes=shared_bytes, **options
        )
        check = case.check(tensors.out)
        if not check.ok and not options.get("exact"):  # elements are no numbers
            raise WrongResultError(f"{variant} on {case.label}: {check}")
        return report

    return start


def _tiles(repeats: int) -> list[Row]:
    """Time matrix products that go through shared memory: bare, with all checks, and on elements of a ring."""
    rows = []
    for name, modes in tiles.measure(max(1, repeats // 4)).items():
        bare, instructions = modes.pop("bare")
        plain = f"{name}, bare, 1 core"
        rows.append(Row(plain, bare, instructions))
        for mode, (seconds, _) in modes.items():
            rows.append(Row(f"{name}, {mode}, 1 core", seconds, instructions, f"the time of {plain}", seconds / bare))
    return rows


def _front_end(repeats: int) -> list[Row]:
    """Time parsing and decoding the PTX text of a long kernel, the first time and from the cache."""
    text = long_kernel.ptx_text()
    fresh, programs = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        program = ptx.Program(text)
        count = sum(len(program[name].decoded.code) for name in program)
        fresh.append(time.perf_counter() - start)
        programs.append(program)  # kept alive, so that freeing it is not timed
    ptx.Program.from_text(text)
    again = timed(lambda: ptx.Program.from_text(text))
    title = f"parse and decode {count:,} PTX instructions"
    return [Row(title, min(fresh)), Row("the same text again in the process", again)]


def _blocks(repeats: int) -> list[Row]:
    """Time a small block and a barrier, bare and with all checks, on one core."""
    bare: dict[str, Row] = {}
    rows: list[Row] = []
    for what, checks, seconds in blocks.measure(repeats):
        row = Row(f"{what}, {'all checks' if checks else 'bare'}", seconds)
        plain = bare.setdefault(what, row)
        if checks:
            row = dataclasses.replace(row, baseline="the time of it bare", ratio=seconds / plain.seconds)
        rows.append(row)
    return rows


def _tensor_products(repeats: int) -> list[Row]:
    """Time matrix instructions and a whole product beside torch's, per multiply-add, and the moves of their tiles."""
    found = tensor_products.measure(3 * repeats)
    seconds, work = found.pop("torch")
    what = f"torch's float32 product of {tensor_products.SIZE}^3, 1 core"
    baseline, each = "the time of torch's per multiply-add", seconds / work
    rows = [Row(what, seconds)]
    for name, (one, multiplied) in found.items():
        rows.append(Row(name, one, baseline=baseline, ratio=one / multiplied / each))
    moves = tensor_products.measure_moves(3 * repeats)
    moved = moves[tensor_products.MOVED]
    rows += [
        Row(name, one, baseline=f"the time of {tensor_products.MOVED}", ratio=one / moved)
        for name, one in moves.items()
    ]
    return rows


def _simulated_driver(repeats: int) -> list[Row]:
    """Time a launch and a copy through PyCUDA on the simulated driver; no rows if PyCUDA is not installed."""
    if importlib.util.find_spec("pycuda") is None:
        return []
    found = _subprocess("benchmarks.simulated_driver", str(repeats))
    rows = []
    for what, plain in (("launch", "launch of a small kernel"), ("copy", "copy of 256 MiB")):
        seconds, bare = found[f"pycuda_{what}"], found[what]
        baseline = f"the time of {plain} ({(seconds - bare) * 1e6:+,.0f} µs)"
        rows += [Row(plain, bare), Row(f"{plain}, through PyCUDA", seconds, baseline=baseline, ratio=seconds / bare)]
    return rows


def _launch_overhead() -> list[Row]:
    """Time the host's part of an eager launch on a GPU; no rows if PyCUDA is not installed."""
    if importlib.util.find_spec("pycuda") is None:
        return []
    found = _subprocess("benchmarks.launch_overhead")
    baseline = found.pop("torch.empty")
    rows = [Row("torch.empty, host time", baseline)]
    for variant, seconds in found.items():
        title, what = f"launch of {variant}, host time", "the time of torch.empty"
        rows.append(Row(title, seconds, baseline=what, ratio=seconds / baseline))
    return rows


def _triton_programs(peers: bool, repeats: int) -> list[Row]:
    """Time programs that Triton's own JIT launches, on all cores, without compilation.

    With peers, also time them in Triton's interpreter.
    """
    ours = _subprocess("benchmarks.triton_programs", str(repeats), TRITON_INTERPRET="0")
    cuda, small = ours.pop("small CUDA launch"), ours.pop("small Triton launch")
    launch, baseline = "launch of a small kernel through load_cuda", "the time of one through load_cuda"
    rows = [Row(launch, cuda), Row("launch of a small kernel by Triton", small, None, baseline, small / cuda)]
    theirs = _subprocess("benchmarks.triton_programs", TRITON_INTERPRET="1") if peers else {}
    for name, seconds in ours.items():
        rows.append(Row(f"Triton program, {name}", seconds))
        if name in theirs:
            ratio = theirs[name] / seconds
            rows.append(Row(f"{name} under TRITON_INTERPRET=1", theirs[name], None, "slower than the program", ratio))
    return rows


def _judging(candidates: int) -> Row:
    """Time a candidate for a softmax, with a judge on each of two cores; the ratio compares the rate with the aim."""
    module = "benchmarks.judging"
    with ThreadPoolExecutor(_JUDGES) as pool:
        shares = [(str(1000 * index), str(candidates)) for index in range(_JUDGES)]
        found = list(pool.map(lambda share: _subprocess(module, *share), shares))
    if any(one["right"] != one["count"] for one in found):
        raise WrongResultError(f"the judge was wrong about a softmax: {found}")
    rate = sum(one["count"] / one["seconds"] for one in found)
    baseline = f"{CANDIDATES_PER_HOUR:,} candidates per hour ({3600 * rate:,.0f})"
    return Row("judge a candidate for a softmax, 2 cores", 1 / rate, None, baseline, 3600 * rate / CANDIDATES_PER_HOUR)


def _solutions(count: int) -> list[Row]:
    """Time a small solution in KernelBench's format on all cores; the ratio compares the rate with the aim."""
    found = time_per_solution(count)
    rate = 3600 / found.seconds
    baseline = f"{SOLUTIONS_PER_HOUR:,} solutions per hour ({rate:,.0f})"
    return [
        Row("judge a KernelBench solution, all cores", found.seconds, None, baseline, rate / SOLUTIONS_PER_HOUR),
        Row("judge a KernelBench solution, CPU time", found.cpu_seconds),
    ]


def _against(peer: Row, ours: str, rows: list[Row]) -> Row:
    mine = next(row for row in rows if row.what == ours)
    return dataclasses.replace(peer, baseline=f"slower than {ours}", ratio=peer.seconds / mine.seconds)


def _triton_interpreter(variant: Variant, case: Case) -> Row:
    config = variant.default_config(case.problem())
    arguments = (variant.name, json.dumps(case.to_dict()), json.dumps(config))
    result = _subprocess("benchmarks.triton_interpreter", *arguments, TRITON_INTERPRET="1")
    if not result["ok"]:
        raise WrongResultError(f"{variant} under TRITON_INTERPRET=1: error {result['max_error']:.1e}")
    return Row("TRITON_INTERPRET=1, the same Triton kernel", result["seconds"])


def _numba_simulator(case: Case) -> Row:
    import numpy as np

    tensors = case.inputs(case.problem())
    arrays = {
        name: getattr(tensors, name).numpy()
        for name in ("query", "key_cache", "value_cache", "block_tables", "seq_lens")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inputs.npz"
        np.savez(path, **arrays, scale=tensors.scale, expected=case.reference().numpy())
        result = _subprocess("benchmarks.numba_simulator", str(path), NUMBA_ENABLE_CUDASIM="1")
    if not result["max_error"] < 1e-3:
        raise WrongResultError(f"Numba's simulator: error {result['max_error']:.1e}")
    return Row("Numba's CUDA simulator, one thread per token", result["seconds"])


def _subprocess(module: str, *arguments: str, **environment: str) -> dict:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=_PEER_TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise WorkbenchError(f"{module} failed: {reason[0]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


@click.command()
@click.option("--context", default=512, show_default=True, help="Cached tokens per sequence.")
@without("peers", "Leave out Triton's interpreter and Numba's simulator.")
@json_option
def main(as_json: bool, **options: Any) -> None:
    """Time the PTX machine beside TRITON_INTERPRET=1 and Numba's CUDA simulator, on the same attention."""
    tell(run(**options), as_json)


if __name__ == "__main__":
    main()
