"""Overheads of the tuner: ``python -m benchmarks.tuner_speed``.

They are those of enumerating, compiling, checking, storing and looking up configurations. Each figure has a target, in
wall-clock seconds on an idle computer; compilation also has its CPU seconds, which other load changes less.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from workbench import ops
from workbench.attention.ops.named_case import NamedCase
from workbench.base.trials.store import Store
from workbench.launch import devices
from workbench.ops.declared.op import op
from workbench.ops.op import Op
from workbench.ops.tensors import RunTensors
from workbench.ops.tensors.inputs import randn
from workbench.ops.tuned import lookup
from workbench.ops.variant import Check, Config, Restriction, TorchVariant
from workbench.toolchain import nvrtc_client
from workbench.tuning.bench.results import timed
from workbench.tuning.bench.spaces import SHIPPED
from workbench.tuning.search.space import Space
from workbench.tuning.tuner import tune

KERNELS = 200
ROWS = 1_000_000
_MEASURED = 200
_LOOKUPS = 20_000


@dataclass(frozen=True)
class Figure:
    """One measured cost in ``unit``; ``aim`` is the target that it should not exceed."""

    what: str
    value: float
    unit: str
    aim: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """True if the value does not exceed the aim."""
        return self.value <= self.aim

    def __str__(self) -> str:
        verdict = "" if self.ok else "   MISSED"
        note = f"; {self.note}" if self.note else ""
        return f"{self.what:62}{self.value:>9.2f} {self.unit:2} (aim {self.aim:g} {self.unit}{note}){verdict}"


def run(*, kernels: int = KERNELS, rows: int = ROWS) -> tuple[Figure, ...]:
    """Measure every cost, in a temporary home folder.

    Args:
        kernels: number of configurations that are compiled.
        rows: number of rows in the store.
    """
    with tempfile.TemporaryDirectory() as folder, _home(folder):
        overheads = (overhead(Path(folder), isolation) for isolation in ("none", "process"))
        compiled = (*compilation(kernels), *simulation(Path(folder), kernels), large_problem(Path(folder), kernels))
        return (enumeration(), *compiled, *overheads, *store(Path(folder), rows), call_path())


def enumeration(values: int = 10) -> Figure:
    """Time the enumeration of the legal points among ``values ** 6`` under three rules."""
    parameters = {name: tuple(range(1, values + 1)) for name in "ABCDEF"}
    rules = (
        Restriction("divides", "A % B == 0", lambda c, p: c["A"] % c["B"] == 0),
        Restriction("product", "C * D <= 12", lambda c, p: c["C"] * c["D"] <= 12),
        Restriction("sum", "D + E + F == 12", lambda c, p: c["D"] + c["E"] + c["F"] == 12),
    )
    seconds = min(timed(lambda: len(Space(parameters, rules))) for _ in range(5))
    return Figure(f"enumerate a constrained space of {values**6:,} points", seconds * 1e3, "ms", 50)


def compilation(count: int = KERNELS) -> tuple[Figure, Figure]:
    """Time the compilation of configurations of CUDA paged attention on two threads, and again from the cache."""
    op = ops.get("paged_attention")
    variant, case = op.variant("cuda_thread_group"), op.case("llama-3-8b")
    chosen: dict[tuple, tuple] = {}
    space = Space.of(variant, case)
    for config in space.sample(len(space), random.Random(0)):
        problem = case.problem(config)
        chosen.setdefault(variant.code_key(config, problem), (config, problem))
    work = list(chosen.values())[:count]

    def compile_all() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda pair: variant.kernels(pair[0], pair[1], "sm_80"), work))

    first, cpu = _seconds_and_cpu(compile_all)
    again = timed(compile_all)
    what = f"{len(work)} configurations of cuda_thread_group"
    return (
        Figure(f"compile {what} on 2 threads", first, "s", 40, cpu),
        Figure(f"the same {len(work)} from the cache", again, "s", 1),
    )


def simulation(folder: Path, count: int = KERNELS) -> tuple[Figure, Figure, Figure]:
    """Time checking configurations of CUDA paged attention on two threads, and tuning them, also from the store."""
    op = ops.get("paged_attention")
    variant, case = op.variant("cuda_thread_group"), op.case("llama-3-8b")
    space, sim = Space.of(variant, case), devices.get("sim")
    chosen = space.sample(count, random.Random(0))

    def check(config: dict) -> bool:
        problem = case.problem(config)
        tensors = case.inputs(problem)
        variant.run(config, problem, tensors, sim)
        return case.check(tensors.out).ok

    def check_all() -> None:
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(check, chosen))

    def predict_all() -> None:
        store = folder / "predicted.sqlite"
        tune(op, case, variant, "sim", strategy="random", budget=count, store=store, record=False)

    with _cache(folder / "checked"):
        checked, cpu_checked = _seconds_and_cpu(check_all)
    with _cache(folder / "predicted"):
        predicted, cpu_predicted = _seconds_and_cpu(predict_all)
        again = timed(predict_all)
    what = f"{len(chosen)} configurations of cuda_thread_group"
    return (
        Figure(f"compile and check {what}", checked, "s", 25, cpu_checked),
        Figure(f"tune {what}, with predictions", predicted, "s", 40, cpu_predicted),
        Figure(f"the same {len(chosen)} from the store", again, "s", 1),
    )


def large_problem(folder: Path, count: int = KERNELS) -> Figure:
    """Time tuning a 4096 x 4096 convolution that is checked on a small image and predicted from a sample of blocks."""
    convolution = op(_convolved, name="convolution")
    for name, size in _IMAGES.items():
        convolution.case(name, image=randn(*size), weights=randn(15, 15))
    convolution.cuda(
        SHIPPED / "convolution.cu",
        tune={
            "block_size_x": (16, 32, 64, 128), "block_size_y": (1, 2, 4, 8), "tile_size_x": (1, 2, 3, 4),
            "tile_size_y": (1, 2, 3, 4), "read_only": (0, 1), "use_padding": (0, 1),
        },
        where=[
            "64 <= block_size_x * block_size_y <= 512",
            "4 * (block_size_x * tile_size_x + 46) * (block_size_y * tile_size_y + 14) <= 49152",  # shared memory
        ],
        sizes=lambda image, weights: {"height": image.shape[0] - 14, "width": image.shape[1] - 14},
        grid=("cdiv(width, block_size_x * tile_size_x)", "cdiv(height, block_size_y * tile_size_y)"),
        block=("block_size_x", "block_size_y"),
        args=("out", "image"),
        macros={
            "image_height": "height", "image_width": "width", "filter_height": 15, "filter_width": 15,
            "unrolled_rows": 1,  # a fully unrolled filter takes up to twelve seconds to compile
        },
        constants={"weights": "weights"},
    )  # fmt: skip

    def predict_all() -> None:
        run = tune(
            convolution, "large", device="sim", strategy="random", budget=count, store=folder / "large.sqlite",
            record=False, sample=16, judged_on="small",
        )  # fmt: skip
        assert all(trial.ok for trial in run.trials), run

    with _cache(folder / "large"):
        seconds, cpu = _seconds_and_cpu(predict_all)
    what = f"tune {count} configurations of a 4096 x 4096 convolution"
    return Figure(what, seconds, "s", 90, f"by a sample of blocks; {cpu}")


_IMAGES = {"small": (78, 142), "large": (4110, 4110)}


def _convolved(image: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(image[None, None], weights[None, None])[0, 0]


def overhead(folder: Path, isolation: str = "none", count: int = _MEASURED) -> Figure:
    """Time a configuration whose kernel takes no time: it is sent, checked, and committed to disk three times.

    The time is from the first result to the last, without the start of a process.
    """

    def each(attempt: int) -> float:
        ended: list[float] = []
        tune(
            _idle_op(count),
            device="sim",
            store=folder / f"{isolation}{attempt}.sqlite",
            progress=lambda progress: ended.append(time.perf_counter()),
            record=False,
            isolation=isolation,
        )
        return (ended[-1] - ended[0]) / (count - 1)

    what = f"the tuner's own part of one measurement, isolation={isolation!r}"
    return Figure(what, min(map(each, range(3))) * 1e3, "ms", 5)


def store(folder: Path, rows: int = ROWS) -> tuple[Figure]:
    """Time opening a store of ``rows`` rows and looking one up."""
    path = folder / "rows.sqlite"
    key = _fill(path, rows)

    def open_and_ask() -> None:
        with Store(path) as opened:
            assert opened.get(key) is not None

    seconds = min(timed(open_and_ask) for _ in range(5))
    return (Figure(f"open a store of {rows:,} rows and look one up", seconds * 1e3, "ms", 50),)


def call_path(count: int = _LOOKUPS) -> Figure:
    """Time the lookup of a tuned configuration that each call of an op makes."""
    op = ops.get("paged_attention")
    problem = op.case("llama-3-8b").problem({"BLOCK_SIZE": 16})

    def look() -> None:
        for _ in range(count):
            lookup("paged_attention", "cuda_thread_group", problem, "sim")

    look()
    seconds = min(timed(look) for _ in range(7))
    return Figure("look up a tuned configuration on an op's call path", seconds / count * 1e6, "µs", 3)


def _seconds_and_cpu(work: Callable[[], object]) -> tuple[float, str]:
    """Return wall-clock seconds and a text with the CPU time, that of the compiler's processes included."""
    nvrtc_client.stop()  # the CPU time of its processes is known only after they have ended
    cpu = sum(os.times()[:4])
    seconds = timed(work)
    nvrtc_client.stop()
    return seconds, f"{sum(os.times()[:4]) - cpu:.1f} s of CPU time"


