"""A puzzle: a kernel to write, with its specification, sizes and goals, and the mistakes that are likely in it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.exact import (
    ExactAnswer,
    OnElements,
    Side,
    as_floats,
    compared,
    elements,
    is_float,
    result_of,
    ringed,
)
from workbench.base.tables import WIDTH
from workbench.errors import ArgumentError, CompileError, KernelFault
from workbench.launch import Kernel, Module, check_kernel, trace_kernel
from workbench.launch.checking import run_on_elements
from workbench.launch.sim import machine_kernel
from workbench.ops.expressions import Expression
from workbench.ops.tensors.inputs import make
from workbench.puzzles import general
from workbench.puzzles.feedback import Feedback, Measured, Remark, cells_of
from workbench.puzzles.run import PuzzleRun, outputs_for
from workbench.puzzles.signs import Sign, code_line

if TYPE_CHECKING:
    from workbench.analysis.trace import Trace
    from workbench.ui.picture import Picture

_SECONDS = 10.0
"""Time limit of a launch: enough for a hundred times the work of a puzzle."""
_FIGURES = {
    "global_sectors": "sectors moved",
    "global_load_sectors": "sectors loaded",
    "shared_conflicts": "wavefronts from bank conflicts",
    "instructions": "warp instructions",
}
LANGUAGES = ("CUDA", "Triton")


@dataclass(frozen=True)
class Goal:
    """A figure of the trace and the most that it may be at the puzzle's last sizes.

    ``mistake`` names what a kernel that misses it did, ``remedy`` says what to do.
    """

    figure: str
    at_most: int
    mistake: str
    remedy: str
    languages: Sequence[str] = LANGUAGES


@dataclass(frozen=True)
class Mistake:
    """A mistake that is likely in a puzzle: its name, the sign that shows it, and what to do."""

    name: str
    sign: Sign
    remedy: str


@dataclass(frozen=True)
class PuzzleLaunch:
    """The launch of a puzzle's kernel in one language: expressions over the sizes.

    ``block`` has the threads of a block in CUDA, ``constants`` the constexprs in Triton.
    """

    grid: tuple[str, ...]
    block: tuple[int, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Puzzle:
    """One small kernel to write in CUDA C++ and in Triton, and a check that names what is wrong with it.

    Attributes:
        name: the name for `puzzle`.
        claim: the result in one line.
        spec: the specification in plain torch; its parameters are the inputs.
        parameters: the kernel's parameters in order: outputs, inputs and sizes by name.
        inputs: descriptions of the inputs, as for a case of ``wb.op``.
        sizes: the sizes of each run of a check; the goals hold for the last.
        launches: the launch in each language.
        hints: hints in steps, each of which gives away more.
    """

    name: str
    claim: str
    spec: Callable[..., Any]
    parameters: tuple[str, ...]
    inputs: Mapping[str, Any]
    sizes: Sequence[Mapping[str, int]]
    launches: Mapping[str, PuzzleLaunch]
    mistakes: Sequence[Mistake]
    hints: Sequence[str]
    draw: Callable[[], Picture]
    outputs: tuple[str, ...] = ("out",)
    goals: Sequence[Goal] = ()
    _shown: int = field(default=0, init=False, repr=False)

    # -- the task -----------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        spec = textwrap.dedent(inspect.getsource(self.spec)).strip()
        runs = "; ".join(", ".join(f"{name} = {size}" for name, size in sizes.items()) for sizes in self.sizes)
        goals = [f"{_only(goal)}at most {goal.at_most:,} {_FIGURES[goal.figure]}" for goal in self.goals]
        facts = [
            ("kernel", f"{self.name}({', '.join(self.parameters)})"),
            *((language, _launch_text(language, launch)) for language, launch in self.launches.items()),
            ("sizes", runs),
            ("goals", f"{'; '.join(goals)} (at the last sizes)"),
        ]
        lines = [f"{self.name}: {self.claim}", textwrap.indent(spec, "    ")]
        for label, text in facts:
            lines += textwrap.wrap(text, WIDTH, initial_indent=f"{label:8}", subsequent_indent=" " * 8)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<puzzle {self.name}: {self.claim}>"

    @property
    def picture(self) -> Picture:
        """A picture of the elements that the kernel reads and writes."""
        return self.draw()

    def hint(self) -> None:
        """Print the next hint; after the last one, begin again."""
        at = self._shown % len(self.hints)
        self._shown = at + 1
        print(textwrap.fill(f"hint {at + 1} of {len(self.hints)}: {self.hints[at]}", WIDTH))

    def launch(self, language: str = "CUDA", run: int = -1) -> dict[str, Any]:
        """Return grid, block and arguments of a run as ``wb.trace`` and ``wb.check`` take them.

        ``language`` is "CUDA" or "Triton", ``run`` the position in `sizes`. The arguments are fresh tensors.
        """
        if language not in LANGUAGES:
            raise ArgumentError("language", repr(language), " or ".join(LANGUAGES), "Choose one of these.")
        return self._call(self._prepared(language, self.sizes[run]))

    # -- the check ----------------------------------------------------------------------------------------------

    def check(self, kernel: Any, *, exact: bool = False) -> Feedback:
        """Run a kernel on every size with all checks, and report its mistakes or the goals that it reaches.

        ``kernel`` is a module of ``wb.load_cuda`` or of a ``%%cuda`` cell with one kernel, one of its kernels, or a
        ``@triton.jit`` function. It runs in the PTX machine, also on a machine with a GPU. The first sizes with a
        mistake end the check. With ``exact`` a kernel with right results is also compared with the specification on
        elements of a ring, without a tolerance (docs/EXACT.md); a difference is no mistake. Raises ArgumentError for an
        object that is not a kernel or has other parameters.
        """
        kernel, language = self._kernel(kernel)
        right: list[str] = []
        for sizes in self.sizes:
            run = self._prepared(language, sizes)
            remarks, run = self._tried(kernel, run)
            if remarks:
                cells = "" if run.is_right else cells_of(*_states(run))
                return Feedback(self.name, language, tuple(remarks), tuple(right), cells=cells)
            right.append(run.label)
        feedback = self._judged(kernel, language, tuple(right))
        return replace(feedback, exact=self._compared(kernel, language)) if exact else feedback

    def _kernel(self, kernel: Any) -> tuple[Any, str]:
        """Return the kernel and its language, after a look at its parameters."""
        if isinstance(kernel, Module):
            names = list(kernel)
            if len(names) != 1:
                remedy = "Pass one of them, as module.name."
                raise ArgumentError("kernel", f"a module of {', '.join(names) or 'no kernel'}", "one kernel", remedy)
            kernel = kernel[names[0]]
        if isinstance(kernel, Kernel):
            names, language = list(kernel.compiled.parameter_names), "CUDA"
        elif hasattr(kernel, "arg_names"):
            launch = self.launches["Triton"]
            names, language = [name for name in kernel.arg_names if name not in launch.constants], "Triton"
            if missing := set(launch.constants) - set(kernel.arg_names):
                remedy = "Keep the parameters of the kernel that the puzzle starts with."
                raise ArgumentError("kernel", f"one without {', '.join(missing)}", str(list(launch.constants)), remedy)
        else:
            remedy = "Pass the variable of a %%cuda cell, module.name of load_cuda, or the function under @triton.jit."
            raise ArgumentError("kernel", type(kernel).__name__, "a kernel in CUDA C++ or Triton", remedy)
        if len(names) != len(self.parameters):
            remedy = "Keep the parameters of the kernel that the puzzle starts with."
            allowed = f"({', '.join(self.parameters)})"
            raise ArgumentError("kernel", f"parameters ({', '.join(names)})", allowed, remedy)
        return kernel, language

    def _prepared(self, language: str, sizes: Mapping[str, int], seed: int = 0) -> PuzzleRun:
        """Return a run that has not begun: inputs, expected outputs, and outputs to write."""
        arguments = {name: make(given, name, sizes, seed) for name, given in self.inputs.items()}
        expected = self._specified(arguments, sizes)
        outputs = outputs_for(expected)
        before = {name: out.clone() for name, out in outputs.items()}
        return PuzzleRun(language, sizes, arguments, expected, outputs, before)

    def _specified(self, arguments: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """Return the outputs that the specification computes."""
        known = {**arguments, **sizes}
        returned = self.spec(**{name: known[name] for name in inspect.signature(self.spec).parameters})
        several = returned if isinstance(returned, tuple) else (returned,)
        return dict(zip(self.outputs, several, strict=True))

    def _call(self, run: PuzzleRun) -> dict[str, Any]:
        launch = self.launches[run.language]
        known = {**run.sizes, **run.arguments, **run.outputs}
        grid = tuple(Expression.of("grid", size).whole(run.sizes) for size in launch.grid)
        call: dict[str, Any] = {"grid": grid, "args": [known[name] for name in self.parameters]}
        if run.language == "CUDA":
            return {**call, "block": launch.block}
        constants = {name: Expression.of(name, value)(run.sizes) for name, value in launch.constants.items()}
        return {**call, "kwargs": constants}

    def _tried(self, kernel: Any, run: PuzzleRun) -> tuple[list[Remark], PuzzleRun]:
        """Run the kernel with all checks and return the remarks on the run."""
        notes: tuple[str, ...] = ()
        try:
            report = check_kernel(kernel, **self._call(run), seconds_limit=_SECONDS)
            findings, notes = report.findings, report.notes
        except CompileError as refused:
            return [general.refused(run, refused)], run
        except KernelFault as stopped:
            findings = (stopped.finding,) if stopped.finding is not None else ()
            if not findings:
                return [Remark("kernel that stops", run.label, str(stopped), "", "See the line that it names.")], run
        run = replace(run, findings=findings, notes=notes)
        if not findings and run.wrote_nothing:
            return [general.nothing(run)], run
        return list(self._remarks(kernel, run)), run

    def _remarks(self, kernel: Any, run: PuzzleRun) -> Iterator[Remark]:
        known: set[str] = set()
        named = False
        for mistake in self.mistakes:
            evidence = mistake.sign(run)
            if evidence is None:
                continue
            named = True
            if evidence.finding is None:
                known |= general.CONSEQUENCES
            else:
                known.add(general.ALIASES.get(evidence.finding.kind, evidence.finding.kind))
            yield Remark(mistake.name, run.label, evidence.seen, evidence.line, mistake.remedy)
        rest = [*general.of_findings(run, known), *general.of_notes(run)]
        yield from rest
        if not named and not rest and not run.is_right:
            yield from self._of_output_read(kernel, run) or general.of_values(run)

    def _of_output_read(self, kernel: Any, run: PuzzleRun) -> list[Remark]:
        """Return a remark if the kernel reads an output before it writes it: another run checks only that."""
        again = self._prepared(run.language, run.sizes)
        fresh = [at for at, name in enumerate(self.parameters) if name in self.outputs]
        report = check_kernel(kernel, **self._call(again), uninitialised=fresh, seconds_limit=_SECONDS)
        found = [one for one in report.findings if one.kind == "uninitialised global read"]
        return list(general.of_findings(replace(run, findings=tuple(found)), set()))

    def _compared(self, kernel: Any, language: str) -> ExactAnswer:
        """Compare a kernel with the specification on elements of a ring, at the last sizes."""

        def inputs(number: int) -> dict[str, torch.Tensor]:
            given = self._prepared(language, self.sizes[-1], seed=number).arguments
            return {name: one for name, one in given.items() if is_float(one)}

        def specified(number: int, replaced: Mapping[str, torch.Tensor], side: Side) -> dict[str, torch.Tensor]:
            given = self._prepared(language, self.sizes[-1], seed=number).arguments
            ring = {name: ringed(replaced.get(name, one), side.operators) for name, one in given.items()}
            with OnElements(side.operators):
                found = self._specified(ring, self.sizes[-1])
            return {name: result_of(one) for name, one in found.items()}

        def launched(number: int, replaced: Mapping[str, torch.Tensor], side: Side) -> dict[str, torch.Tensor]:
            run = self._prepared(language, self.sizes[-1], seed=number)
            for name, one in replaced.items():
                run.arguments[name].copy_(as_floats(one))
            compiled = run_on_elements(kernel, **self._call(run), seconds_limit=_SECONDS)
            side.take_kernels([machine_kernel(compiled)])
            return {name: elements(one) for name, one in run.outputs.items()}

        return compared(Side(specified, inputs, called="the specification"), Side(launched, inputs))

    # -- the goals ----------------------------------------------------------------------------------------------

    def _judged(self, kernel: Any, language: str, right: tuple[str, ...]) -> Feedback:
        """Compare the figures of a right kernel with the goals."""
        goals = [goal for goal in self.goals if language in goal.languages]
        if not goals:
            return Feedback(self.name, language, (), right)
        run = self._prepared(language, self.sizes[-1])
        recorded = (0, 0, 0)
        trace = trace_kernel(kernel, **self._call(run), record_block=recorded, seconds_limit=_SECONDS)
        measured, remarks, picture = [], [], None
        for goal in goals:
            one = Measured(_FIGURES[goal.figure], getattr(trace, goal.figure), goal.at_most)
            measured.append(one)
            if not one.ok:
                line, picture = _worst(trace, goal.figure)
                seen = f"{one.value:,} {one.figure}, the goal is at most {one.at_most:,}"
                remarks.append(Remark(goal.mistake, run.label, seen, line, goal.remedy))
        return Feedback(self.name, language, tuple(remarks), right, tuple(measured), trace, picture)


def _only(goal: Goal) -> str:
    return "" if len(goal.languages) > 1 else f"in {goal.languages[0]} "


def _launch_text(language: str, launch: PuzzleLaunch) -> str:
    grid = ", ".join(launch.grid)
    if language == "CUDA":
        return f"grid ({grid}), block ({', '.join(map(str, launch.block))})"
    constants = "".join(f", {name}={value}" for name, value in launch.constants.items())
    return f"grid ({grid}){constants}"


def _states(run: PuzzleRun) -> tuple[str, list[list[str]]]:
    """Return the first output with a wrong element, and the state of each element by rows."""
    name = next(name for name, wrong in run.wrong.items() if bool(wrong.any()))
    wrong, unwritten = run.wrong[name], run.unwritten[name]
    rows = torch.stack([wrong, unwritten]).reshape(2, -1, wrong.shape[-1])
    names = ("right", "wrong", "not written")
    return name, [[names[int(state)] for state in row] for row in rows.sum(0)]


def _worst(trace: Trace, figure: str) -> tuple[str, Picture | None]:
    """Return the line that costs most of a figure, and a picture of its costliest recorded request."""
    shared = figure == "shared_conflicts"

    def waste(line: Any) -> tuple[int, int]:
        if figure == "instructions":
            return line.instructions, 0
        if shared:
            return line.shared_conflicts, 0
        return line.global_sectors - line.global_ideal_sectors, line.global_sectors

    worst = max(trace.lines, key=waste)
    text = code_line(worst.path, worst.line)
    if figure == "instructions" or trace.recording is None:
        return text, None
    space = "shared" if shared else "global"
    requests = [one for one in trace.recording.requests if one.kernel_line == worst.line and one.space == space]
    if not requests:
        return text, None
    if shared:
        from workbench.ui.bank_picture import bank_map

        return text, bank_map(max(requests, key=lambda one: one.wavefronts - one.ideal_wavefronts))
    from workbench.ui.sector_picture import warp_map

    return text, warp_map(max(requests, key=lambda one: one.sectors))
