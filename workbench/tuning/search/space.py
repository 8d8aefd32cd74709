"""The space of a variant's legal configurations, with the reasons why a configuration is not in it.

A restriction is a plain predicate over a configuration and the problem it is used on. Running it on a configuration
that holds only some of the parameters (:class:`_Bound`) finds out which ones it reads. It is then evaluated once for
each combination of *those*, and the space is the conjunction of these small tables, broadcast. So a million raw points
under rules of two or three parameters each cost a few thousand calls, not a million times the number of rules.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from workbench.errors import ArgumentError, ConfigurationError, WorkbenchError
from workbench.ops.variant import Case, Config, Restriction, Variant

# A rule with more combinations than this is evaluated on the surviving points only.
_TABLE_LIMIT = 1 << 16
# Largest slab of the raw space, in points, that is held at a time, so that memory stays bounded.
_SLAB = 1 << 22


class _UnboundError(BaseException):
    """Signal that a rule read a parameter without a value yet. No rule's own ``except Exception`` may swallow it."""

    def __init__(self, name: str):
        self.name = name


class _Bound(dict[str, Any]):
    """Some of a space's parameters; reading one of the others raises :class:`_UnboundError`."""

    def __init__(self, values: Config, parameters: Sequence[str]):
        super().__init__(values)
        self._parameters = parameters

    def __missing__(self, name: str) -> NoReturn:
        if name in self._parameters:
            raise _UnboundError(name)
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        # A parameter without a value yet is still a member: reading it reveals that the rule needs it.
        return name in self._parameters or dict.__contains__(self, name)

    def _complete(self) -> None:
        for name in self._parameters:
            if not dict.__contains__(self, name):
                raise _UnboundError(name)

    def __bool__(self) -> bool:
        return bool(self._parameters)

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return super().__iter__()

    def __len__(self) -> int:
        self._complete()
        return super().__len__()

    def keys(self) -> Any:
        self._complete()
        return super().keys()

    def items(self) -> Any:
        self._complete()
        return super().items()

    def values(self) -> Any:
        self._complete()
        return super().values()

    def copy(self) -> dict[str, Any]:
        self._complete()
        return dict(super().items())

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return self.copy() != other

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __repr__(self) -> str:
        return repr(self.copy())

    __hash__ = None


