"""Checks for two mistakes around ``@triton.autotune`` that no launch shows by itself.

They are trials that change what they read, and a key without a number that the right configuration depends on. Both are
found by running configurations again on copies of the arguments.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.driver.triton.session import TritonSession

_MOST_BYTES = 256 << 20  # largest size of all arguments together that is copied
_MOST_TRIES = 3  # sets of other numbers tried for one key of a tuner
_MOST_CONFIGS = 8  # configurations compared for each set
_APART = 0.02  # share of the larger value, or of the tensor's mean: more than another order of a sum explains


@dataclass
class _Tuned:
    """One entry of a tuner's cache: the numbers and the arguments with which its configurations were tried."""

    numbers: Mapping[str, Any]
    arguments: _Arguments
    told: list[Mapping[str, Any]] = field(default_factory=list)


_tuned: weakref.WeakKeyDictionary[Any, dict[tuple, _Tuned]] = weakref.WeakKeyDictionary()


def run(session: TritonSession, tuner: Any, original: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run an autotuned kernel as Triton does, and add a note to its launch for each mistake that its results show."""
    given = dict(zip(tuner.arg_names, args, strict=False))
    given |= {name: value for name, value in kwargs.items() if name in tuner.arg_names}
    arguments = None if kwargs.get("warmup") or len(tuner.configs) < 2 else _Arguments.of(given)
    key = _key(tuner, given)
    entry = _tuned.setdefault(tuner, {}).get(key)
    known = key in tuner.cache
    numbers = {name: value for name, value in given.items() if isinstance(value, int | float)}
    if arguments is None or (known and (entry is None or not _is_new(entry, numbers))):
        return original(tuner, *args, **kwargs)
    result = original(tuner, *args, **kwargs)
    trial = _Trial(session, tuner, kwargs)
    if not known:
        _tuned[tuner][key] = _Tuned(numbers, arguments)
        note = _changed_by_trials(trial, arguments, given)
    else:
        assert entry is not None
        entry.told.append(numbers)
        note = _missing_in_key(trial, entry, numbers, arguments, given)
    if note:
        session.note(tuner.base_fn.__name__, f"{_place(tuner)}: {note}")
    return result


def _key(tuner: Any, given: Mapping[str, Any]) -> tuple:
    """Return the key under which Triton's autotuner caches a configuration: its named arguments, then all dtypes."""
    named = [given[name] for name in tuner.keys if name in given]
    return (*named, *(str(value.dtype) for value in given.values() if hasattr(value, "dtype")))


def _is_new(entry: _Tuned, numbers: Mapping[str, Any]) -> bool:
    return len(entry.told) < _MOST_TRIES and numbers not in (entry.numbers, *entry.told)


def _place(tuner: Any) -> str:
    code = tuner.base_fn.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


@dataclass(frozen=True)
class _Arguments:
    """A copy of the arguments of a call, with each memory that tensors lie in copied once."""

    values: Mapping[str, Any]
    memory: Mapping[int, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> _Arguments | None:
        """Copy the arguments; None if they are large, or if anything but a tensor of this process may be written."""
        import torch

        memory: dict[int, Any] = {}
        for value in values.values():
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                storage = value.untyped_storage()
                memory[storage.data_ptr()] = storage
            elif value is not None and not isinstance(value, bool | int | float | str):
                return None
        if sum(storage.nbytes() for storage in memory.values()) > _MOST_BYTES:
            return None
        return cls(values, {address: storage.clone() for address, storage in memory.items()})

    def fresh(self) -> dict[str, Any]:
        """Return the arguments with tensors in memory of their own."""
        import torch

        memory = {address: storage.clone() for address, storage in self.memory.items()}
        return {
            name: torch.empty(0, dtype=value.dtype).set_(
                memory[value.untyped_storage().data_ptr()], value.storage_offset(), value.shape, value.stride()
            )
            if isinstance(value, torch.Tensor)
            else value
            for name, value in self.values.items()
        }


@dataclass(frozen=True)
class _Trial:
    """Launches that the session does not count or report."""

    session: TritonSession
    tuner: Any
    options: Mapping[str, Any]

    def configurations(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the configurations that may run with these arguments, without the chosen one."""
        self.tuner.nargs = dict(given)
        try:
            found = self.tuner.prune_configs(dict(self.options))
        finally:
            self.tuner.nargs = None
        return [one for one in found if one is not self.tuner.best_config][:_MOST_CONFIGS]

    def results(self, config: Any, arguments: _Arguments, *, reset: bool = False) -> dict[str, Any] | None:
        """Return the content of the arguments after a launch of ``config``; None if it fails."""
        values = arguments.fresh()
        named = {**values, **self.options, **config.all_kwargs()}
        others = {name: value for name, value in self.options.items() if name not in values}
        try:
            with self.session.unseen():
                if reset:
                    self.tuner.pre_hook(named, reset_only=True)
                if config.pre_hook is not None:
                    config.pre_hook(named)
                self.tuner.fn.run(**values, **others, **config.all_kwargs())
        except (WorkbenchError, RuntimeError, ValueError, TypeError):
            return None
        return values


def _tensors(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in given.items() if hasattr(value, "untyped_storage"))


def _bits(tensor: Any) -> np.ndarray:
    """Return the elements as integers, which are equal only if the elements are equal to the bit."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return flat.view(kinds[flat.element_size()]).numpy()


def _changed_by_trials(trial: _Trial, arguments: _Arguments, given: Mapping[str, Any]) -> str:
    """Return a note on an argument whose content differs from that after the chosen configuration alone, or ""."""
    alone = trial.results(trial.tuner.best_config, arguments, reset=True)
    if alone is None:
        return ""
    before = arguments.fresh()
    for name, tensor in _tensors(given):
        old, mine, now = _bits(before[name]), _bits(alone[name]), _bits(tensor)
        apart = int(((mine != old) & (now != mine)).sum())
        if apart:
            return (
                f"the trials of @triton.autotune wrote {name}, which the kernel reads and writes: {apart:,} of its "
                f"{now.size:,} elements differ from their values after one launch. Every trial goes on from what the "
                f'one before left. Add restore_value=["{name}"], or reset_to_zero=["{name}"] for one that has to begin '
                "with zeros"
            )
    return ""


def _missing_in_key(
    trial: _Trial, entry: _Tuned, numbers: Mapping[str, Any], arguments: _Arguments, given: Mapping[str, Any]
) -> str:
    """Return a note if the results of another configuration differ here but agreed in the tuning, or ""."""
    chosen = trial.tuner.best_config
    for other in trial.configurations(given):
        results = trial.results(other, arguments)
        found = results and _apart(given, results, arguments)
        if not found:
            continue
        then, also = (trial.results(config, entry.arguments) for config in (chosen, other))
        if then is None or also is None or _apart(then, also, entry.arguments):
            continue
        name, count, size = found
        differ = [one for one, value in numbers.items() if entry.numbers.get(one) != value]
        missing = [one for one in differ if one not in trial.tuner.keys]
        return (
            f"the key of @triton.autotune lacks {', '.join(missing)}: tuned with {_listed(entry.numbers, differ)}, it "
            f"runs {_settings(chosen, other)} with {_listed(numbers, differ)}, for which {_settings(other, chosen)} "
            f"gives other values in {count:,} of the {size:,} elements of {name}; with the former they agreed. "
            f"Name {', '.join(missing)} in key="
        )
    return ""


def _listed(numbers: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name}={numbers.get(name)}" for name in names)


def _settings(config: Any, other: Any) -> str:
    """Return the constants of a configuration that another one has different values of."""
    than = other.all_kwargs()
    return ", ".join(f"{name}={value}" for name, value in config.all_kwargs().items() if than.get(name) != value)


def _apart(one: Mapping[str, Any], other: Mapping[str, Any], arguments: _Arguments) -> tuple[str, int, int] | None:
    """Return (name, differing elements, elements) of the first tensor whose results differ beyond rounding, or None."""
    before = arguments.fresh()
    for name, tensor in _tensors(one):
        here, there = tensor.detach(), other[name].detach()
        written = (_bits(here) != _bits(before[name])) | (_bits(there) != _bits(before[name]))
        if here.is_complex() or not written.any():
            continue
        a, b = (value.double().reshape(-1).numpy() for value in (here, there))
        typical = np.abs(b[np.isfinite(b)]).mean() if np.isfinite(b).any() else 0.0
        close = np.isclose(a, b, rtol=_APART, atol=_APART * typical, equal_nan=True)
        count = int((~close & written).sum())
        if count:
            return name, count, a.size
    return None
