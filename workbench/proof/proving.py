"""``prove``: a verdict on a kernel for all sizes, threads and orders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.base.argument_kinds import checked_kinds
from workbench.errors import ArgumentError
from workbench.launch.checking import is_kernel, refuse_for_a_kernel, refuse_for_an_op
from workbench.launch.loading import kernel_to_launch
from workbench.ops.declared.variant import DeclaredVariant
from workbench.ops.selection import op_of, variants_of
from workbench.ops.variant import Case, Variant
from workbench.proof.certificate import certificate
from workbench.proof.conditions import at_most, below
from workbench.proof.evaluation import Values
from workbench.proof.execution import Execution
from workbench.proof.facts import DataFact, element_of, enough_values
from workbench.proof.family import Family, size_limits
from workbench.proof.kept import keep, kept_proof, key_of
from workbench.proof.of_ops import OpFamilies
from workbench.proof.queries import Failure, Queries
from workbench.proof.role_queries import RoleQueries
from workbench.proof.roles import has_roles, in_roles
from workbench.proof.solver import Effort, OutOfBudget, Question, require_solver
from workbench.proof.specification import Specification
from workbench.proof.terms import THREAD
from workbench.proof.unknown import Unknown
from workbench.proof.verdict import PROPERTIES, PROVED, REFUTED, UNKNOWN, Counterexample, Proof, Proofs
from workbench.proof.witness import counterexample
from workbench.ptx.proved import ProvedAccesses

EFFORT = 120_000_000
"""Resources of a proof, in Z3's own count: about a minute."""
_EFFORT_WITHOUT = 12_000_000
"""Resources of the trials with fewer preconditions."""
HIGHEST = 3
"""Level of `size_limits` with the most preconditions."""


@checked_kinds
def prove(
    kernel: Any,
    *,
    grid: Any = None,
    block: Any = None,
    args: Sequence[object] | Mapping[str, object] | None = None,
    facts: Any = (),
    shared_bytes: int | str = 0,
    variants: str | Variant | Sequence[str | Variant] | None = None,
    case: str | Case | None = None,
    config: Mapping[str, Any] | None = None,
    arch: str = "sm_80",
    effort: int = EFFORT,
    run: bool = True,
) -> Proof | Proofs:
    """Prove that no launch of a family has an access out of bounds, a race, or a barrier that only some threads reach.

    The sizes are symbols: the proof holds for all of them, and for every order of threads and blocks::

        wb.prove(module.transpose, grid=("cdiv(cols, 32)", "cdiv(rows, 32)"), block=(32, 32),
                 args={"out": "float32[cols, rows]", "x": "float32[rows, cols]"})

    The PTX is what is proved, for one generic thread, or two of them. Arithmetic of 32 bits wraps as it does on a GPU.
    If the proof needs sizes for which it does not, these are among the preconditions of the verdict.

    For an op of `wb.op` grid, block, arguments and sizes are those of its declarations, and the sizes of a case are the
    symbols::

        wb.prove(row_softmax)

    Args:
        kernel: a kernel of `load_cuda` or `load_ptx`, or a CompiledKernel, such as of ``compile_triton``; or an op of
            `wb.op`, or its name.
        grid: blocks, one to three numbers or formulas of sizes, which may name tensors: ``"cdiv(x.shape[1], 32)"``; or
            a function of sizes and tensors, by their names, that returns these: ``lambda x: (x.shape[0], 1)``.
        block: threads of a block, one to three numbers; a kernel of Triton has its own.
        args: for each parameter, in order or by name, a tensor as ``"float32[rows, cols]"``, the name of a parameter
            that gets the same tensor, a formula of sizes, or a value. An integer without one is a size of its own name.
        facts: comparisons of sizes, such as ``"cols % 16 == 0"``, and mappings from tensors to facts about their
            elements v at i: ``{"index": "0 <= v < rows, distinct"}``.
        shared_bytes: dynamic shared memory in bytes, or a formula.
        variants: of an op, only these; by default all with kernels.
        case: of an op, the case whose sizes become symbols; by default the first one.
        config: of an op, the configuration; by default each variant's own.
        arch: of an op, the architecture to compile for.
        effort: resources of the solver, a number that means the same on every machine.
        run: False to leave counterexamples unconfirmed; then nothing is refuted.

    Returns:
        `Proof`: .status is "proved", "refuted" (by a launch in which the machine finds it) or "unknown". Of an op
        `Proofs`, one for each kernel of each variant.

    Raises:
        ArgumentError: an argument that cannot be used.
        MissingToolError: Z3 is not installed.
    """
    require_solver()
    if not is_kernel(kernel):
        refuse_for_an_op(
            prove, {k: v for k, v in {"grid": grid, "block": block, "args": args}.items() if v is not None}
        )
        op = op_of(kernel)
        families = _families_of(op, variants, case, config, facts, arch)
        return Proofs(op.name, tuple(prove_family(one, one.kernel, effort=effort, run=run) for one in families))
    refuse_for_a_kernel(prove, variants=variants, case=case, config=config)
    if grid is None:
        raise ArgumentError("grid", None, "the blocks, as numbers or formulas", 'grid="cdiv(n, 256)"')
    compiled, _ = kernel_to_launch(kernel)
    return prove_family(Family(compiled, grid, block, args, facts, shared_bytes), kernel, effort=effort, run=run)