class Space:
    """Legal configurations of a set of parameters, in the order of ``itertools.product``.

    ``parameters`` maps each name to its values in teaching order. ``restrictions`` are objects with ``name``, ``rule``
    (text) and ``holds(config, problem)``. ``problem_of(config)`` gives the problem that a configuration is used on (a
    cache's page size, for example, is both a tunable and part of the problem). ``broken(config, problem)``, if the
    owner of the rules has one, gives the broken rules for an explanation. Raises ArgumentError for a parameter without
    values or with the same value twice, and later for a rule that fails, say on a name that is not a parameter.
    """

    def __init__(
        self,
        parameters: Mapping[str, Sequence],
        restrictions: Sequence[Restriction] = (),
        problem_of: Callable[[Config], Any] | None = None,
        broken: Callable[[Config, Any], Sequence[Restriction]] | None = None,
    ):
        self.parameters = {name: tuple(values) for name, values in parameters.items()}
        for name, values in self.parameters.items():
            foreign = [value for value in values if isinstance(value, list | dict | set | np.generic | np.ndarray)]
            if foreign:
                kind = f"{foreign[0]!r} ({type(foreign[0]).__name__})"
                remedy = "Turn lists into tuples, and NumPy's numbers into Python's with .tolist()."
                raise ArgumentError(f"space[{name!r}]", kind, "plain Python values", remedy)
            if not values or len(set(values)) != len(values):
                raise ArgumentError(
                    f"space[{name!r}]", values, "one or more different values", "Correct the declaration."
                )
        self.restrictions = tuple(restrictions)
        self._problem_of = problem_of or (lambda config: None)
        self._broken = broken or (
            lambda config, problem: [r for r in self.restrictions if not r.holds(config, problem)]
        )
        self.estimate: Callable[[Config], float] | None = None
        """Expected seconds of a configuration, infinity if unknown; for searches to use."""
        self._names = tuple(self.parameters)
        self._indices: np.ndarray | None = None
        self._positions: dict[tuple, int] | None = None
        self._rejected: dict[str, int] = {}

    @classmethod
    def of(cls, variant: Variant, *cases: Case, arch: str = "sm_80") -> Space:
        """Return the configurations of a variant that are legal for every one of ``cases``, compiled for ``arch``."""

        def problems(config: Config) -> tuple:
            return tuple(case.problem(config, arch=arch) for case in cases)

        def for_all(rule: Restriction) -> Restriction:
            return Restriction(rule.name, rule.rule, lambda config, each: all(rule.holds(config, p) for p in each))

        def broken(config: Config, each: tuple) -> list[Restriction]:
            return list({rule.name: rule for problem in each for rule in variant.broken(config, problem)}.values())

        lacking = {rule.rule: None for case in cases for rule in variant.unsupported(case.problem(arch=arch))}
        supported = Restriction(
            "supported",
            "; ".join(lacking) or "the problem's layout, dtype and features are among the variant's",
            lambda config, problem: not variant.unsupported(problem),
        )
        return cls(variant.space, [for_all(rule) for rule in (supported, *variant.restrictions)], problems, broken)

    @classmethod
    def holding(cls, parameters: Mapping[str, Sequence], rule: Restriction, configs: Iterable[Config]) -> Space:
        """Return a space whose legal configurations, those that obey its one ``rule``, are given."""
        space = cls(parameters, [rule])
        places = [{value: at for at, value in enumerate(values)} for values in space.parameters.values()]
        rows = {
            tuple(place[config[name]] for name, place in zip(space.parameters, places, strict=True))
            for config in configs
        }
        space._indices = np.array(sorted(rows), dtype=np.int32).reshape(len(rows), len(places))
        space._rejected = {rule.name: space.raw_size - len(rows)}
        return space

    @property
    def raw_size(self) -> int:
        """Number of points before any restriction."""
        return math.prod(len(values) for values in self.parameters.values())

    @property
    def rejected(self) -> dict[str, int]:
        """Number of points that each rule, by name, rejects among those that the rules before it accept."""
        self._enumerate()
        return dict(self._rejected)

    @property
    def rows(self) -> np.ndarray:
        """Legal configurations as indices into the values: an int32 array [len(self), number of parameters]."""
        return self._enumerate()

    def __len__(self) -> int:
        return len(self._enumerate())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._config(row) for row in self._enumerate())

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._config(self._enumerate()[index])

    def __contains__(self, config: Config) -> bool:
        return not self.explain(config)

    def index(self, config: Config) -> int:
        """Return the place of a legal configuration in the order.

        Raises ConfigurationError, which names the broken rules, for a configuration that is not legal.
        """
        broken = self.explain(config)
        if broken:
            raise ConfigurationError("config", dict(config), "; ".join(broken), "Choose a configuration of the space.")
        if self._positions is None:
            self._positions = {tuple(row): at for at, row in enumerate(self._enumerate().tolist())}
        return self._positions[tuple(self.parameters[name].index(config[name]) for name in self._names)]

    def explain(self, config: Config) -> tuple[str, ...]:
        """Return the reasons why ``config`` is not in the space, each as ``"name: rule"``; empty if it is in it."""
        reasons = [f"{name}: a parameter of the space, and missing" for name in self._names if name not in config]
        known = ", ".join(self._names) or "none"
        reasons += [f"{name}: not a parameter; those are {known}" for name in config if name not in self._names]
        reasons += [
            f"{name}: {config[name]!r} is not one of {', '.join(map(repr, values))}"
            for name, values in self.parameters.items()
            if name in config and config[name] not in values
        ]
        if reasons:
            return tuple(reasons)
        plain = dict(config)
        return tuple(f"{rule.name}: {rule.rule}" for rule in self._broken(plain, self._problem_of(plain)))

    def explain_emptiness(self) -> str:
        """Return, for an error message about an empty space, how many points each rule rejects."""
        taken = self.rejected
        rules = (
            f"{rule.name} ({rule.rule}) takes {taken[rule.name]}" for rule in self.restrictions if taken[rule.name]
        )
        return f"all {self.raw_size} points are restricted: {', '.join(rules)}"

    def neighbours(self, config: Config, *, adjacent: bool = True) -> list[dict[str, Any]]:
        """Return legal configurations that differ from ``config`` in one parameter.

        With ``adjacent`` a parameter moves to the next value up or down among those for which the configuration is
        legal, so that a restricted value in between does not wall off the rest. Without it, it moves to any value.
        """
        found: list[dict[str, Any]] = []
        for name, values in self.parameters.items():
            here = values.index(config[name])
            below = [{**config, name: value} for value in reversed(values[:here])]
            above = [{**config, name: value} for value in values[here + 1 :]]
            for side in (below, above):
                legal = (candidate for candidate in side if not self.explain(candidate))
                found.extend(itertools.islice(legal, 1) if adjacent else legal)
        return found

    def legal_counts(self, *names: str) -> np.ndarray:
        """Count the legal configurations for each combination of these parameters' values; one axis a parameter."""
        axes = [self._names.index(name) for name in names]
        counts = np.zeros([len(self.parameters[name]) for name in names], dtype=np.int64)
        rows = self._enumerate()
        np.add.at(counts, tuple(rows[:, axis] for axis in axes), 1)
        return counts

    def sample(self, count: int, rng: random.Random) -> list[dict[str, Any]]:
        """Return ``count`` different legal configurations (all, if there are fewer), drawn by ``rng``."""
        chosen = rng.sample(range(len(self)), min(count, len(self)))
        return [self[index] for index in chosen]

    def _config(self, row: Iterable[int]) -> dict[str, Any]:
        return {name: self.parameters[name][index] for name, index in zip(self._names, row, strict=True)}

    def _enumerate(self) -> np.ndarray:
        """Return the legal configurations as int32 [configurations, parameters]: indices into the values."""
        if self._indices is not None:
            return self._indices
        shape = tuple(len(values) for values in self.parameters.values())
        tables: list[tuple[Restriction, np.ndarray]] = []
        late: list[Restriction] = []
        for rule in self.restrictions:
            table = self._table(rule)
            if table is None:
                late.append(rule)
            else:
                tables.append((rule, table))
        rejected = {rule.name: 0 for rule in (*(rule for rule, _ in tables), *late)}
        # The leading parameters are walked one value at a time, as many as needed for the rest to fit into a slab.
        outer = next((n for n in range(len(shape) + 1) if math.prod(shape[n:]) <= _SLAB), len(shape))
        parts = []
        for lead in itertools.product(*(range(n) for n in shape[:outer])):
            mask = np.ones(shape[outer:], dtype=bool)
            for rule, table in tables:
                before = int(np.count_nonzero(mask))
                mask &= table[tuple(min(i, n - 1) for i, n in zip(lead, table.shape, strict=False))]
                rejected[rule.name] += before - int(np.count_nonzero(mask))
            rows = np.argwhere(mask) if mask.ndim else np.zeros((int(mask), 0), dtype=np.intp)
            rows = np.concatenate([np.broadcast_to(np.array(lead, dtype=np.intp), (len(rows), outer)), rows], axis=1)
            for rule in late:
                keep = np.array([self._holds(rule, self._config(row)) for row in rows], dtype=bool)
                rejected[rule.name] += len(rows) - int(keep.sum())
                rows = rows[keep]
            parts.append(rows.astype(np.int32))
        self._indices = np.concatenate(parts) if parts else np.zeros((0, len(shape)), dtype=np.int32)
        self._rejected = {rule.name: rejected[rule.name] for rule in self.restrictions}
        return self._indices

    def _holds(self, rule: Restriction, config: dict[str, Any]) -> bool:
        problem = self._problem_of(config)
        try:
            return bool(rule.holds(config, problem))
        except WorkbenchError:
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {error}, for {dict(dict.items(config))}"
            remedy = f"A rule is evaluated on each combination of {', '.join(self._names)}, whatever others say."
            raise ArgumentError(f"restriction {rule.name!r} ({rule.rule})", got, "True or False", remedy) from error

    def _table(self, rule: Restriction) -> np.ndarray | None:
        """Return the rule's truth over the parameters that it reads, shaped to broadcast; None if they are too many."""
        reads: set[str] = set()
        while True:
            names = [name for name in self._names if name in reads]
            choices = [self.parameters[name] for name in names]
            if math.prod(map(len, choices)) > _TABLE_LIMIT:
                return None
            try:
                truth = [
                    self._holds(rule, _Bound(dict(zip(names, values, strict=True)), self._names))
                    for values in itertools.product(*choices)
                ]
            except _UnboundError as unbound:
                reads.add(unbound.name)
                continue
            shape = [len(self.parameters[name]) if name in reads else 1 for name in self._names]
            return np.array(truth, dtype=bool).reshape(shape)


Batches = Generator[list[dict[str, Any]], list[float], None]
"""A running strategy: it yields batches of configurations and receives their scores."""
Strategy = Callable[[Space, Config | None, random.Random], Batches]
"""A search strategy: of a space, a configuration to start from and a random generator it makes batches."""
