"""Variants that are declared by expressions: checks and runs that CUDA C++ and Triton share."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.errors import ArgumentError, ConfigurationError
from workbench.ops.declared.launching import REMEMBERED, Declaration
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.expressions import Expression
from workbench.ops.source_files import digest
from workbench.ops.tensors.checks import check_apart
from workbench.ops.tensors.data_facts import check_facts
from workbench.ops.tensors.layout import lies_otherwise, meets_itself
from workbench.ops.tensors.tensor_type import TensorType
from workbench.ops.variant import Config, Restriction, Variant


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredVariant(Variant):
    """Base class of variants that are declared by expressions, in CUDA C++ or in Triton."""

    declared: Declaration
    stated: str
    parts: tuple
    _sound: set[tuple] = field(default_factory=set, init=False, repr=False)
    """Problems with the configurations that passed `check`."""
    _misplaced: dict[DeclaredProblem, ArgumentError | None] = field(default_factory=dict, init=False, repr=False)

    @property
    def expressions(self) -> Iterable[Expression]:
        """Expressions that the variant's launches evaluate."""
        return (one for part in self.parts for one in part.expressions)

    @property
    def copied(self) -> tuple[str, ...]:
        """Arguments declared ``contiguous=``, which a run copies unless they are contiguous."""
        return self.declared.contiguous

    def filled(self, part: str, tensor: Any) -> float | None:
        """Return the number that fills a part of the workspace before a run: that of ``wb.full``, else 0."""
        described = self.declared.workspace[part]
        return described.bounds[0] if described.kind == "full" else 0.0

    @functools.cached_property
    def passed(self) -> tuple[str, ...]:
        """Names that kernels take as arguments unchanged, in order; tensors among them are passed by address."""
        names = (one.names[0] for part in self.parts for _, one in part.arguments if one.is_name)
        return tuple(dict.fromkeys(names))

    def misplaced(self, config: Config, problem: DeclaredProblem) -> ArgumentError | None:
        """Return the error for the first tensor whose strides the kernels of a configuration would misread, or None."""
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

    def check_tensors(self, problem: DeclaredProblem) -> None:
        """Raise ArgumentError for a tensor whose strides the kernels of the untuned configuration would misread."""
        found = self._usually_misplaced(problem)
        if found is not None:
            raise found

    def unsupported(self, problem: DeclaredProblem) -> tuple[Restriction, ...]:
        """Return everything that the variant lacks for the problem, such as support of a tensor's strides."""
        found = self._usually_misplaced(problem)
        lacking = () if found is None else (Restriction("strides", str(found), lambda config, problem: False),)
        return super().unsupported(problem) + lacking

    def _usually_misplaced(self, problem: DeclaredProblem) -> ArgumentError | None:
        """Return `misplaced` with the declared default or else the first configuration of the space, legal or not.

        The answer is cached by problem, because a search asks once for every configuration.
        """
        if problem not in self._misplaced:
            if len(self._misplaced) >= REMEMBERED:
                self._misplaced.clear()
            usual = self.declared.full_default or next(self.all_configurations())
            self._misplaced[problem] = self.misplaced(usual, problem)
        return self._misplaced[problem]

    def check(self, config: Config, problem: DeclaredProblem) -> None:
        """Raise an error unless a configuration is legal and its kernels can take the problem's tensors.

        Raises:
            ArgumentError: the kernels would misread a tensor's strides, or a launch of no blocks would leave an output
                as it is.
            ConfigurationError: the configuration is illegal.
        """
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

    def _check_grids(self, config: Config, problem: DeclaredProblem) -> None:
        """Raise ArgumentError if the first kernel that gets an output has no blocks, but the output has elements."""
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

    def launches(self, config: Config, problem: DeclaredProblem, tensors: DeclaredTensors, kernels: Any = None) -> Any:
        """Return the launches as `Variant.launches` does; the error about an output's type names the reference."""
        try:
            return super().launches(config, problem, tensors, kernels)
        except ArgumentError as error:
            raise self._of_reference(error, problem) or error from error.__cause__

    def _of_reference(self, error: ArgumentError, problem: DeclaredProblem) -> ArgumentError | None:
        """Return the error about an output that the reference returns in another type than the kernel's, or None."""
        name = error.argument.partition("'")[2].partition("'")[0]
        found = dict(problem.outputs).get(name)
        if found is None or name in self.declared.contract.in_place or error.got != f"an array of {found.dtype}":
            return None
        wanted = error.allowed.partition(" ")[0]
        got = f"{found.dtype}, the type that the reference {problem.op} returns for these inputs"
        remedy = f"Let the reference return {wanted}, or the kernel write {found.dtype}."
        return ArgumentError(error.argument, got, f"{wanted}, as the kernel declares it", remedy)

    def run(
        self, config: Config, problem: DeclaredProblem, tensors: DeclaredTensors, device: Any, **launch_options: Any
    ) -> Any:
        """Run the variant, with contiguous copies in place of arguments declared ``contiguous=``.

        Copies of arguments that the op writes are copied back. Raises ArgumentError if a written argument shares memory
        with another one.
        """
        written = self.declared.contract.in_place
        if written:
            given = {name: one for name, one in tensors.arguments.items() if isinstance(one, torch.Tensor)}
            check_apart({name: one for name, one in given.items() if name in self.passed}, written, "Pass a clone.")
        if device is not None and device.counts:
            check_facts(self.declared.contract.facts, tensors.arguments)
        copies = tensors.contiguous(self.declared.contiguous)
        report = super().run(config, problem, copies, device, **launch_options)
        for name in written:
            if copies.arguments[name] is not tensors.arguments[name]:
                tensors.arguments[name].copy_(copies.arguments[name])
        return report

    @property
    def source_hash(self) -> str:
        """Hex digest of the source, of everything that it includes or calls, and of the declaration."""
        return digest(self.files, self.stated)

    def default_config(self, problem: DeclaredProblem) -> dict:
        """Return the declared default, else the first legal configuration of the space.

        The default of a variant with an autotuner is the autotuner's first configuration. Raises ConfigurationError if
        no configuration is legal.
        """
        found = self.declared.full_default
        if found is None:
            found = next((one for one in self.all_configurations() if not self.broken(one, problem)), None)
        if found is None:
            rules = "; ".join(rule.text for rule in self.declared.rules)
            got = ", ".join(f"{name} {value}" for name, value in problem.arguments)
            remedy = "Widen tune=, or loosen where=."
            raise ConfigurationError(f"config of {self}", f"none is legal for {got}", rules, remedy)
        return found
