"""An operation: its variants, the inputs that they are judged on, and the function that users call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from workbench.base.lazy import handed_in
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.installed import installed
from workbench.ops.source_files import digest
from workbench.ops.values import Case
from workbench.ops.variant import Variant


@dataclass(eq=False)
class Op:
    """One operation: its variants in teaching order, its cases (the first is the quick one), and what users call."""

    name: str
    variants: tuple[Variant, ...]
    cases: Mapping[str, Case]
    function: Callable

    reference: ClassVar[str] = ""
    """Name of the variant that says what is right, by which the others are judged; empty if the op's cases say it."""

    def torch_call(self, case: Case, device: str = "cpu") -> tuple[Callable, Mapping[str, Any]] | None:
        """Return the reference in plain torch with its arguments of a case; None for an op whose cases compute it."""
        return None

    def variant(self, name: str | Variant) -> Variant:
        """Return the variant of that name, or ``name`` itself if it is a variant, even one of another op.

        Raises:
            UnknownNameError: there is none; lists the ones there are.
        """
        if isinstance(name, Variant):
            return name
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = ", ".join(variant.name for variant in self.variants)
        raise UnknownNameError("variant", repr(name), names, f"See workbench.variants({self.name!r}).")

    @property
    def quick_case(self) -> Case:
        """The case for a first look: the smallest."""
        return next(iter(self.cases.values()))

    def case(self, name: str | Case | None, **overrides: Any) -> Case:
        """Return the case of that name, with fields changed by its `override`, e.g. ``context=8192, dtype="bfloat16"``.

        None stands for the quick one; a case itself, which need not be one of the op's, is taken as it is.

        Raises:
            UnknownNameError: there is none; lists the ones there are.
        """
        if isinstance(name, str) and name not in self.cases:
            raise UnknownNameError(
                "case", repr(name), ", ".join(self.cases), f"Geometries of {self.name} are changed with overrides."
            )
        found = self.cases[name] if isinstance(name, str) else self.quick_case if name is None else name
        return found.override(**overrides) if overrides else found

    @property
    def judged_cases(self) -> tuple[str, ...]:
        """Names of the cases that a judgement or a benchmark takes where none is named."""
        return (self.quick_case.name,)

    @property
    def module(self) -> ModuleType | None:
        """The module whose file declares the op, if it is to be read, and sent to other processes, as it lies there."""
        return None

    @property
    def stated(self) -> str:
        """Everything that a verdict about the op depends on, as text."""
        return digest(sorted({path for one in self.variants for path in one.files}))

    def bare(self) -> Callable[[], Op]:
        """Return a function that makes the op without variants and gradients, in another process."""
        return functools.partial(type(self), self.name, (), self.cases, self.function)

    def compiled_by_torch(self, name: str) -> Variant | None:
        """Return the reference under ``torch.compile`` as a variant; None without a reference in plain torch."""
        return None

    def export(self, path: str | Path, variant: str | None = None) -> Path:
        """Write a variant to a file of its own. Raises ArgumentError for an op of an installed package."""
        remedy = "Import it from the package, which has it."
        raise ArgumentError("op", f"{self.name} of an installed package", "an op made by @workbench.op", remedy)

    def sweep(
        self,
        case: str | Case | None = None,
        *,
        variants: str | Sequence[str] | None = None,
        device: str = "auto",
        figure: str = "time",
        together: bool = False,
        configs: Mapping[str, Any] | None = None,
        model: Any = None,
        sample: int | None = None,
        judged_on: str | Case | None = None,
        **sizes: Any,
    ) -> Any:
        """Try the variants at several sizes of one case: ``op.sweep(cols=[512, 1024, 2048])``.

        Arguments and result, a `workbench.comparison.bench.size_sweep.SizeSweep`, are those of `workbench.sweep_sizes`,
        which also takes sizes that have the name of an argument.
        """
        return handed_in("sweep_sizes")(
            self,
            sizes,
            case,
            variants,
            device,
            figure=figure,
            together=together,
            configs=configs,
            model=model,
            sample=sample,
            judged_on=judged_on,
        )

    def __reduce__(self) -> tuple:
        """Return the way to an equal op in another process: by its name, if it is that of an installed package."""
        if installed(self.name) is self:
            return installed, (self.name,)
        return type(self), (self.name, self.variants, self.cases, self.function)

    def restore_case(self, record: Mapping[str, Any]) -> Case:
        """Return the case that `Case.to_dict` described, e.g. in another process."""
        kind: Any = type(self.quick_case)
        return kind.from_dict(record)