def _cache(folder: Path) -> contextlib.AbstractContextManager:
    """Use a folder as the cache of compilations."""
    return mock.patch.dict(os.environ, WORKBENCH_CACHE=str(folder))


def _home(folder: str) -> contextlib.AbstractContextManager:
    return mock.patch.dict(os.environ, WORKBENCH_HOME=folder, WORKBENCH_CACHE=f"{folder}/cache")


@dataclass(frozen=True)
class _IdleProblem:
    dtype: str = "float32"
    layout: str = "flat"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class _IdleTensors(RunTensors):
    """Tensor to be zeroed."""

    out: torch.Tensor


@dataclass(frozen=True)
class _IdleCase(NamedCase):
    """Case whose output is sixty-four zeros."""

    label = "idle"

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> _IdleProblem:
        return _IdleProblem(arch=arch)

    def inputs(self, problem: _IdleProblem, device: str = "cpu") -> _IdleTensors:
        return _IdleTensors(torch.empty(64, device=device))

    def minimum_bytes(self, problem: _IdleProblem) -> int:
        return 4 * 64

    def check(self, out: torch.Tensor) -> Check:
        error = float(out.abs().max())
        return Check(error, 0.0, error == 0.0)

    def reference(self) -> torch.Tensor:
        return torch.zeros(64)


