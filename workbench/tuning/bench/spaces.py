"""Launches of the kernels of measured search spaces, each described by a small file beside its source.

``NAME.toml`` in a folder of sources describes the kernel of the measured space NAME::

    source = "convolution.cu"
    kernel = "convolution_kernel"
    grid = ["cdiv(4096, block_size_x * tile_size_x)", "cdiv(4096, block_size_y * tile_size_y)"]
    block = ["block_size_x", "block_size_y"]
    arguments = [
        {dtype = "float32", size = "4096 * 4096"},
        {dtype = "float32", size = "4110 * 4110", fill = "normal"},
        20000000,
    ]
    constants = {d_filter = {dtype = "float32", size = 225, fill = "uniform"}}

Sizes are expressions of the tunables (:mod:`workbench.ops.expressions`), which the source gets as macros. An array is
filled with "zeros" (the default), "normal" or "uniform" numbers, or read from a ``.npy`` file: ``{file = "v.npy"}``. A
whole number is an ``int``, another one a ``float``. ``shared_bytes`` is dynamic shared memory. ``macros`` are further
macros; one with the name of a tunable replaces it. That is for a tunable on which the measured times do not depend, as
the kernel that was measured did not use it.

A table names a GPU and says under which conditions its times were measured::

    [measured."NVIDIA A100-PCIE-40GB"]
    clock_mhz = 765
    same_time = ["read_only"]

``clock_mhz`` is the clock of its multiprocessors, if that was not its device model's. ``same_time`` are tunables on
which the time of this kernel does not depend. Configurations that differ in these alone are repeated measurements:
where they disagree, the GPU changed between them, for example its clock, and none of them is used.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from workbench.analysis.prediction.counting import launch_counts
from workbench.base.home import PACKAGE, cuda_sources
from workbench.base.trials.values import Counts
from workbench.errors import ArgumentError, CompileTimeout, StoreError, UnknownKeyError
from workbench.launch.sim import Simulator
from workbench.ops.expressions import Expression
from workbench.ptx.sample import blocks_of
from workbench.toolchain import CompiledKernel, compile_cuda, disk_cache, nvrtc
from workbench.toolchain.nvrtc_client import DEFAULT_SECONDS, compile_limit

SHIPPED = cuda_sources() / "spaces"
"""Folder of our own kernels with the design and the tunables of published ones."""

SAMPLE = 8
"""Blocks of a launch that are run."""

_FILLS = ("zeros", "normal", "uniform")
_KEYS = ("source", "kernel", "grid", "block", "arguments", "constants", "macros", "shared_bytes", "measured")
_CONDITIONS = ("clock_mhz", "same_time")


@dataclass(frozen=True)
class MeasuringConditions:
    """Conditions under which a space was measured on one GPU.

    ``clock_mhz`` is the clock of the multiprocessors, None for that of the device model. Configurations that differ
    only in the tunables ``same_time`` take the same time.
    """

    clock_mhz: float | None = None
    same_time: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PublishedSpace:
    """A kernel whose configurations can be counted. ``path`` is the file that describes it."""

    name: str
    path: Path
    record: Mapping[str, Any]
    _arrays: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def source(self) -> str:
        """Text of the kernel's source."""
        return (self.path.parent / self.record["source"]).read_text()

    def conditions(self, gpu: str) -> MeasuringConditions:
        """Return the conditions under which the times of a GPU were measured, as far as the description has them."""
        given = self.record.get("measured", {}).get(gpu, {})
        return MeasuringConditions(given.get("clock_mhz"), tuple(given.get("same_time", ())))

    def compile(self, config: Mapping[str, Any], arch: str) -> CompiledKernel:
        """Return the compiled kernel of one configuration, with its machine code. Raises CompileError."""
        threads = int(np.prod(self._shape("block", config)))
        macros = {**config, **self.record.get("macros", {})}
        return compile_cuda(
            self.source, self.record["kernel"], arch=arch, macros=macros, threads_per_block=threads,
            dynamic_shared_bytes=self._value("shared_bytes", self.record.get("shared_bytes", 0), config),
            machine_code=True,
        )  # fmt: skip

    def counts(self, config: Mapping[str, Any], arch: str, seconds: float = DEFAULT_SECONDS) -> Counts:
        """Return the counts of one configuration for a prediction (see `launch_counts`), from a sample of its blocks.

        The counts are kept on disk beside the compilations; so is the fact that ``seconds`` were too few to compile it.
        Raises CompileTimeout at that limit, CompileError for a source that the compiler refuses.
        """
        key = self._key(config, arch)
        kept = disk_cache.load(key) or {}
        if "counts" not in kept and float(kept.get("tried", 0)) < seconds:
            try:
                with compile_limit(seconds):
                    kept = {"counts": json.dumps(self._count(config, arch)).encode()}
            except CompileTimeout:
                kept = {"tried": str(seconds).encode()}
            disk_cache.store(key, kept)
        if "counts" not in kept:
            raise CompileTimeout(f"NVRTC took longer than {seconds:g} s to compile {self.record['source']}.")
        return json.loads(kept["counts"])

    def _key(self, config: Mapping[str, Any], arch: str) -> str:
        """Return the hash of everything on which the counts depend."""
        files = [self.path.parent / name for name in self._files()]
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        launch = {name: value for name, value in self.record.items() if name != "measured"}
        return disk_cache.content_key(["counts", launch, digests, dict(config), arch, nvrtc.version(), SAMPLE, _code()])

    def _files(self) -> list[str]:
        values = [*self.record["arguments"], *self.record.get("constants", {}).values()]
        return [self.record["source"], *(one["file"] for one in values if isinstance(one, Mapping) and "file" in one)]

    def _count(self, config: Mapping[str, Any], arch: str) -> Counts:
        kernel, sim = self.compile(config, arch), Simulator()
        grid, block = self._shape("grid", config), self._shape("block", config)
        for symbol, value in self.record.get("constants", {}).items():
            sim.write_variable(kernel, symbol, self._padded(kernel, symbol, self._argument(value, config)))
        args = [self._argument(value, config) for value in self.record["arguments"]]
        sample = blocks_of(grid, SAMPLE)
        report = sim.launch(kernel, grid, block, args, statistics=True, sample=sample)
        return launch_counts(report, kernel)

    @staticmethod
    def _padded(kernel: CompiledKernel, symbol: str, value: np.ndarray) -> bytes:
        """Return the bytes of a variable whose first bytes are given, the rest zero."""
        size, content = len(Simulator().read_variable(kernel, symbol)), value.tobytes()
        return content + bytes(size - len(content))

    def _shape(self, name: str, config: Mapping[str, Any]) -> tuple[int, ...]:
        given = self.record[name]
        parts = given if isinstance(given, list) else [given]
        return tuple(self._value(f"{name}[{at}]", one, config) for at, one in enumerate(parts))

    def _value(self, where: str, given: Any, config: Mapping[str, Any]) -> int:
        return int(Expression.of(f"{self.path.name}: {where}", given)(config))

    def _argument(self, given: Any, config: Mapping[str, Any]) -> Any:
        if not isinstance(given, Mapping):
            return given
        if "file" in given:
            key = given["file"]
            if key not in self._arrays:
                self._arrays[key] = np.load(self.path.parent / key, allow_pickle=False)
            return self._arrays[key]
        size, fill = self._value("size", given.get("size", 1), config), given.get("fill", "zeros")
        if fill not in _FILLS:
            raise ArgumentError(f"{self.path.name}: fill", repr(fill), ", ".join(_FILLS), "Or name a file.")
        key = f"{given['dtype']} {size} {fill}"
        if key not in self._arrays:
            self._arrays[key] = _filled(np.dtype(given["dtype"]), size, fill)
        return self._arrays[key]


