"""Common base of every op's cases: fields changed by name, records, and verdicts on an output."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import torch

from workbench.errors import ArgumentError
from workbench.ops import Check, Config


@dataclass(frozen=True)
class NamedCase:
    """A case whose fields are numbers, names and tuples of them; a subclass turns lists into tuples."""

    name: str
    _lengths: ClassVar[str] = ""
    """Name of the field with the lengths of sequences, if there is one."""
    _problem: ClassVar[Any]
    """Problem class of the op, whose fields are fields or properties of the case, except those with defaults."""

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> Any:
        """Return the problem to solve; a case without a page size takes it from the configuration's BLOCK_SIZE."""
        kind: Any = type(self)
        known = {name: getattr(self, name) for name in _in_common(kind, self._problem)}
        if config is not None and "BLOCK_SIZE" in config and hasattr(self._problem, "block_size"):
            known.setdefault("block_size", config["BLOCK_SIZE"])
        return self._problem(**known, arch=arch)

    def override(self, **changes: Any) -> Self:
        """Return the case with fields changed. Raises ArgumentError for a name that is not a field.

        A case with lengths also takes ``context``, the tokens of its longest sequence, and ``num_seqs``.
        """
        if not self._lengths:
            self._check_names(changes)
            return replace(self, **changes)
        self._check_names(changes, "context", "num_seqs")
        context, num_seqs = changes.pop("context", None), changes.pop("num_seqs", None)
        if context is not None or num_seqs is not None:
            lengths, seed = getattr(self, self._lengths), changes.get("seed", vars(self)["seed"])
            changes[self._lengths] = self._resized(num_seqs or len(lengths), context or max(lengths), seed)
        return replace(self, **changes)

    def _resized(self, num_seqs: int, context: int, seed: int) -> tuple[int, ...]:
        """Return lengths for another number of sequences, or of tokens."""
        return (context,) * num_seqs

    def _check_names(self, changes: Mapping[str, Any], *more: str) -> None:
        """Refuse names that are neither fields nor among ``more``, which stand for changes of several fields."""
        known = [*more, *(item.name for item in fields(self))]
        for name in changes:
            if name not in known:
                raise ArgumentError("override", name, ", ".join(known), "Name a field.")

    def _check_choices(self, **choices: Collection[str]) -> None:
        """Refuse a field whose value is none of its choices."""
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ArgumentError(name, repr(getattr(self, name)), ", ".join(allowed), "Change the case.")

    @property
    def facts(self) -> Mapping[str, str]:
        """Facts about the elements of its inputs, by name: none are declared."""
        return {}

    def viewed(self) -> Mapping[str, Any]:
        """Return no views: the tensors lie in memory as the layout says."""
        return {}

    def reshaped(self) -> Mapping[str, Any]:
        """Return nothing: its sizes are those of a model."""
        return {}

    def elsewhere(self, change: str) -> None:
        """Return None: the values follow from the seed."""
        return None

    def to_dict(self) -> dict:
        """Return plain values; `from_dict` makes the case again."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the case of a record made by `to_dict`."""
        return cls(**record)


@functools.cache
def _in_common(case: type, problem: type) -> tuple[str, ...]:
    """Return the names of the problem's fields that the case has too, as fields or properties."""
    known = {*dir(case), *(item.name for item in fields(case))}
    return tuple(item.name for item in fields(problem) if item.name in known)


class OfSequences(NamedCase):
    """Case of sequences of ``seq_lens`` tokens."""

    seq_lens: tuple[int, ...]
    _lengths = "seq_lens"

    @property
    def num_seqs(self) -> int:
        """Number of sequences."""
        return len(self.seq_lens)

    @property
    def max_seq_len(self) -> int:
        """Number of tokens of the longest sequence."""
        return max(self.seq_lens, default=0)

    @property
    def total_tokens(self) -> int:
        """Number of tokens of all sequences."""
        return sum(self.seq_lens)


class AnsweredSequences(OfSequences):
    """Case of sequences whose output ``[num_seqs, ...]`` is judged by a bound for each of them."""

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the answer and the bound, as `reference` and `bound` do."""
        raise NotImplementedError

    def reference(self) -> torch.Tensor:
        """Return the float64 answer on the CPU, ``[num_seqs, ...]``."""
        return self.answers()[0]

    def bound(self) -> torch.Tensor:
        """Return the largest error allowed in each sequence, ``[num_seqs] float64``, by the formula of its module."""
        return self.answers()[1]

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output; the verdict reports the sequence that comes closest to, or furthest past, its bound."""
        return check_sequences(out, *self.answers())


_Case = TypeVar("_Case", bound=NamedCase)


def by_name(*cases: _Case) -> dict[str, _Case]:
    """Return the cases of an op by their names, in the given order; the first is the quick one."""
    return {case.name: case for case in cases}


def check_sequences(out: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor) -> Check:
    """Judge an output ``[num_seqs, ...]`` by a bound for each sequence ``[num_seqs]``, in the maximum norm.

    The verdict reports the sequence that comes closest to, or furthest past, its bound. Another shape is an
    ArgumentError.
    """
    if out.shape != reference.shape:
        raise ArgumentError("out", f"shape {tuple(out.shape)}", str(tuple(reference.shape)), "Pass tensors.out.")
    error = (out.detach().cpu().double() - reference).abs().flatten(1).amax(1)
    error = torch.where(error.isnan(), torch.inf, error)
    worst = int((error / bound).argmax())
    return Check(float(error[worst]), float(bound[worst]), bool((error <= bound).all()))


def check_bits(out: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = torch.uint8) -> Check:
    """Judge bytes by their bits. Raises ArgumentError for another shape or dtype than that of ``expected``.

    ``max_error`` is the largest difference of two elements of ``dtype``, inf where only one of both is NaN.
    """
    if out.shape != expected.shape or out.dtype != expected.dtype:
        raise ArgumentError(
            "out", f"{out.dtype} {tuple(out.shape)}", f"{expected.dtype} {tuple(expected.shape)}", "Pass tensors.out."
        )
    got = out.detach().cpu()
    if torch.equal(got, expected):
        return Check(0.0, 0.0, True)
    got, wanted = (side.view(dtype).double() for side in (got, expected))
    error = (got - wanted).abs().nan_to_num(torch.inf)
    error[got.isnan() & wanted.isnan()] = 0.0
    return Check(float(error.max()), 0.0, False)
