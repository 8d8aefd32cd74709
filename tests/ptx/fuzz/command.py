"""Draws random programs for a while, cuts down what differs, and tells it."""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuzz import both, instructions, races
from fuzz.page import PAGE, markdown
from workbench.errors import CompilerCrash, WorkbenchError

KERNELS, TEXTS, INSTRUCTIONS, RACES = 8, 10, 24, 6  # of one round
SHRINKING = 60.0  # seconds for one difference
MOST = 5  # differences, then it ends


@dataclass
class Tally:
    """What was drawn, and what was found wrong, in words."""

    kernels: int = 0
    instructions: int = 0
    races: int = 0
    reads: int = 0  # of damaged files and images
    faults: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)  # kernels at which the compiler itself crashed

    def __str__(self) -> str:
        drawn = f"{self.kernels} kernels, {self.instructions} instructions, {self.races} planted races"
        drawn += f", {self.reads} damaged inputs" * bool(self.reads)
        crashed = f"; NVRTC crashed at {len(self.crashes)} kernels, which were left out" if self.crashes else ""
        return f"{drawn}: {len(self.faults)} faults{crashed}"


def draw_instructions(seed: int, tally: Tally, shrinking: float) -> Iterator[str]:
    """Texts of random instructions."""
    for i in range(TEXTS):
        text = instructions.draw_text(seed * TEXTS + i, INSTRUCTIONS)
        tally.instructions += len(text.steps)
        try:
            wrong = instructions.judge(text, checks=i % 4 == 0)
        except WorkbenchError as error:
            yield f"refused: {instructions.refused(text) or error}"
            continue
        if wrong is not None:
            least = instructions.shrink(wrong)
            yield f"{least}\n{least.text.ptx()}"


def draw_kernels(seed: int, tally: Tally, shrinking: float) -> Iterator[str]:
    """Kernels in CUDA C++."""
    kernels, options = both.batch(seed, KERNELS)
    try:
        differences = both.compare(kernels, **options)
    except CompilerCrash:
        crashing = both.left_out(kernels, **options)
        tally.crashes += [f"NVRTC crashed, {options}\n{kernel.source()}" for kernel in crashing]
        kernels = [kernel for kernel in kernels if kernel not in crashing]
        differences = both.compare(kernels, **options)
    tally.kernels += len(kernels)
    for difference in differences:
        least = both.shrink(difference, shrinking, time.monotonic, **options)
        yield (
            f"{least.what}\ngrid {least.kernel.grid}, blocks of {least.kernel.shape} threads, "
            f"inputs({least.kernel.seed}), {options}\n{least.kernel.source()}"
        )


def draw_races(seed: int, tally: Tally, shrinking: float) -> Iterator[str]:
    """Planted races: each is found, and nothing where there is order."""
    draw = random.Random(seed)
    planted = [(draw.choice(races.KINDS), draw.getrandbits(30)) for _ in range(RACES)]
    tally.races += len(planted)
    for one in races.outcomes(planted):
        if one.false_alarm:
            yield f"false alarm, {one.kind}: {one.false_alarm}\n{one.right}"
        if not one.found:
            yield f"missed: {one.kind}\n{one.wrong}"


def draw_bytes(seed: int, tally: Tally, shrinking: float) -> Iterator[str]:
    """Damaged files and images."""
    from fuzz import untrusted  # its readers are of every room

    tally.reads += untrusted.READS
    yield from untrusted.faults(seed)


PROGRAMS = ("instructions", "kernels", "races")
ROUNDS: dict[str, Callable[[int, Tally, float], Iterator[str]]] = {
    "instructions": draw_instructions, "kernels": draw_kernels, "races": draw_races, "bytes": draw_bytes,
}  # fmt: skip


def fuzz(seed: int, seconds: float, kinds=PROGRAMS, shrinking: float = SHRINKING, tell=lambda text: None) -> Tally:
    """Rounds of each kind in turn until the time is over, one of each at least; their seeds follow from ``seed``."""
    draw, tally, end = random.Random(seed), Tally(), time.monotonic() + seconds
    for turn, kind in enumerate(itertools.cycle(kinds)):
        if turn >= len(kinds) and (time.monotonic() >= end or len(tally.faults) >= MOST):
            return tally
        at = draw.getrandbits(32)
        for fault in ROUNDS[kind](at, tally, shrinking):
            tally.faults.append(f"{kind}, round {at} of seed {seed}: {fault}")
            tell(tally.faults[-1])


def main() -> int:
    """The command; its status is 1 if something was found wrong."""
    parser = argparse.ArgumentParser(prog="python tests/ptx/fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="fresh without it")
    parser.add_argument("--kind", choices=ROUNDS, action="append", help="these only")
    parser.add_argument("--round", type=int, help="this round alone, of the --kind that a fault names")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}: what of each class of races is found")
    chosen = parser.parse_args()
    if chosen.page:
        PAGE.write_text(markdown())
        return 0
    if chosen.round is not None:
        if len(chosen.kind or ()) != 1:
            parser.error("--round needs one --kind, as the fault names it")
        tally = Tally()
        tally.faults += ROUNDS[chosen.kind[0]](chosen.round, tally, SHRINKING)
        print(*tally.faults, *tally.crashes, tally, sep="\n")
        return bool(tally.faults)
    seed = random.SystemRandom().getrandbits(32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    tally = fuzz(seed, chosen.seconds, tuple(chosen.kind or ROUNDS), tell=lambda text: print(text, flush=True))
    print(*tally.crashes, tally, sep="\n")
    return bool(tally.faults)
