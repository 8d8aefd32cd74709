"""Each rule of the prover is needed: with the rule broken, a faulty kernel would be proved."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from workbench.proof.family import Family
from workbench.proof.proving import HIGHEST, attempt
from workbench.proof.solver import Effort
from workbench.toolchain import CompiledKernel

BOTH = {"out": "float32[64]", "x": "float32[64]"}
COPIED = {"out": "float32[64]", "x": "float32[64, 4]"}
ONE = {"out": "float32[64]"}
INDICES = {"out": "float32[64]", "x": "int32[64]"}
SEQUENCES = {"out": "float32[n]", "starts": "int32[blocks]", "lengths": "int32[blocks]"}
APART = ["n < 2**30", {"starts": "0 <= v < n - 64, apart by lengths", "lengths": "0 <= v < 64"}]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule in a function of the prover, the text that breaks it, and a faulty kernel that is then proved."""

    where: str
    old: str
    new: str
    kernel: str
    args: Any = None
    grid: Any = 1
    block: Any = 64
    facts: Any = ()
    repeats: bool = False
    level: int = HIGHEST
    also: tuple[str, str, str] | None = None

    def __str__(self) -> str:
        return f"{self.where.rpartition('.')[2]}-{self.kernel}"


RULES = (
    Rule("execution.Execution._barrier", "whole not in (-1, 0xFFFF_FFFF) or guard != TRUE", "False", "some_lanes_wait",
         BOTH, block=32),
    Rule("queries.Queries.unordered", "any_of([apart, ", "any_of([", "warps_do_not_meet", BOTH),
    Rule("queries.Queries._warp", ", 32)", ", 64)", "rows_of_warps", BOTH, block=(32, 2)),
    Rule("execution.Execution._special", "specification.block[1:] == (1, 1)", "True", "lane_of_a_square",
         {"out": "float32[16]"}, block=(16, 4)),
    Rule("execution.Execution.run", "if written & self.read_as_constant", "if False", "own_index",
         {"out": "float32[64]", "index": "int32[64]"}, facts={"index": "0 <= v < 64"}),
    Rule("state._joined", "if all(one == epochs[0] for one in epochs):\n        return epochs[0]",
         "return max(epochs, key=str)", "barrier_on_one_path", BOTH),
    Rule("state.merged", "both(*common, either(*rests))", "states[-1].path", "joined_paths", ONE),
    Rule("state.State.narrow", "not others_end or self.touched", "not others_end", "ended_after_a_store", BOTH),
    Rule("graph.Graph.aborts", '== "trap"', "in ENDS", "ended_after_a_store", BOTH),
    Rule("state.merged", "any(one.touched", "all(one.touched", "ended_after_a_path", BOTH),
    Rule("state.Queue.waited", "max(len(self.groups) - left, 0)", "len(self.groups)", "copied_and_read", COPIED),
    Rule("copies.copy_step", 'if "wait_all" in parts else state', "if True else state", "copied_without_a_group",
         COPIED),
    Rule("state._pending", "if all(one == several[0] for one in several):\n        return several[0]",
         "return min(several, key=len)", "copied_on_one_path", COPIED),
    Rule("copies.copy_step", "if reads != FALSE", "if False", "copied_from_outside", {"x": "float32[64 * 4 - 1]"}),
    Rule("copies.copy_step",
         "accesses(thread, statement, operands[0], width, state, guard, _WRITE._replace(values=source))",
         "[]", "copied_to_outside", {"x": "float32[64 * 4]"}),
    Rule("memory.accesses_at", "thread.endanger(", "str(", "read_before_waiting", COPIED),
    Rule("head_copies.HeadCopies.kept", "following = ", "return True\n    following = ", "copies_over_rounds", COPIED,
         also=("head_copies.HeadCopies.guess", "if not length:", "if True:")),
    Rule("loops._SymbolicLoop._kept", "new = self._new_facts", "facts = self.facts\n    new = self._new_facts",
         "far_strides", {"out": "float32[n]"}, level=0),
    Rule("loops._SymbolicLoop._agree", "if any(", "if False and any(", "rounds_of_threads", BOTH),
    Rule("loops._SymbolicLoop._epochs_at_head", "if len(own) < len(after)", "if False", "barrier_in_some_rounds", BOTH,
         also=("loops._SymbolicLoop._kept", "if expected != held:", "if False:")),
    Rule("memory.arrays_of", "(negation(condition), other)", "", "one_of_two_arrays",
         {"out": "float32[64]", "other": "float32[63]"}),
    Rule("memory.move", "16 if matrix", "2 if matrix", "rows_of_matrices", {"out": "int32[32]"}, block=32),
    Rule("memory.move", "size * count", "size", "vector_outside", {"out": "float32[64 * 4 - 1]"}),
    Rule("memory._loaded", 'kind[0] == "s" or size >= 4', "False", "signed_bytes",
         {"out": "float32[256]", "x": "int8[64]"}, also=("memory.in_register", "not isinstance(value, Term)", "True")),
    Rule("memory.move", "strong=atomic or any(", "strong=True or any(", "plain_sum", ONE),
    Rule("memory._in_block", 'one in ("cta", "cluster")', "False", "sum_of_a_block", {"out": "int32[1]"}, grid=2),
    Rule("memory._in_block", '("cta", "cluster")', '("cta",)', "sum_of_a_cluster", {"out": "int32[1]"}, grid=2),
    Rule("memory.places_of", "space and space != own", "False", "stored_elsewhere", ONE),
    Rule("memory.window", "if generic else", "if False else", "not_generic", ONE),
    Rule("values._conversion", "has_64_bits(one.thread, found)", "False", "half_an_address", ONE),
    Rule("values._conversion", "PTX_BYTES[to] < 4", "False", "byte_of_an_address", ONE),
    Rule("descriptors._pointer", "and not generic", "", "generic_under_a_mask", ONE),
    Rule("barriers.count_barrier", "not 0 <= number < _BARRIERS", "False", "seventeenth_barrier", ONE),
    Rule("memory.accesses_at", '== "const"', '== ""', "stored_to_a_constant", ONE),
    Rule("memory.destinations", '.split(",")]', '.split(",") if one.strip() in thread.graph.types]', "without_a_place",
         {"out": "float32[64]", "x": "int32[64, 4]"}, facts={"x": "v == i % 4 * 22"}),
    Rule("memory.element", "signed = fact.signed", "pass", "bytes_without_a_sign",
         {"out": "float32[64]", "x": "int8[64]"}, facts={"x": "-1 <= v < 64"}),
    Rule("memory.size_of", "variable.external and", "variable.size == 0 and", "declared_outside", ONE),
    Rule("queries.Queries._misaligned", "% one.unit:",
         '% one.unit and (tensor is not None or array.space != "local"):', "vectors_of_its_own", ONE),
    Rule("queries.Queries._misaligned", "array is not None and", "tensor is None and array is not None and",
         "vectors_of_32_bytes", {"out": "float32[64, 8]"}),
    Rule("graph.Graph._read", "is not item", "is None", "two_of_one_name", ONE),
    Rule("execution.Execution._step", "name in _NOTHING", 'name in (*_NOTHING, "createpolicy")', "policy_as_a_number",
         ONE),
    Rule("loops._SymbolicLoop._outside", "if self._may_end(", "if False and self._may_end(", "ended_in_a_loop", BOTH),
    Rule("access.following", "others == FALSE", "True", "barrier_under_a_guard", BOTH),
    Rule("execution.Execution._barrier", "if not self.role.known else ()", "if not (self.role.known or lanes) else ()",
         "copied_in_a_warp", {"out": "float32[32]", "x": "float32[32, 4]"}, block=32),
    Rule("execution.Execution._step", ' and "|" not in operands[0]', "", "other_predicate", {"out": "float32[32]"}),
    Rule("execution.Execution._special", "64 if name in _WIDE else 32", "32", "high_half_of_a_clock",
         {"out": "float32[1]"}),
    Rule("loops._SymbolicLoop.exits", "not back and self._begins()", "not back", "from_half_on", ONE),
    Rule("values.Operation.number", "found % (1 << width)", "found", "shifted_by_a_sum", ONE),
    Rule("values.Operation.number", "found % (1 << width)", "found", "many_bits", {"out": "float32[1]"}),
    Rule("queries.Queries._pairs", "one.strong and other.strong", "one.strong or other.strong",
         "store_beside_a_sum", ONE),
    Rule("queries.Queries._pairs", " and one.element == other.element", "", "sums_of_two_sizes", {"out": "uint32[64]"}),
    Rule("queries.Queries._stale", "never_overlap(one, other)", "True", "read_as_it_was", {"out": "float32[128]"}),
    Rule("queries.Queries._bounds", "either(negative(one.offset), ", "either(", "left_of_it", BOTH),
    Rule("queries.Queries._bounds", ", negative(size - one.offset - one.width)", "", "right_of_it", BOTH),
    Rule("queries.Queries._bounds", "either(outside, self._misaligned(one))", "outside", "beside_a_vector",
         {"out": "float32[64, 4]", "x": "float32[100]"}),
    Rule("queries.Queries._misaligned", "array is not None and", "False and", "vectors_of_floats",
         {"out": "float32[64, 4]"}),
    Rule("queries.Queries._barriers", "known.values()", "()", "some_reach_it", ONE),
    Rule("queries.Queries._pairs", "any(size.constant != 1 for size in self.specification.grid)", "False", "two_blocks",
         {"out": "float32[64]"}, grid=2),
    Rule("solver.Question.place", "and self._one_block", "", "two_blocks", {"out": "float32[64]"}, grid=2),
    Rule("queries.never_overlap", "high + one.width", "high", "in_the_middle",
         {"out": "float32[64, 4]", "other": "float32[1]"}),
    Rule("queries.Queries._race", '(> (+ {value} {one.width}) 0)', '(>= {value} 0)', "over_the_next",
         {"out": "float32[64, 4]"}),
    Rule("queries.Queries._race", "and same and", "and", "repeated_stores",
         {"out": "float32[32]", "x": "float32[2]"}, repeats=True),
    Rule("queries._repeated", "yield mine, its", "pass", "replicas_of_two_values", {"out": "uint32[32]"}, repeats=True),
    Rule("queries._repeated", "yield mine, its", "pass", "replicas_of_two_copies", {"x": "float32[64, 4]"},
         repeats=True),
    Rule("queries.Queries._race", "one.base == REPLICAS", 'one.base.startswith("%")', "stored_by_no_replicas", ONE,
         repeats=True),
    Rule("solver.Question._suppose_pair", "fact is not None and fact.distinct", "fact is not None", "scattered",
         {"out": "float32[64]", "index": "int32[64]"}, facts={"index": "0 <= v < 64"}),
    Rule("solver.Question._suppose_pair", "for value in fact.free", "for value in ()", "scattered",
         {"out": "float32[64]", "index": "int32[64]"}, facts={"index": "0 <= v < 64, distinct or 0"}),
    Rule("solver.Question._suppose_pair", "(<= (+ {self._variables[here]} {lengths[here]})",
         "(< (+ {self._variables[here]} {lengths[here]})", "one_place_apart", SEQUENCES, grid="blocks", facts=APART),
    Rule("memory.in_register", "not isinstance(value, Term)", "True", "extended",
         {"out": "float32[65]", "x": "int32[64]"}, facts={"x": "-1 <= v < 64"}),
    Rule("memory.in_register", "not isinstance(value, Term)", "True", "narrowed", {"out": "float32[256]"}),
    Rule("values._clamps", 'or "relu" in one.parts', "", "clamped", ONE),
    Rule("values._modulo", "factor % (1 << width)", "factor % (1 << width - 1)", "half_a_unit", ONE),
    Rule("values._shr", "one.signed and _at_least_zero(one, value)", "one.signed", "sign_of_it", ONE),
    Rule("values._shr", "one.holds(between(0, value, (1 << count) - 1))", "True", "high_bit", {"out": "float32[1]"}),
    Rule("values._shfl", "if same_in_warps(value, one.thread.specification)", "if True", "lane_asked", ONE),
    Rule("values._divide", "or not _at_least_zero(one, left)", "", "divided", {"out": "float32[64]"}),
    Rule("values._divide", "or not _at_least_zero(one, left)", "", "rest_of_it", {"out": "float32[64]"}),
    Rule("values._by_reciprocal", "if one.holds(between(0, dividend, (1 << shift) // excess - 1)):", "if True:",
         "near_a_reciprocal", {"out": "float32[1]"}),
    Rule("digits.zero_parts", "low - most > -unit and high - least < unit", "True", "digits_that_overlap",
         {"out": "float32[70]"}),
    Rule("graph._renamed", "all(name == own for name, own in names.items())", "True", "hidden_register", ONE),
    Rule("shared_values._Flow.seen_by", "access.strong or any(one.access.strong for one in several)", "False",
         "changed_meanwhile", ONE),
    Rule("shared_values._Flow.seen_by", "access.strong or any(one.access.strong for one in several)", "access.strong",
         "changed_behind_it", ONE),
    Rule("shared_values._Flow.seen_by", "_may_meet(one.access.epochs, access.epochs) and", "False and",
         "stored_behind_the_barrier", ONE),
    Rule("shared_values.SharedValues._pair_agrees", "extra.append(f\"(not {all_of([f'(= {distance} 0)', same])})\")",
         "return True", "two_values", ONE),
    Rule("shared_values.SharedValues.load", "if other == value", "", "either_value", ONE),
    Rule("shared_values.SharedValues._ways", "substituted(one.access.path, writer), ", "", "stored_by_some", ONE),
    Rule("shared_values.SharedValues._copied", "choice(zero(count), 0, data)", "data", "copied_or_zero", INDICES,
         facts={"x": "1 <= v <= 64"}),
    Rule("copies._all_or_none", "all(factor % width == 0 for factor in count.parts.values())", "True", "half_copied",
         INDICES, facts={"x": "v == 100 - 65536"}),
    Rule("shared_values.SharedValues._alone", "for other in copies", "for other in ()", "copied_twice",
         INDICES | {"y": "int32[64]"}, facts={"x": "0 <= v < 64", "y": "v == 64"}),
    Rule("shared_values.SharedValues._alone", "for other in stores", "for other in ()", "stored_over_a_copy", INDICES,
         facts={"x": "0 <= v < 64"}),
    Rule("shared_values.SharedValues._copied", "substituted(one.access.path, writer),", "", "copied_by_some", INDICES,
         facts={"x": "0 <= v < 64"}),
    Rule("shared_values.SharedValues._copied", "between(0, shift, one.size - size),", "", "beside_a_copy",
         INDICES | {"x": "int32[128]"}, facts={"x": "0 <= v < 64"}),
    Rule("state._landed", "if known else ()", "", "copied_in_rounds_of_some", INDICES | {"y": "int32[64]"},
         facts={"x": "0 <= v < 64", "y": "v == 64"}),
    Rule("conditions.narrowed", "if known.issuperset(conjuncts(holds))", "if True", "one_place_or_many", ONE),
    Rule("conditions._of_a_choice", "both(negation(condition), other)", "FALSE", "neither_way", ONE),
    Rule("conditions._joined", "negation(part) not in found", "negation(part) in found", "several_ways", ONE),
    Rule("series.in_series", "len(members) - 1", "0", "last_of_a_row", {"out": "float32[192]"}),
    Rule("copies.copy_step", "thread.constant(read[0])", "True", "written_while_copied", {"x": "float32[64 * 4]"}),
    Rule("shared_values.SharedValues._only_last_ends", "known and self.run.holds(following, condition)", "known",
         "rounds_that_do_not_come", {"out": "float32[64]", "x": "int32[64]"}),
    Rule("terms._bounds_of_ways", "if unit > 0:", "if True:", "larger_of_two",
         {"out": "float32[128]"}),
    Rule("values._shr", "most < 1 << count and _at_least_zero(one, value)", "most < 1 << count", "below_zero", ONE),
    Rule("queries.Queries._unwrapped", "self.execution.holds(one.path, between(0, dividend, divisor - 1))", "True",
         "wrapped_away", {"out": "float32[2**34]"}),
)  # fmt: skip


