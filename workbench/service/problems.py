"""Problems that a server judges by: files and ops that stay on the server, each behind an id."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.base import by_value
from workbench.base.trials.trial import canonical, digest
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.errors import ArgumentError, UnknownNameError
from workbench.judge.arguments import MEMORY_MIB, SECONDS, SEEDS, check_limits, checked_seeds
from workbench.judge.many import JudgingTask
from workbench.judge.op_files import OpFiles
from workbench.ops.files import load_op
from workbench.ops.op import Op
from workbench.puzzles import NAMES, puzzle
from workbench.service.puzzle_ops import op_of

PUZZLES = "puzzles"
"""The name that stands for all puzzles."""

_NOT_AN_OP = ("paged_read", "ragged_prompt")
"""Puzzles whose specification works on the CPU alone, so that no op can be made of it."""

_OF_KERNELBENCH = ("full", "torch_compile", "model")
_DEFINES = {"Model", "get_inputs", "get_init_inputs"}


@dataclass(frozen=True)
class JudgingOptions:
    """Options of every judgement on a server; they belong to the identity of a verdict. See `wb.check_many`.

    ``seconds`` are CPU seconds, ``memory_mib`` MiB; ``full``, ``torch_compile`` and ``model`` are for problems in
    KernelBench's format.
    """

    seeds: int = SEEDS
    seconds: float = SECONDS
    memory_mib: int = MEMORY_MIB
    elsewhere: bool = True
    schedules: int = 0
    sandbox: bool = False
    prove: bool = False
    full: bool = False
    torch_compile: bool = True
    model: str = DEFAULT_MODEL

    def __post_init__(self) -> None:
        check_limits(self.seconds, self.memory_mib)
        checked_seeds(self.seeds)


@dataclass(frozen=True)
class Problem:
    """One problem: its ``id``, and what a worker needs to judge a candidate by it.

    Attributes:
        kind: "kernelbench", "op" or "puzzle".
        sha256: digest of everything that its answers depend on.
        languages: languages of its candidates: "python" (Triton, ``load_inline``, ``declare(op)``), "cuda".
        statement: text for whoever writes candidates; it alone may leave the server. That of a puzzle, or a file
            ``NAME.md`` beside the problem's file.
    """

    id: str
    kind: str
    sha256: str
    languages: tuple[str, ...]
    statement: str
    file: str = ""
    op: bytes = field(default=b"", repr=False)
    digests: Mapping[Path, str] = field(default_factory=dict, repr=False)

    def options(self, given: JudgingOptions, secret: bytes, variant: str = "") -> dict[str, Any]:
        """Return the options of a judgement; the seeds are always the same for a secret and a problem."""
        seeds = [_seed(secret, self.sha256, number) for number in range(given.seeds)]
        found = dataclasses.asdict(given) | {"seeds": seeds}
        if self.kind == "kernelbench":
            return found
        for name in _OF_KERNELBENCH:
            del found[name]
        found["elsewhere"] &= self.kind != "puzzle"  # which asks for its own sizes alone
        return found | {"variants": variant or None, "cases": None}

    def task(self, options: Mapping[str, Any]) -> JudgingTask:
        """Return the task of a worker, without its candidate."""
        return JudgingTask(self.op, self.file, None, options, self.digests, os.getpid())


class Problems(Mapping[str, Problem]):
    """The problems of a server by their ids.

    Each of ``sources`` is a folder of problems in KernelBench's format, such a file, ``FILE.py:OP``, the name of an
    installed op, ``puzzles``, or ``puzzle:NAME``. The id of a file in a folder is its path there without ``.py``; that
    of ``FOLDER/NAME/problem.py`` is ``NAME``. Raises ArgumentError for a source that has no problem, and for two
    problems of one id.
    """

    def __init__(self, sources: Iterable[str]):
        self._known: dict[str, Problem] = {}
        for source in sources:
            for one in _problems(source):
                if one.id in self._known:
                    raise ArgumentError("problems", f"two problems {one.id!r}", "an id for each", "Rename one of them.")
                self._known[one.id] = one
        if not self._known:
            allowed = f"folders, FILE.py:OP, names of ops, {PUZZLES}"
            raise ArgumentError("problems", "none", allowed, "Name one or more.")

    def __getitem__(self, name: str) -> Problem:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _seed(secret: bytes, problem: str, number: int) -> int:
    made = hmac.digest(secret, f"{problem} {number}".encode(), "sha256")
    return int.from_bytes(made[:4], "little") >> 1


def _problems(source: str) -> Iterator[Problem]:
    path = Path(source).expanduser()
    if path.is_dir():
        found = [file for file in sorted(path.rglob("*.py")) if _is_kernelbench(file)]
        if not found:
            remedy = "A problem's file defines Model, get_inputs and get_init_inputs."
            raise ArgumentError("problems", f"{source!r}, a folder without one", "a folder of problems", remedy)
        yield from (_kernelbench(file, file.relative_to(path)) for file in found)
    elif path.is_file():
        if not _is_kernelbench(path):
            remedy = f"Name the op of an op's file: {source}:my_op"
            raise ArgumentError("problems", repr(source), "a file with Model, get_inputs, get_init_inputs", remedy)
        yield _kernelbench(path, Path(path.parent.name, path.name) if path.stem == "problem" else Path(path.name))
    elif source == PUZZLES:
        yield from map(_puzzle, (name for name in NAMES if name not in _NOT_AN_OP))
    elif source.startswith("puzzle:"):
        yield _puzzle(source.removeprefix("puzzle:"))
    else:
        yield _op(load_op(source))


def _is_kernelbench(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:
        return False
    return {getattr(node, "name", "") for node in tree.body} >= _DEFINES


def _kernelbench(file: Path, inside: Path) -> Problem:
    content = file.read_bytes()
    name = str(inside.parent if inside.name == "problem.py" and inside.parent.name else inside.with_suffix(""))
    sha256 = hashlib.sha256(content).hexdigest()
    digests = {file.absolute(): sha256}
    return Problem(name, "kernelbench", sha256, ("python",), _statement(file), str(file.absolute()), digests=digests)


def _op(op: Op) -> Problem:
    files = OpFiles.of(op)
    own = digest("op", op.name, files.sha256, canonical(sorted(files.digests.values())))
    statement = _statement(files.file) if files.file is not None else ""
    content = by_value.dumps(op, files.modules)
    return Problem(op.name, "op", own, ("python", "cuda"), statement, op=content, digests=files.digests)


def _puzzle(name: str) -> Problem:
    found = puzzle(name)
    if name in _NOT_AN_OP:
        allowed = ", ".join(one for one in NAMES if one not in _NOT_AN_OP)
        raise UnknownNameError("problems", repr(f"puzzle:{name}"), allowed, "This one cannot be judged as an op.")
    return replace(_op(op_of(found)), id=f"puzzle/{name}", kind="puzzle", statement=str(found))


def _statement(file: Path) -> str:
    beside = file.with_suffix(".md")
    return beside.read_text() if beside.is_file() else ""
