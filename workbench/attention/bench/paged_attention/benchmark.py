"""A run of the benchmark: open the ledger, measure or predict the cells of the grid in time, and report the result."""

from __future__ import annotations

import datetime
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.analysis.device_models import DeviceModel, device_model
from workbench.attention.bench.paged_attention import in_flight, report
from workbench.attention.bench.paged_attention.cells import BenchmarkCell, grid
from workbench.attention.bench.paged_attention.contender import Contender, GpuLostError, ours
from workbench.attention.bench.paged_attention.ledger import TIME_IS_UP, Ledger, LedgerRow
from workbench.attention.bench.paged_attention.measured import Measurer
from workbench.errors import ArgumentError
from workbench.launch import devices
from workbench.launch.devices import Device
from workbench.tuning.bench import all_versions, gpu_facts, gpu_state, measure_again, measure_ceiling, result_path

DEFAULT_MODEL = "h200"
STREAMED_BYTES = 4 << 30
"""Bytes read to measure the ceiling; half of the free memory if that is less."""
_STREAMED_STEP = 1 << 20
"""Granularity in 32-bit words of the data that the streaming kernel reads, whatever its configuration."""

Measure = Callable[[BenchmarkCell, Sequence[Contender]], list[LedgerRow]]
"""Function of a cell and contenders that returns a row for each: a `Measurer` or a `Predictor`."""


@dataclass(frozen=True)
class AttentionBenchmark:
    """Result of `run`; ``str`` is the table, ``ended`` is "complete", "time" or "stopped"."""

    ledger: Ledger
    ended: str
    cells_left: int
    plot_path: Path | None = None

    @property
    def all_correct(self) -> bool:
        """True if no contender missed its error bound or failed."""
        return not any(row.outcome in ("wrong", "failed") for row in self.ledger.rows)

    def __str__(self) -> str:
        lines = [report.text(self.ledger)]
        if self.cells_left:
            why = "the time was up" if self.ended == "time" else "the run was stopped"
            lines.append(f"{self.cells_left} cells are left, because {why}.")
        if self.ledger.path is not None:
            again = "; the same command with this --out continues" if self.cells_left else ""
            lines.append(f"Kept in {self.ledger.path}{again}.")
        if self.plot_path is not None:
            lines.append(f"Plot: {self.plot_path}")
        return "\n".join(lines)