def the(where: str) -> Any:
    """Return a function of the prover by module and name."""
    module, _, names = where.partition(".")
    found: Any = importlib.import_module(f"workbench.proof.{module}")
    for name in names.split("."):
        found = getattr(found, name)
    return inspect.unwrap(found)


@contextlib.contextmanager
def changed(where: str, old: str, new: str) -> Iterator[None]:
    """Within the block a function of the prover has another text."""
    function = the(where)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{where} has {source.count(old)} times: {old}"
    text = "from __future__ import annotations\n" + source.replace(old, new)
    made: dict[str, Any] = {}
    exec(compile(text, function.__code__.co_filename, "exec"), function.__globals__, made)
    right = function.__code__
    function.__code__ = made[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = right


@contextlib.contextmanager
def broken(rule: Rule) -> Iterator[None]:
    """Within the block a rule is broken, perhaps with another that would save it."""
    with changed(rule.where, rule.old, rule.new), changed(*rule.also) if rule.also else contextlib.nullcontext():
        yield


@functools.cache
def module():
    return wb.load_cuda(Path(__file__).parent / "rules.cu", device="sim")


def compiled_of(rule: Rule) -> CompiledKernel:
    compiled = getattr(module(), rule.kernel).compiled
    if rule.repeats:
        compiled = dataclasses.replace(compiled)
        object.__setattr__(compiled, "signature", dataclasses.replace(compiled.signature, repeats=True))
    return compiled


def is_proved(rule: Rule) -> bool:
    family = Family(compiled_of(rule), rule.grid, rule.block, rule.args, rule.facts)
    return attempt(family, rule.level, Effort(4_000_000, models=False), lambda made, failure: True).proved


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_faulty_kernel_is_proved_only_with_a_broken_rule(rule):
    assert not is_proved(rule)
    with broken(rule):
        assert is_proved(rule)


def test_modules_with_rules_have_mutants():
    with_rules = {
        "access", "barriers", "conditions", "copies", "descriptors", "digits", "execution", "graph", "head_copies",
        "loops", "memory", "queries", "series", "shared_values", "solver", "state", "terms", "values",
    }  # fmt: skip
    assert {rule.where.partition(".")[0] for rule in RULES} == with_rules


def test_two_stores_of_replicas_are_a_race_in_the_machine_too():
    rule = next(one for one in RULES if one.kernel == "repeated_stores")
    report = wb.check_kernel(
        compiled_of(rule), grid=1, block=64, args=[np.zeros(32, "f"), np.arange(2.0, dtype="f"), 0]
    )
    assert [one.kind for one in report.findings] == ["shared race"]
