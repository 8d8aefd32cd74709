"""An operation: its variants, the inputs that they are judged on, and the function that users call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import UnknownNameError
from workbench.ops.values import Case
from workbench.ops.variant import Variant


@dataclass(eq=False)
class Op:
    """One operation: its variants in teaching order, its cases (the first is the quick one), and what users call."""

    name: str
    variants: tuple[Variant, ...]
    cases: Mapping[str, Case]
    function: Callable

    def variant(self, name: str | Variant) -> Variant:
        """The variant of that name; a variant itself, which need not be one of the op's, as it is.

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
        """The case of that name, with fields overridden (e.g. ``context=8192, dtype="bfloat16"``, as its `override`).

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

    def restore_case(self, record: Mapping[str, Any]) -> Case:
        """The case that `Case.to_dict` described, e.g. in another process."""
        kind: Any = type(self.quick_case)
        return kind.from_dict(record)