@cache
def _code() -> str:
    """Return the hash of the package's own code that counts; what only converts counts to times is left out."""
    rooms, later = ("analysis/prediction", "ptx", "toolchain"), ("predict.py", "confidence.py")
    files = [file for room in rooms for file in PACKAGE.glob(f"{room}/*") if file.suffix in (".py", ".so")]
    files = [file for file in files if file.name not in later]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def _filled(dtype: np.dtype, size: int, fill: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if fill == "zeros":
        return np.zeros(size, dtype)
    if dtype in (np.float32, np.float64):
        return rng.standard_normal(size, dtype) if fill == "normal" else rng.random(size, dtype)
    return (rng.standard_normal(size) if fill == "normal" else rng.random(size)).astype(dtype)


def load_space(name: str, folders: list[Path]) -> PublishedSpace:
    """Return the description of space ``name``: ``NAME.toml`` in one of the folders, or in its subfolder of that name.

    Raises UnknownKeyError if there is none, StoreError for a file that describes no launch.
    """
    places = [place / f"{name}.toml" for folder in folders for place in (folder, folder / name)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        remedy = "The docstring of workbench.tuning.bench.spaces describes the file."
        raise UnknownKeyError("space", repr(name), f"one described in {', '.join(map(str, folders))}", remedy)
    try:
        record = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path}: not a TOML file ({error}). The docstring of workbench.tuning.bench.spaces describes the file."
        ) from error
    missing = [key for key in ("source", "kernel", "grid", "block", "arguments") if key not in record]
    unknown = [key for key in record if key not in _KEYS]
    if missing or unknown:
        told = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}"
        raise StoreError(f"{path}: {told}. It holds {', '.join(_KEYS)}; see workbench.tuning.bench.spaces.")
    _check_conditions(path, record.get("measured", {}))
    return PublishedSpace(name, path, record)


def _check_conditions(path: Path, measured: Any) -> None:
    """Raise StoreError for a table ``measured`` that describes no conditions of a GPU."""
    for gpu, given in measured.items() if isinstance(measured, Mapping) else [("", measured)]:
        table = given if isinstance(given, Mapping) else {"": given}
        clock, tunables = table.get("clock_mhz", 1.0), table.get("same_time", [])
        numbers = isinstance(clock, int | float) and clock > 0
        names = isinstance(tunables, list) and all(isinstance(name, str) for name in tunables)
        if not (numbers and names) or set(table) - set(_CONDITIONS):
            raise StoreError(
                f"{path}: measured.{gpu!r} is {given!r}. It may hold clock_mhz, a number above 0, and same_time, a "
                "list of names of tunables; see workbench.tuning.bench.spaces."
            )
