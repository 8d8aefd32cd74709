"""The small values around a variant: a rule, a launch, a verdict, and what every op's case offers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from workbench.base.architectures import plain_arch
from workbench.ops.expressions import Expression

Config = Mapping[str, Any]
"""A configuration: one value per tunable."""


class _Known:
    """Names that the formula of a rule may use: tunables, then fields of the problem."""

    def __init__(self, config: Config, problem: Any):
        self._config, self._problem = config, problem

    def __getitem__(self, name: str) -> Any:
        return self._config[name] if name in self._config else getattr(self._problem, name)


@dataclass(frozen=True)
class Restriction:
    """A named rule that a legal configuration keeps, so that a rejected one can say which rule it broke."""

    name: str
    rule: str
    """The rule as a formula, e.g. ``32 % THREAD_GROUP_SIZE == 0``."""
    holds: Callable[[Config, Any], bool] = field(repr=False)
    of_arch: bool = False
    """True if the rule is about the architecture alone: on another one it may hold for the same configuration."""
    only: str = ""
    """Only architecture that keeps the rule, such as "sm_90", if the code has instructions of that one."""

    @classmethod
    def of(cls, name: str, rule: Any, meaning: str = "", known: Callable[[Config, Any], Any] = _Known) -> Self:
        """Return a rule whose formula is an `Expression` over tunables and fields of the problem (``head_size``).

        ``meaning`` is for whoever reads the rule; ``known`` gives for (config, problem) the values of other names.
        """
        formula = Expression.of(name, rule)
        text = f"{formula.text}{meaning and ': '}{meaning}"
        return cls(name, text, lambda config, problem: bool(formula(known(config, problem))))

    @classmethod
    def on(cls, arch: str, what: str) -> Self:
        """Return the rule that the problem's architecture is this one, which alone has ``what``."""
        rule = f"arch is {arch}, which alone has {what}"
        return cls("arch", rule, lambda config, problem: plain_arch(problem.arch) == arch, of_arch=True, only=arch)

    def __str__(self) -> str:
        return f"{self.name}: {self.rule}"


@dataclass(frozen=True)
class Launch:
    """One kernel launch: what to run on how many threads, on either device."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple
    """Tensors (pointers) and Python numbers in the kernel's own order; for Triton without the constexprs."""
    shared_bytes: int = 0
    """Dynamic shared memory that the caller provides, in bytes (Triton's is part of the compiled kernel)."""


@dataclass(frozen=True)
class Footprint:
    """Resources of a multiprocessor that one block of a variant's first kernel takes, and the bytes it has in flight.

    Known without compiling it: registers and shared memory are upper bounds.
    """

    blocks: int
    """Blocks of the launch."""
    threads: int
    registers: int
    """Registers per thread."""
    shared_bytes: int
    """Static and dynamic shared memory in bytes."""
    bytes_in_flight: int
    """Bytes of keys and values that are requested and not yet used, while the block is in its loop."""

    def resident(self, arch: str) -> int:
        """Return the number of such blocks that fit on one multiprocessor of ``arch``."""
        from workbench.toolchain.occupancy import occupancy

        return occupancy(arch, self.threads, self.registers, self.shared_bytes).blocks_per_sm


@dataclass(frozen=True)
class Check:
    """The comparison of one output with the known answer: the largest error, the error allowed there, and the result.

    ``place`` says which element that is, where the op knows. Where each element has a bound of its own, ``typical`` is
    their root mean square, the same for every output of a case.
    """

    max_error: float
    bound: float
    ok: bool
    place: str = ""
    typical: float | None = None

    @property
    def of_case(self) -> tuple[float, float]:
        """Error and bound that compare with those of other outputs of the case.

        The bound is the typical one, and the error has the same ratio to it as to the bound of its element.
        """
        if self.typical is None or not self.bound or not math.isfinite(self.max_error):
            return self.max_error, self.bound if self.typical is None else self.typical
        return self.max_error / self.bound * self.typical, self.typical

    def __str__(self) -> str:
        text = f"{'ok' if self.ok else 'WRONG'}: error {self.max_error:.2e}, bound {self.bound:.2e}"
        return f"{text}: {self.place}" if self.place else text


class Case(Protocol):
    """Interface of any op's case for tuning, comparison and tracing: named inputs with a known answer."""

    @property
    def name(self) -> str:
        """Name by which the case is found."""

    @property
    def label(self) -> str:
        """The name with what distinguishes it, for titles and tables."""

    def override(self, **changes: Any) -> Self:
        """Return the case with some of its fields changed."""

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> Any:
        """Return the problem that a kernel is compiled and launched for. A configuration may choose the page size."""

    def inputs(self, problem: Any, device: str = "cpu") -> Any:
        """Return fresh `RunTensors`, the same values each time; ``.out`` is what the variant fills and `check` judges.

        On the device ``"meta"`` they have shapes and no elements.
        """

    def reference(self) -> Any:
        """Return the known answer."""

    def check(self, out: Any) -> Check:
        """Return the comparison of an output with the known answer."""

    def minimum_bytes(self, problem: Any) -> int:
        """Return the bytes that must cross memory once, whatever the variant: its traffic is compared with them."""

    def to_dict(self) -> dict:
        """Return plain values, for a store or another process."""


class JudgedCase(Case, Protocol):
    """A case as the judge uses it, also with its tensors laid out and valued otherwise."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Facts of the op about the elements of its inputs, by name; see `workbench.ops.tensors.data_facts`."""

    def viewed(self) -> Mapping[str, Any]:
        """Return the case with tensors that lie otherwise in memory, by how they lie; empty without such views."""

    def reshaped(self) -> Mapping[str, Any]:
        """Return the case at other sizes, by what they are; empty for a case that has no others."""

    def elsewhere(self, change: str) -> Any:
        """Return the case at values of another size or sign, or None if the case has no such values.

        `workbench.ops.declared.elsewhere` describes the changes.
        """
