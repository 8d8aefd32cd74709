"""Arguments of an exported op: their types in all cases of the declared op, and their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.export.layout import literal
from workbench.ops.tensors.tensor_type import TensorType


class Signature:
    """Types of an op's arguments and results, from which ``torch.library.custom_op`` derives its schema."""

    def __init__(self, op: Any, outputs: list[str]):
        self.kinds = {name: self._kind(op, name) for name in op.contract.parameters}
        self.optional = {name for name, kind in self.kinds.items() if kind.endswith("| None")}
        self.tensors = [name for name, kind in self.kinds.items() if kind.startswith("torch.Tensor")]
        self._defaults = inspect.signature(op.contract.function).parameters
        self.named = {one.name for one in self._defaults.values() if one.kind == one.KEYWORD_ONLY}
        if not set(self.tensors) - self.optional:
            remedy = "The op runs on the device of its first tensor."
            raise ArgumentError("export: arguments", "no tensor among them", "one tensor or more", remedy)
        counts = {len(case.problem().outputs) for case in op.cases.values()}
        if len(counts) > 1:
            raise ArgumentError("export: outputs", "different numbers of outputs", "one number", "Make two ops of it.")
        several = ", ".join(["torch.Tensor"] * len(outputs))
        self.returned = "None" if not outputs else "torch.Tensor" if len(outputs) == 1 else f"tuple[{several}]"

    @property
    def parameters(self) -> list[str]:
        """Annotated parameters: ``x: torch.Tensor``, ``scale: float = 1.0``."""
        usual = self._usual
        return [
            f"{name}: {kind} = {usual[name]}" if name in usual else f"{name}: {kind}"
            for name, kind in self.kinds.items()
        ]

    def reference(self, values: Mapping[str, str]) -> str:
        """Return the code that calls the reference with these values, keyword-only ones by name."""
        return f"reference({', '.join(f'{n}={v}' if n in self.named else v for n, v in values.items())})"

    @property
    def untyped(self) -> str:
        """Parameters without annotations: ``x, scale=1.0``."""
        usual = self._usual
        return ", ".join(f"{name}={usual[name]}" if name in usual else name for name in self.kinds)

    @property
    def _usual(self) -> dict[str, str]:
        """Defaults of parameters, as source text."""
        given = {name: self._defaults[name].default for name in self.kinds}
        return {
            name: literal(float(value) if self.kinds[name] == "float" and isinstance(value, int) else value)
            for name, value in given.items()
            if value is not inspect.Parameter.empty
        }

    @property
    def first(self) -> str:
        """First tensor argument that is never None."""
        return next(one for one in self.tensors if one not in self.optional)

    def unless_none(self, name: str) -> str:
        """Return the code to put before an expression of an argument, which guards one that may be None."""
        return f"None if {name} is None else " if name in self.optional else ""

    @staticmethod
    def _kind(op: Any, name: str) -> str:
        kinds = {_type_name(name, dict(case.problem().arguments)[name]) for case in op.cases.values()}
        if kinds == {"int", "float"}:
            return "float"
        optional = "None" in kinds
        kinds -= {"None"}
        if not kinds:
            kinds = {"torch.Tensor"}
        if len(kinds) > 1 or (optional and kinds != {"torch.Tensor"}):
            listed = ", ".join(sorted(kinds))
            raise ArgumentError(f"export: {name}", listed, "one type in all cases", "Make two ops of it.")
        return kinds.pop() + (" | None" if optional else "")


def _type_name(name: str, value: Any) -> str:
    if isinstance(value, TensorType):
        return "torch.Tensor"
    return "None" if value is None else type(value).__name__