def _first(problem: _IdleProblem) -> dict:
    return {"NUMBER": 0}


def _zero(problem: _IdleProblem, tensors: _IdleTensors) -> None:
    tensors.out.zero_()


def _idle_op(count: int) -> Op:
    variant = TorchVariant(
        op="idle",
        name="torch_zeros",
        idea="does nothing",
        space={"NUMBER": tuple(range(count))},
        restrictions=(),
        layouts=("flat",),
        dtypes=("float32",),
        source=Path(__file__),
        defaults=_first,
        compute=_zero,
    )
    return Op("idle", (variant,), {"idle": _IdleCase("idle")}, function=_zero)


def _fill(path: Path, rows: int) -> str:
    """Write rows like those of a real run, by SQL for speed, and return the key of one of them."""
    import sqlite3

    assert not path.exists(), path  # every row of an existing file would be multiplied too
    with Store(path) as small:
        tune(_idle_op(1), device="sim", store=small, record=False)
    db = sqlite3.connect(path)
    names = [row[1] for row in db.execute("PRAGMA table_info(trials)")]
    others = ", ".join(name for name in names if name not in ("key", "config"))
    db.execute("PRAGMA synchronous = OFF")
    db.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows - 1}) "
        f"INSERT INTO trials (key, config, {others}) "
        f"SELECT lower(hex(randomblob(16))), '{{\"NUMBER\":' || i || '}}', {others} FROM trials, n"
    )
    db.commit()
    (key,) = db.execute("SELECT key FROM trials LIMIT 1 OFFSET ?", (rows // 2,)).fetchone()
    db.close()
    return key


if __name__ == "__main__":
    print(*run(), sep="\n")
