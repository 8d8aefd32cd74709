"""Operations and bytes of a computation in plain torch, counted while it runs, for comparison with its time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import flop_registry

from workbench.base.dispatch_mode import DispatchMode
from workbench.tuning.bench.results import timed


@dataclass(frozen=True)
class TorchCounts:
    """Counts of the calls to eager torch.

    Attributes:
        flops: operations of matrix products; a multiplication and an addition count two (`torch.utils.flop_counter`).
        bytes_moved: bytes that each call reads (its tensor arguments) and writes (its result), added up. Calls that
            only
            view a tensor move nothing. Caches answer some of it, and a call's own temporary tensors are not seen.
        largest_bytes: size of the largest tensor that was created.
    """

    flops: int
    bytes_moved: int
    largest_bytes: int


def count(function: Callable[..., Any], *arguments: Any, **options: Any) -> TorchCounts:
    """Run ``function`` once and count.

    A fused call that `torch.utils.flop_counter` does not know (attention on a CPU) has no flops, and an op of this
    project is one call: count a torch variant's own function instead.
    """
    with _Products() as products, _Traffic() as traffic:
        function(*arguments, **options)
    return TorchCounts(products.flops, traffic.bytes_moved, traffic.largest_bytes)


def cpu_seconds(function: Callable[..., Any], *arguments: Any, repeats: int = 5, **options: Any) -> float:
    """Return the CPU time of a call on one thread: the median of ``repeats``, after a first call that does not count.

    It is CPU time and not wall time, so that other programs on the machine change it little.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        function(*arguments, **options)
        return statistics.median(
            timed(lambda: function(*arguments, **options), time.thread_time) for _ in range(repeats)
        )
    finally:
        torch.set_num_threads(threads)


class _Products(DispatchMode):
    """Mode that adds up torch's own counts, as its `FlopCounterMode` does, without loading torch's compiler for it."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        counted = flop_registry.get(function._overloadpacket)
        if counted is None:
            with self:
                result = function.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = function(*args, **kwargs)
        if counted is not None:
            self.flops += counted(*args, **kwargs, out_val=result)
        return result


_OVERWRITES = ("copy_", "fill_", "zero_")
"""In-place calls that do not read their target."""


class _Traffic(TorchFunctionMode):
    """Mode that sees every call of a torch function, with its arguments and its result."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_moved = 0
        self.largest_bytes = 0

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        read = list(_tensors((*args, *(kwargs or {}).values())))
        name = function.__name__
        if name == "__setitem__":
            value = args[2]
            self.bytes_moved += 2 * value.nbytes if isinstance(value, torch.Tensor) else 0
            return result
        storages = {tensor.untyped_storage().data_ptr() for tensor in read}
        in_place = name.endswith("_") and not name.endswith("__")
        written = [tensor for tensor in _tensors(result) if in_place or _storage(tensor) not in storages]
        if written:
            read = read[1:] if name in _OVERWRITES else read
            self.bytes_moved += sum(tensor.nbytes for tensor in (*read, *written))
            self.largest_bytes = max(self.largest_bytes, *(tensor.nbytes for tensor in written))
        return result


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