def run(
    *,
    device: str = "auto",
    peers: bool = False,
    minutes: float = 8.0,
    out: str | Path | None = None,
    model: str | DeviceModel | None = None,
    cells: Sequence[BenchmarkCell] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> AttentionBenchmark:
    """Measure paged attention on a GPU, or predict it without one.

    Args:
        device: "cuda" measures; "sim" predicts; "auto" is "cuda" where it can run.
        peers: True also times installed libraries; see `workbench.attention.bench.paged_attention.peers`.
        minutes: time limit; the cells run from the most informative to the least.
        out: JSON file, written after every cell; an existing one is continued. Default: a new file in the workbench's
            home. The plot is saved beside it.
        model: on "sim", the GPU to predict for, one of `workbench.analysis.device_models`; default "h200".
        cells: cells to run, in this order; default the whole `grid`.
        progress: function called with one line per cell.

    Returns:
        The result; after Ctrl-C or SIGTERM, that of the cells so far.

    Raises:
        DeviceUnavailableError: if "cuda" is requested and cannot run here.
        ArgumentError: if an argument is invalid, or the file is from another machine.
        UnknownNameError: if a device or model does not exist.
        DeviceLostError: if a kernel made the GPU unusable; the rows so far are in the file.
        WrongResultError: if the streaming kernel reads wrong values, so that there is no ceiling.
    """
    if not minutes > 0:
        raise ArgumentError("minutes", minutes, "more than 0", "A whole grid takes longer than 8 minutes.")
    where = devices.get(device)
    started, budget = time.monotonic(), 60.0 * minutes
    contenders: tuple[Contender, ...] = ours()
    if peers:
        from workbench.attention.bench.paged_attention.peers import PEERS

        contenders += PEERS
    head = {
        "what": "paged attention, one new token per sequence, query and output bfloat16",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "contenders": {one.name: one.about for one in contenders},
    }
    with _stopped_by_signals():
        if where.name == "cuda":
            ledger, measure = _on_gpu(head, out, where, started + budget, budget)
        else:
            ledger, measure = _without(head, out, where, device_model(model or DEFAULT_MODEL), started + budget)
        ended, left = fill(
            ledger, cells or grid(), contenders, measure, lambda: time.monotonic() - started, budget, progress
        )
    return AttentionBenchmark(ledger, ended, left, _draw(ledger))


def fill(
    ledger: Ledger,
    cells: Sequence[BenchmarkCell],
    contenders: Sequence[Contender],
    measure: Measure,
    elapsed: Callable[[], float],
    budget: float,
    progress: Callable[[str], None],
) -> tuple[str, int]:
    """Measure cell after cell and add the rows to the ledger, until ``elapsed`` reaches ``budget`` seconds.

    Returns:
        The reason for the end ("complete", "time" or "stopped") and the number of cells left.
    """
    try:
        for at, cell in enumerate(cells):
            missing = [one for one in contenders if not ledger.has(cell, one.name)]
            if not missing:
                continue
            if elapsed() >= budget:
                return "time", len(cells) - at
            try:
                rows = measure(cell, missing)
            except GpuLostError as error:
                ledger.add(error.rows)
                raise
            in_time = [row for row in rows if row.note != TIME_IS_UP]
            ledger.add(in_time)
            progress(_line(cell, in_time, ledger, elapsed()))
            if len(in_time) < len(rows):
                return "time", len(cells) - at
    except KeyboardInterrupt:
        return "stopped", len(cells) - at
    return "complete", 0


def _line(cell: BenchmarkCell, rows: Sequence[LedgerRow], ledger: Ledger, elapsed: float) -> str:
    timed = [(row.seconds, row) for row in rows if row.seconds]
    best = ""
    if timed:
        _, first = min(timed, key=lambda one: one[0])
        best = f"{first.contender} {report.share(first, ledger.head):.0%}"
    wrong = [f"{row.contender} {row.outcome.upper()}" for row in rows if row.outcome in ("wrong", "failed")]
    basis = ledger.head["basis"]
    return f"{elapsed:5.0f} s  {cell.label:32} {len(timed)} {basis}, best {best}  {' '.join(wrong)}".rstrip()


def _on_gpu(
    head: dict, out: str | Path | None, where: Device, deadline: float, budget: float
) -> tuple[Ledger, Measure]:
    import gc

    import torch

    from workbench.tuning.measuring import GpuClock, gpu_lost

    def free_bytes() -> int:
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    facts, clock = gpu_facts(), GpuClock()
    measurer = Measurer(where, "cuda", clock, time.monotonic, deadline, budget, free_bytes, gpu_lost)
    return measuring(head, _path(out, "measured", facts["gpu"]), facts, measurer, "cuda")


def measuring(
    head: Mapping[str, Any], path: Path | None, facts: Mapping[str, Any], measurer: Measurer, runs_on: str
) -> tuple[Ledger, Measure]:
    """Open the ledger of a machine, and make a function that measures a cell and, after it, the ceiling again.

    Args:
        head: description of the run for the ledger.
        path: file of the ledger; None keeps it in memory.
        facts: result of `workbench.tuning.bench.gpu_facts`.
        measurer: measures the cells.
        runs_on: the workbench's device for the streaming kernel; "sim" is for tests without a GPU.

    Raises:
        WrongResultError: if the streaming kernel reads wrong values.
    """
    import torch

    from workbench.attention.bench.paged_attention.peers import PACKAGES

    versions = all_versions(PACKAGES)
    ledger = Ledger.open({**head, "basis": "measured", "machine": facts, "versions": versions}, path)

    def to_stream() -> torch.Tensor:
        words = min(STREAMED_BYTES, measurer.free_bytes() // 2) // 4
        words = max(words - words % _STREAMED_STEP, _STREAMED_STEP)
        return torch.empty(words, dtype=torch.int32, device=measurer.where).random_()

    if "ceiling" not in ledger.head:
        ceiling = measure_ceiling(measurer.clock, to_stream(), facts["multiprocessors"], device=runs_on)
        ledger.head |= {"ceiling": ceiling.to_dict(), "method": measurer.clock.method}
        ledger.head["bytes_in_flight"] = in_flight.needed_of_gpu(facts["gpu"])
    config = ledger.head["ceiling"]["config"]
    states = ledger.head.setdefault("states", [])

    def measure(cell: BenchmarkCell, contenders: Sequence[Contender]) -> list[LedgerRow]:
        rows = measurer(cell, contenders)
        if all(row.seconds is None for row in rows):
            return rows
        states.append({"cell": cell.label, **gpu_state()})  # at once, while clocks still show the load
        data = to_stream()
        ceiling = measure_again(measurer.clock, data, facts["multiprocessors"], config, device=runs_on)
        return [
            in_flight.noted(replace(row, ceiling=ceiling), one, measurer.device.arch, facts["multiprocessors"])
            for row, one in zip(rows, contenders, strict=True)
        ]

    return ledger, measure


def _without(
    head: dict, out: str | Path | None, where: Device, model: DeviceModel, deadline: float
) -> tuple[Ledger, Measure]:
    from workbench.attention.bench.paged_attention.predicted import Predictor

    head |= {
        "basis": "predicted",
        "machine": {"model": model.name, "arch": model.arch, "counted_on": "PTX machine"},
        "versions": all_versions(),
        "ceiling": {"bytes_per_second": model.dram_bytes_per_second, "source": "published"},
        "method": report.UNKNOWN,
        "bytes_in_flight": in_flight.needed(model),
    }
    ledger = Ledger.open(head, _path(out, "predicted", model.key))
    predictor = Predictor(model, where, deadline=deadline)

    def predict(cell: BenchmarkCell, contenders: Sequence[Contender]) -> list[LedgerRow]:
        rows = zip(predictor(cell, contenders), contenders, strict=True)
        return [in_flight.noted(row, one, model.arch, int(model.multiprocessors)) for row, one in rows]

    return ledger, predict


def _path(out: str | Path | None, basis: str, name: str) -> Path:
    return result_path(f"attention-{basis}", name) if out is None else Path(out)


def _draw(ledger: Ledger) -> Path | None:
    """Save the plot beside the JSON file and return its path; None without times, or without matplotlib."""
    if ledger.path is None or not any(row.seconds for row in ledger.rows):
        return None
    try:
        import matplotlib
    except ModuleNotFoundError:
        return None
    backend = matplotlib.get_backend()
    matplotlib.use("agg")
    try:
        import matplotlib.pyplot as plt

        path = ledger.path.with_suffix(".png")
        plt.close(report.plot(ledger, path))
    finally:
        matplotlib.use(backend)
    return path


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: both end the run and keep the cells so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
