"""Record the launches of Triton kernels in a test suite or a program, for ``python -m benchmarks.proofs``.

As a plugin of pytest, in a suite's folder, it compiles what the tests launch, launches nothing, and adds to FILE:

    LAUNCHES=FILE python -m pytest --simulated-gpu=a100-sxm-80gb -p benchmarks.recorded_launches tests/ops/test_gla.py

No kernel writes its results, so comparisons of tests are made to pass. For a program:
``with recorded_launches.into(FILE): ...``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.toolchain import CompiledKernel


@dataclass(frozen=True)
class RecordedTensor:
    """A tensor of a launch: shape, strides, bytes behind its address in its storage, least and largest integer."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    room: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch: the kernel as cache entries, grid, arguments by name, and the function's constants."""

    kernel: Mapping[str, bytes]
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constants: Mapping[str, Any]

    @property
    def compiled(self) -> CompiledKernel:
        """The kernel that was launched."""
        return CompiledKernel.from_blobs(self.kernel)


def read(path: Path) -> Iterator[RecordedLaunch]:
    """Yield the launches in a file."""
    with path.open("rb") as file, contextlib.suppress(EOFError):
        while True:
            yield pickle.load(file)


@contextlib.contextmanager
def into(path: Path) -> Iterator[None]:
    """Within the block compile what is launched, write it to a file, and launch nothing."""
    from triton.runtime.jit import JITFunction

    from workbench.driver.triton.launcher import Launcher

    run, launch_it = JITFunction.run, Launcher.__call__
    seen: dict[str, set[str]] = {}

    def keep(launch: RecordedLaunch) -> None:
        known = seen.setdefault(launch.compiled.key, set())
        sizes = repr((launch.grid, launch.args))
        if len(known) < _MOST_LAUNCHES and sizes not in known:
            known.add(sizes)
            with path.open("ab") as file:
                pickle.dump(launch, file)

    def recorded(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(function, *args, grid=grid, warmup=True, **kwargs)
        if kernel is not None and not warmup:
            given = _bound(function, args, kwargs)
            keep(_launch(kernel, grid(given) if callable(grid) else grid, given))
        return kernel

    def launched(self: Any, x: int, y: int, z: int, stream: Any, function: Any, *rest: Any) -> None:
        """Record a launch of `wb.simulated_triton` that does not come from a JITFunction, such as Inductor's."""
        values: list[Any] = []
        self._collect(self._kinds, rest[4:], values, iter(self._maps or ()))
        args = dict(zip(self.names, map(_described, values), strict=True))
        keep(RecordedLaunch(self.compiled(function).to_blobs(), (x, y, z), args, self.configuration(())))

    JITFunction.run, Launcher.__call__ = recorded, launched
    try:
        yield
    finally:
        JITFunction.run, Launcher.__call__ = run, launch_it


def _bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the function by name, with its defaults."""
    own = {name: value for name, value in kwargs.items() if name in function.arg_names}
    bound = inspect.signature(function.fn).bind(*args, **own)
    bound.apply_defaults()
    return dict(bound.arguments)


def _launch(kernel: Any, grid: Sequence[int], given: Mapping[str, Any]) -> RecordedLaunch:
    from workbench.driver.triton.kernel import compiled_of, parameter_names

    compiled = compiled_of(kernel.src, kernel.metadata, kernel.asm["ptx"])
    values = list(_passed(kernel.src.signature.values(), given.values()))
    names = parameter_names(kernel.src, kernel.metadata)
    constants = {
        name: given[name] for name, kind in kernel.src.signature.items()
        if kind == "constexpr" and isinstance(given.get(name), int | float | str | None)
    }  # fmt: skip
    args = dict(zip(names, map(_described, values), strict=True))
    return RecordedLaunch(compiled.to_blobs(), tuple(map(int, grid)), args, constants)


def _passed(kinds: Any, values: Any) -> Iterator[Any]:
    """Yield what the PTX gets as parameters."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple):
            yield from _passed(kind, value)
        elif kind.startswith("tensordesc"):
            sizes = [*value.shape, *value.strides]
            yield from (value.base, *sizes, value.padding == "nan", bool(value.round_f32_to_tf32), *sizes)
        elif kind != "constexpr":
            yield value


def _described(value: Any) -> Any:
    while not hasattr(value, "untyped_storage") and hasattr(value, "base"):
        value = value.base
    if not hasattr(value, "untyped_storage"):
        return value
    room = value.untyped_storage().nbytes() - value.storage_offset() * value.itemsize
    dtype, low, high = str(value.dtype).removeprefix("torch."), None, None
    if dtype in ("int32", "int64") and 0 < value.numel() < 1 << 20:
        low, high = int(value.min()), int(value.max())
    return RecordedTensor(dtype, tuple(value.shape), tuple(value.stride()), room, low, high)


_MOST_LAUNCHES = 4
"""Launches of the same code with other sizes that are kept."""
_COMPARISONS = (
    ("torch", "allclose", True), ("torch.testing", "assert_close", None), ("fla.utils", "assert_close", None),
    ("test.utils", "assert_verbose_allclose", None), ("test.utils", "assert_verbose_allclose_percent", None),
)  # fmt: skip
"""Functions by which tests compare results, and what they return."""
_OPEN = contextlib.ExitStack()


def pytest_collection() -> None:
    """Let comparisons pass, before tests import them."""
    for module, name, result in _COMPARISONS:
        with contextlib.suppress(ImportError):
            setattr(importlib.import_module(module), name, lambda *args, result=result, **kwargs: result)


def pytest_runtest_call() -> None:
    """Begin to record at the first test."""
    if os.environ.get("LAUNCHES"):
        _OPEN.enter_context(into(Path(os.environ.pop("LAUNCHES"))))


def pytest_unconfigure() -> None:
    """End it."""
    _OPEN.close()