def _families_of(
    op: Any, variants: Any, case: Any, config: Mapping[str, Any] | None, facts: Any, arch: str
) -> Iterator[Family]:
    """Yield the launches of the op's variants as families. Raises ArgumentError for an op without such kernels."""
    named = variants_of(op, op.variants if variants is None else variants)
    chosen = [one for one in named if isinstance(one, DeclaredVariant)]
    if not chosen:
        allowed = "an op that wb.op makes of a reference, with a kernel in CUDA C++ or Triton"
        raise ArgumentError("op", op.name, allowed, "Prove a kernel with grid=, block= and args=.")
    own_case = op.case(case) if isinstance(case, str) else case or op.quick_case
    for one in chosen:
        yield from OpFamilies(op, one, own_case, config, facts).families(arch)


def prove_family(
    family: Family, kernel: Any, *, effort: int = EFFORT, run: bool = True, any_data: bool = True,
    contents: Mapping[str, bytes] | None = None,
) -> Proof:  # fmt: skip
    """Prove a family of launches; ``kernel`` is the kernel as the machine runs it.

    Without ``any_data`` a counterexample that needs certain elements of a tensor without facts, or a value that is not
    followed, such as an atomic's old one, is run with the ``contents`` of the tensors, by name. Without these it is not
    run, and refutes nothing.
    """
    started = time.process_time()
    try:
        made = family.specification()
    except Unknown as error:
        return Proof(family.kernel.label, UNKNOWN, "", (), dict.fromkeys(PROPERTIES, UNKNOWN), (), (str(error),))
    if _contradictory(made):
        told = ", ".join([*made.stated, *(f"{name}: {one.text}" for name, one in made.data.items())])
        raise ArgumentError("facts", told, "facts that hold for some sizes", "They contradict each other.")
    for name, fact in made.data.items():
        if not (_holds_for_some(made, fact) and _holds_for_two(made, fact)):
            allowed = "a fact that holds for some elements"
            raise ArgumentError(f"facts[{name!r}]", repr(fact.text), allowed, "Its parts contradict each other.")
    key = key_of(family.kernel.ptx, family.kernel.name, made, effort)
    known = kept_proof(key)
    if known is not None:
        return known
    examples: list[Counterexample] = []

    def confirmed(made: Specification, failure: Failure) -> bool:
        if failure.values:
            loaded = sorted({atom.name for atom, _ in failure.values if atom.kind == "load"} - made.data.keys())
            free = any_data or not (loaded or any(atom.kind == "unknown" for atom, _ in failure.values))
            known = free or contents is not None
            found = counterexample(made, failure, kernel, run and known, None if free else contents)
            named = ", ".join(loaded) if loaded else "the arrays, on which it depends"
            told = f"not run: nothing is stated about the elements of {named}"
            examples.append(found if known else replace(found, remark=told))
        return bool(examples) and examples[-1].holds

    highest = next(one for one in range(HIGHEST, -1, -1) if not _contradictory(family.specification(size_limits(one))))
    best = attempt(family, highest, Effort(effort), confirmed)
    questions, overflow, refuted = best.questions, "", bool(examples) and examples[-1].holds
    for level in range(highest if best.proved else 0):
        fewer = attempt(family, level, Effort(_EFFORT_WITHOUT, models=level == 0), lambda made, failure: True)
        questions += fewer.questions
        if fewer.proved:
            best = fewer
            break
        overflow = overflow or _overflow(fewer)
    failed = {one.kind: UNKNOWN for one in best.failures}
    left = dict.fromkeys(PROPERTIES, UNKNOWN if best.unknown or refuted else PROVED)
    properties = left | failed | ({examples[-1].kind: REFUTED} if refuted else {})
    found = Proof(
        family.kernel.label,
        REFUTED if refuted else PROVED if best.proved else UNKNOWN,
        best.specification.launches,
        _preconditions(best.specification),
        properties,
        tuple(examples[-1:] if refuted else examples),
        () if refuted else best.reasons,
        overflow,
        questions,
        time.process_time() - started,
        best.accesses,
    )
    keep(key, found)
    return found


