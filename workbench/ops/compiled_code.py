"""Kernels that a variant has compiled in this process: on a GPU even a hit in the cache on disk takes long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from workbench.ops.source_files import stamp
from workbench.ops.steps import LaunchShape
from workbench.ops.values import Config

_MOST_REMEMBERED = 1024
"""Number of plans above which all plans and kernels are forgotten."""

_SECONDS_UNSEEN = 0.02
"""Seconds for which a changed file may go unnoticed: a look at all files of a variant takes as long as a launch."""


class Plan(NamedTuple):
    """Everything that all runs of a configuration for a problem share, whatever their tensors; one entry per step."""

    kernels: tuple
    parameters: tuple[tuple[str, ...], ...]
    """Names of the parameters that a launch passes."""
    shapes: tuple[LaunchShape, ...]


class Compilable(Protocol):
    """Protocol of an object that is compiled: a `workbench.ops.variant.Variant`."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the kernels are made of."""

    def check(self, config: Config, problem: Any) -> None:
        """Raise `ConfigurationError` for an illegal configuration."""

    def code_key(self, config: Config, problem: Any) -> Any:
        """Return a key of all that the machine code depends on beside its source."""

    def kernels(self, config: Config, problem: Any, arch: str, *, machine_code: bool) -> tuple:
        """Compile every kernel."""

    def plan(self, config: Config, problem: Any, kernels: tuple | None = None) -> Plan:
        """Return the plan that all runs share: kernels, parameters, grid and block."""


class CompiledCode:
    """Kernels of one variant by configuration and problem, until one of its files changes."""

    def __init__(self) -> None:
        self._kernels: dict[tuple, tuple] = {}
        self._plans: dict[tuple, Plan] = {}
        self._given: tuple[tuple, tuple] = (), ()
        self._files: tuple[Path, ...] = ()
        self._stamps: tuple[int, ...] = ()
        self._until = 0.0

    def keep(self, config: Config, problem: Any, arch: str, kernels: tuple) -> None:
        """Keep kernels that are compiled already for the next call of `of` with the same arguments."""
        self._given = (arch, problem, *config.items()), kernels

    def of(self, variant: Compilable, config: Config, problem: Any, arch: str, machine_code: bool) -> Plan:
        """Return the plan with the kernels of ``variant.kernels``, which compiles them the first time.

        Raises:
            ConfigurationError: the configuration is illegal.
        """
        now = time.monotonic()
        if now > self._until:
            self._forget_old(variant)
            self._until = now + _SECONDS_UNSEEN
        key = (arch, problem, *config.items())
        found = self._plans.get(key)
        if found is None:
            (given, kernels), self._given = self._given, ((), ())
            if given != key:
                kernels = self._compiled(variant, config, problem, arch, machine_code)
            found = self._plans[key] = variant.plan(config, problem, kernels)
        return found

    def _compiled(self, variant: Compilable, config: Config, problem: Any, arch: str, machine_code: bool) -> tuple:
        variant.check(config, problem)
        # Most problems differ only in properties of the launch, such as the lengths of a decode step.
        code = (arch, variant.code_key(config, problem))
        if code not in self._kernels:
            self._kernels[code] = variant.kernels(config, problem, arch, machine_code=machine_code)
        return self._kernels[code]

    def _forget_old(self, variant: Compilable) -> None:
        stamps = tuple(stamp(path) for path in self._files)
        if not stamps or stamps != self._stamps or len(self._plans) > _MOST_REMEMBERED:
            self._files = variant.files
            self._stamps = tuple(stamp(path) for path in self._files)
            self._kernels.clear()
            self._plans.clear()
