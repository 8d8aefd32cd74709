"""Families of launches from ops of one's own: their declarations by ``@wb.op``, with the sizes as symbols."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.errors import ArgumentError, WorkbenchError
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.cpp_text import CppText, template_arguments
from workbench.ops.declared.op import DeclaredOp
from workbench.ops.declared.variant import DeclaredVariant
from workbench.ops.expressions import Expression
from workbench.ops.tensors.inputs import Input
from workbench.ops.tensors.tensor_type import TensorType
from workbench.proof.conditions import Predicate, equal
from workbench.proof.family import Family, Launched
from workbench.proof.formulas import formula
from workbench.proof.tensors import TensorArgument, bytes_of
from workbench.proof.terms import Arena, Term, term
from workbench.proof.unknown import Unknown

_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179)
_OTHERS = (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293)
"""Sizes with which shapes of results are found: no two products of a few are alike."""
Shapes = dict[str, tuple[str, ...]]
"""The sizes of each tensor as formulas."""


class OpFamilies:
    """The families of one variant of an op, for the sizes of a case as symbols.

    A size that the case names keeps its name; one that is a number there is a symbol of its own, unless the reference
    demands that it equals another one.
    """

    def __init__(
        self, op: DeclaredOp, variant: DeclaredVariant, case: DeclaredCase, config: Mapping[str, Any] | None, facts: Any
    ):
        self.op, self.variant, self.case = op, variant, case
        self.facts = [facts, op.contract.facts] if isinstance(facts, str | Mapping) else [*facts, op.contract.facts]
        self.problem = variant.machine_problem(case)
        self.config = dict(config or variant.default_config(self.problem))
        self.types = dict(self.problem.known)
        self.shapes = self._shapes()
        self.shapes = self._in_words()

    def families(self, arch: str) -> Iterator[Family]:
        """Yield the family of each kernel of the variant."""
        kernels = self.variant.kernels(self.config, self.problem, arch, machine_code=False)
        sizes = self._sizes()
        for part, kernel in zip(self.variant.parts, kernels, strict=True):
            later = functools.partial(self._launched, part=part, kernel=kernel)
            yield Family(kernel, None, facts=self.facts, symbols=sizes, later=later)

    # -- sizes --------------------------------------------------------------------------------------------------

    def _shapes(self) -> Shapes:
        """Return the shapes of arguments and outputs. Raises ArgumentError if those of outputs follow no formula."""
        error: WorkbenchError | None = None
        for inputs in self._guesses():
            try:
                return inputs | self._outputs(inputs)
            except WorkbenchError as refused:
                error = refused
        raise ArgumentError(
            f"op {self.op.name}", f"shapes of results that follow no formula of its sizes ({error})",
            "sizes of arguments, sums and products of two, or numbers", "Prove its kernel with args= instead.",
        )  # fmt: skip

    def _guesses(self) -> Iterator[Shapes]:
        """Yield shapes of the arguments: all sizes free, then equal ones as one, then the case's own."""
        tensors = {name: one for name, one in self.problem.arguments if isinstance(one, TensorType)}
        for kind in ("free", "equal", "fixed"):
            found: Shapes = {}
            for name, one in tensors.items():
                given = self.case.given.get(name)
                named = given.shape if isinstance(given, Input) else one.shape
                found[name] = tuple(
                    size if isinstance(size, str) else
                    str(size) if size <= 1 or kind == "fixed" else
                    f"{name}_{axis}" if kind == "free" else f"n{size}"
                    for axis, size in enumerate(named)
                )  # fmt: skip
            yield found

    def _in_words(self) -> Shapes:
        """Return the shapes with the names that the declaration gives to sizes, where these are symbols here."""
        symbols, arena = self._sizes(), Arena()
        words: dict[str, str] = {}
        try:
            known = self._known({name: arena.atom("param", name, (), 1) for name in symbols})
        except Unknown:  # the verdict says so
            return self.shapes
        for name, value in known.items():
            atom = value.atom if isinstance(value, Term) else None
            if (
                atom is not None
                and name not in (*symbols, *self.config)
                and atom.name not in (*self.case.sizes, *words)
            ):
                words[atom.name] = name
        return {
            tensor: tuple(re.sub(r"\w+", lambda found: words.get(found[0], found[0]), text) for text in shape)
            for tensor, shape in self.shapes.items()
        }

    def _sizes(self) -> dict[str, int | None]:
        """Return the symbols with their least values."""
        texts = [size for shape in self.shapes.values() for size in shape]
        names = {name for text in texts for name in Expression.of("shape", text).names}
        numbers = {name for name, one in self.problem.arguments if type(one) is int}
        return dict.fromkeys(sorted(names), 1) | dict.fromkeys(sorted(numbers - names))

    def _outputs(self, inputs: Shapes) -> Shapes:
        texts = {text for shape in inputs.values() for text in shape}
        symbols = sorted({name for text in texts for name in Expression.of("shape", text).names})
        samples = [dict(zip(symbols, primes, strict=False)) for primes in (_PRIMES, _OTHERS)]
        if len(symbols) > len(_PRIMES):
            raise ArgumentError("sizes", len(symbols), f"at most {len(_PRIMES)}", "Prove the kernel alone.")
        results = [self._results(inputs, sample) for sample in samples]
        candidates: dict[str, tuple[int, ...]] = {str(number): (number, number) for number in range(65)}
        for one, other in itertools.combinations_with_replacement(symbols, 2):
            candidates[f"{one} * {other}"] = tuple(sample[one] * sample[other] for sample in samples)
            candidates[f"{one} + {other}"] = tuple(sample[one] + sample[other] for sample in samples)
        candidates |= {name: tuple(sample[name] for sample in samples) for name in symbols}
        by_value = {values: text for text, values in candidates.items()}
        found: Shapes = {}
        for name in results[0]:
            sizes = zip(results[0][name].shape, results[1][name].shape, strict=True)
            try:
                found[name] = tuple(by_value[pair] for pair in sizes)
            except KeyError as error:
                raise ArgumentError(
                    f"output {name}", error.args[0], "a formula of sizes", "No formula fits its shapes."
                ) from error
        return found

    def _results(self, inputs: Shapes, sample: Mapping[str, int]) -> dict[str, TensorType]:
        arguments = []
        for name, one in self.problem.arguments:
            if isinstance(one, TensorType):
                shape = tuple(Expression.of("shape", text).whole(sample) for text in inputs[name])
                one = TensorType.contiguous(one.dtype, shape)
            arguments.append((name, one))
        return dict(self.op.contract.output_types(tuple(arguments)))

    # -- launches -----------------------------------------------------------------------------------------------

    def _launched(self, sizes: Mapping[str, Term], part: Any, kernel: Any) -> Launched:
        """Return the launch of one kernel with the sizes as terms."""
        names = self._names(sizes)
        read = functools.partial(_symbolic, names=names)
        facts = [*self._compiled_in(part, names), *self._rules(names)]
        args: dict[str, Any] = {}
        for parameter, one in part.arguments:
            if parameter not in kernel.parameter_names:  # Triton takes 1 and None for constants
                continue
            args[parameter] = self._argument(one, names)
        block = kernel.threads_per_block if self.variant.language == "triton" else _flat(map(read, part.block.parts))
        shared = 0 if self.variant.language == "triton" else read(part.shared_bytes)
        grid = _flat(map(read, part.grid.parts))
        return Launched(grid, block, args, shared, facts, names, part.grid.text)

    def _names(self, sizes: Mapping[str, Term]) -> dict[str, Any]:
        """Return the names that expressions of a declaration may use, as terms."""
        return {**sizes, **self._known(sizes), **self.config}

    def _known(self, sizes: Mapping[str, Term]) -> dict[str, Any]:
        """Return the arguments and outputs, and the sizes that the declaration finds in them."""
        known: dict[str, Any] = {}
        for name, one in self.types.items():
            if isinstance(one, TensorType):
                shape = tuple(_whole(formula("shape", text, sizes)) for text in self.shapes[name])
                known[name] = _contiguous(one.dtype, shape)
            else:
                known[name] = sizes.get(name, one)
        declared = self.variant.declared
        return known if declared.sizes is None else dict(_traced(declared._find_fixed, known))

    def _argument(self, one: Expression, names: Mapping[str, Any]) -> Any:
        workspace = self.variant.declared.workspace
        if one.is_name and one.names[0] in workspace:
            part = workspace[one.names[0]]
            sizes = tuple(_whole(formula("workspace", size, names)) for size in part.shape)
            return TensorArgument(one.names[0], part.dtype, sizes, bytes_of(one.where, part.dtype))
        value = _symbolic(one, names)
        if isinstance(value, TensorType):
            shape = tuple(map(term, value.shape))
            return TensorArgument(one.names[0], value.dtype, shape, bytes_of(one.where, value.dtype))
        return value

    def _compiled_in(self, part: Any, names: Mapping[str, Any]) -> Iterator[tuple[str, Predicate]]:
        """Yield that sizes which the code was compiled for have those values."""
        variant: Any = self.variant
        actual = variant.declared.names(self.config, self.problem)
        if variant.language == "cuda":
            texts = [CppText.of("kernel", one) for one in template_arguments(part.kernel)]
            expressions = [one.expression for one in (*variant.macro_texts.values(), *texts)]
        else:
            unspecialised = [one for name, one in part.arguments if not self._is_passed(part, name, actual)]
            expressions = [*part.constexprs.values(), *unspecialised]
        for one in expressions:
            if one is None or not set(one.names) <= set(names) or not one.names:
                continue
            value = one(actual)
            if type(value) is int and isinstance(made := _symbolic(one, names), Term) and made.constant is None:
                yield f"{one.text} == {value}", equal(made, value)

    def _rules(self, names: Mapping[str, Any]) -> Iterator[tuple[str, Predicate]]:
        """Yield the rules of the legal configurations that compare sizes: elsewhere there are no launches."""
        for rule in self.variant.declared.rules:
            held = _symbolic(rule, names)
            if isinstance(held, Predicate):
                yield rule.text, held

    def _is_passed(self, part: Any, parameter: str, actual: Mapping[str, Any]) -> bool:
        return parameter not in part._compiled_in(self.variant.declared, self.problem)


def _symbolic(one: Expression, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression with sizes as terms. Raises Unknown for one that does not take them."""
    if isinstance(one.given, str):
        return formula(one.where, one.given, names)
    return _traced(one, names)


def _traced(function: Any, names: Mapping[str, Any]) -> Any:
    try:
        return function(names)
    except Exception as error:
        raise Unknown(None, f"a function of the declaration does not take symbols: {error}") from error


def _whole(value: Any) -> Term:
    if isinstance(value, int | Term) and not isinstance(value, bool):
        return term(value)
    raise Unknown(None, f"the size {value!r} is not a whole number")


def _flat(parts: Any) -> list[Any]:
    return [one for part in parts for one in (part if isinstance(part, tuple | list) else [part])]


def _contiguous(dtype: str, shape: Sequence[Term]) -> TensorType:
    strides: list[Term] = []
    step = term(1)
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size
    return TensorType(dtype, tuple(shape), tuple(strides))  # type: ignore[arg-type]