@dataclass
class ProofAttempt:
    """Findings with the preconditions of one level: the failures, or why there is no answer."""

    specification: Specification
    failures: list[Failure]
    unknown: str
    questions: int
    accesses: ProvedAccesses | None = None

    @property
    def proved(self) -> bool:
        """True if there is nothing that was not proved."""
        return not self.failures and not self.unknown

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why it is not proved, where there is no counterexample."""
        open_ones = [f"{one.text}: the solver has no answer" for one in self.failures if not one.values]
        return (*([self.unknown] if self.unknown else []), *open_ones)


def attempt(
    family: Family, level: int, effort: Effort, enough: Callable[[Specification, Failure], bool]
) -> ProofAttempt:  # fmt: skip
    """Try to prove a family with the preconditions of a level, until a failure is ``enough``."""
    specification = family.specification(size_limits(level))
    failures: list[Failure] = []
    unknown, proved = "", None
    try:
        execution = Execution(family.module, family.kernel.name, specification, effort)
        execution.run()
        roles = in_roles(execution, family.module) if has_roles(execution) else None
        queries = Queries(execution) if roles is None else RoleQueries(roles, family.kernel.ptx)
        for one in queries.failures():
            failures.append(one)
            if enough(specification, one):
                break
        else:
            # The copies and waits of threads with roles stay with the checks.
            proved = None if roles is not None else certificate(family.kernel, specification, execution, failures)
    except Unknown as error:
        unknown = str(error)
    except OutOfBudget:
        unknown = "the effort is used up: give facts, or a larger effort="
    return ProofAttempt(specification, failures, unknown, effort.questions, proved)


def _contradictory(made: Specification) -> bool:
    """Return True if no sizes keep the preconditions, or leave each element a value: all would be proved of them."""
    rooms = [enough_values(one, made.data, made.arena) for one in made.data.values()]
    return Question(Effort(_EFFORT_WITHOUT), made.data, [*made.facts, *rooms]).ask([], model=False).contradiction


def _holds_for_some(made: Specification, fact: DataFact) -> bool:
    """Return True if an element may be as a fact says; of others everything would be proved."""
    bits = 8 * fact.size
    low = -(1 << bits - 1) if fact.signed else 0
    index = made.arena.atom("unknown", "any index", (), 0)
    element = made.arena.atom("unknown", f"any element of {fact.tensor}", (), low, low + (1 << bits) - 1)
    question = Question(Effort(_EFFORT_WITHOUT), {}, [*made.facts, below(index, fact.count)])
    question.suppose(fact.condition(index, element))
    return not question.ask([], model=False).contradiction


def _holds_for_two(made: Specification, fact: DataFact) -> bool:
    """Return True if two elements may be as a fact says of two, or if there is one element alone."""
    several = [*made.facts, at_most(2, fact.count)]
    alone = Question(Effort(_EFFORT_WITHOUT), {}, several).ask([], model=False).contradiction
    if alone or not (fact.distinct or fact.apart):
        return True
    index = made.arena.atom("unknown", "an index", (), 0, scope=THREAD)
    element = element_of(made.arena, made.tensors[fact.tensor], index)
    question = Question(Effort(_EFFORT_WITHOUT), made.data, several)
    for tag in ("1", "2"):
        question.suppose(below(index, fact.count), tag)
        question.term(element, tag)
    return not question.ask([f"(not {question.same(index)})"], model=False).contradiction


def _preconditions(made: Specification) -> tuple[str, ...]:
    """Return the preconditions in words: the sizes with their least values first."""
    least: dict[int | None, list[str]] = {}
    for name, size in made.sizes.items():
        atom = size.atom
        assert atom is not None
        least.setdefault(atom.low if atom.low == 1 else None, []).append(name)
    sizes = [f"{', '.join(names)} >= 1" if low == 1 else ", ".join(names) for low, names in least.items()]
    data = [f"{name}: {fact.text}" for name, fact in made.data.items()]
    return (*sizes, *dict.fromkeys(made.stated), *data)


def _overflow(tried: ProofAttempt) -> str:
    """Return the place where 32 bits overflow without preconditions; "" unless a launch is found that gets there."""
    for one in tried.failures:
        exact = not any(atom.kind in ("round", "unknown") for atom, _ in one.values)
        if one.values and exact:
            values = Values(one.values)
            sizes = ", ".join(f"{name} = {values.of(size):,}" for name, size in tried.specification.sizes.items())
            return f"without these preconditions: {one.text} at {sizes}"
    return ""
