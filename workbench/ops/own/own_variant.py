"""Variants that were declared by expressions: what both languages check and run alike."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.errors import ArgumentError, ConfigurationError
from workbench.ops.expressions import Expression
from workbench.ops.own.launching import REMEMBERED, Declared
from workbench.ops.own.layout import lies_otherwise, meets_itself
from workbench.ops.own.problem import Problem, Tensors
from workbench.ops.own.tensor_type import TensorType
from workbench.ops.source_files import digest
from workbench.ops.tensor_checks import check_apart
from workbench.ops.variant import Config, Restriction, Variant


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnVariant(Variant):
    """The part of a variant declared by expressions that both languages share."""

    declared: Declared
    stated: str
    parts: tuple
    _sound: set[tuple] = field(default_factory=set, init=False, repr=False)
    """Configurations and problems that were checked."""
    _misplaced: dict[Problem, ArgumentError | None] = field(default_factory=dict, init=False, repr=False)

    @property
    def expressions(self) -> Iterable[Expression]:
        """Everything that its launches compute."""
        return (one for part in self.parts for one in part.expressions)

    @property
    def copied(self) -> tuple[str, ...]:
        """The arguments that are declared ``contiguous=``."""
        return self.declared.contiguous

    def filled(self, part: str, tensor: Any) -> float | None:
        """The number of ``wb.full``, else 0."""
        described = self.declared.workspace[part]
        return described.bounds[0] if described.kind == "full" else 0.0

    @functools.cached_property
    def passed(self) -> tuple[str, ...]:
        """The arguments and outputs of the op that kernels get by their address, in order."""
        names = (one.names[0] for part in self.parts for _, one in part.arguments if one.is_name)
        return tuple(dict.fromkeys(names))

    def misplaced(self, config: Config, problem: Problem) -> ArgumentError | None:
        """The error for the first tensor that does not lie as the kernels of a configuration assume; None for none."""
        kinds = {name: one for name, one in problem.arguments if isinstance(one, TensorType) and name in self.passed}
        if all(kind.is_contiguous() for kind in kinds.values()):
            return None
        read = self.declared.strides_read(config, problem, self.expressions)
        for name, kind in kinds.items():
            found = meets_itself(name, kind) if name in self.declared.contract.in_place else None
            if found is None and name not in self.declared.contiguous:
                found = lies_otherwise(name, kind, read.get(name, frozenset()), f"the declaration of {self}")
            if found is not None:
                return found
        return None

    def check_tensors(self, problem: Problem) -> None:
        """Raise ArgumentError for a tensor that does not lie as the kernels assume, with the untuned configuration."""
        found = self._usually_misplaced(problem)
        if found is not None:
            raise found

    def unsupported(self, problem: Problem) -> tuple[Restriction, ...]:
        """Also a tensor that does not lie as the kernels assume."""
        found = self._usually_misplaced(problem)
        lacking = () if found is None else (Restriction("strides", str(found), lambda config, problem: False),)
        return super().unsupported(problem) + lacking

    def _usually_misplaced(self, problem: Problem) -> ArgumentError | None:
        """`misplaced` with the first configuration, legal or not; a search asks for each of a space."""
        if problem not in self._misplaced:
            if len(self._misplaced) >= REMEMBERED:
                self._misplaced.clear()
            usual = self.declared.full_default or next(self.all_configurations())
            self._misplaced[problem] = self.misplaced(usual, problem)
        return self._misplaced[problem]

    def check(self, config: Config, problem: Problem) -> None:
        """Raise ArgumentError for a tensor that does not lie as the kernels assume and for an output that a launch of
        no blocks would leave as it is, ConfigurationError for an illegal configuration."""
        self._check_names(config)
        key = (problem, *config.items())
        if key in self._sound:
            return
        found = self.misplaced(config, problem)
        if found is not None:
            raise found
        super().check(config, problem)
        self._check_grids(config, problem)
        if len(self._sound) >= REMEMBERED:
            self._sound.clear()
        self._sound.add(key)

    def _check_grids(self, config: Config, problem: Problem) -> None:
        """Raise ArgumentError where the first kernel that gets an output has no blocks, but the output has elements."""
        met: set[str] = set()
        outputs = dict(problem.outputs)
        names = self.declared.names(config, problem)
        for part in self.parts:
            taken = {one.names[0] for _, one in part.arguments if one.is_name and one.names[0] in outputs} - met
            met |= taken
            waiting = [name for name in taken if outputs[name].numel()]
            if waiting and 0 in (grid := part.grid(names)):
                what = f"{grid}, but {waiting[0]} is {outputs[waiting[0]]}"
                remedy = "Launch a block that writes it, max(1, ...)."
                raise ArgumentError(part.grid.where, what, "one block or more for an output with elements", remedy)

    def run(self, config: Config, problem: Problem, tensors: Tensors, device: Any, **launch_options: Any) -> Any:
        """Run it as every variant; where that is declared on contiguous copies, which are then copied back."""
        written = self.declared.contract.in_place
        if written:
            given = {name: one for name, one in tensors.arguments.items() if isinstance(one, torch.Tensor)}
            check_apart({name: one for name, one in given.items() if name in self.passed}, written, "Pass a clone.")
        copies = tensors.contiguous(self.declared.contiguous)
        report = super().run(config, problem, copies, device, **launch_options)
        for name in written:
            if copies.arguments[name] is not tensors.arguments[name]:
                tensors.arguments[name].copy_(copies.arguments[name])
        return report

    @property
    def source_hash(self) -> str:
        """Hex digest of the source, of all that it includes or calls, and of the declaration."""
        return digest(self.files, self.stated)

    def default_config(self, problem: Problem) -> dict:
        """The declared default, else the first legal configuration (of an autotuner its first)."""
        found = self.declared.full_default
        if found is None:
            found = next((one for one in self.all_configurations() if not self.broken(one, problem)), None)
        if found is None:
            rules = "; ".join(rule.text for rule in self.declared.rules)
            got = ", ".join(f"{name} {value}" for name, value in problem.arguments)
            remedy = "Widen tune=, or loosen where=."
            raise ConfigurationError(f"config of {self}", f"none is legal for {got}", rules, remedy)
        return found
