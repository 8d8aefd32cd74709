"""Random kernels compiled for the PTX machine and for the CPU, run on the same inputs, and compared."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import functools
import random
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fuzz import programs
from fuzz.programs import CELLS, GIVEN
from fuzz.trees import SLOTS, Kernel, cut
from workbench import ptx
from workbench.errors import CompilerCrash, WorkbenchError
from workbench.toolchain import CompiledModule, compile_cuda_module

HERE = Path(__file__).parent
# Fused and reassociated arithmetic would round differently; signed numbers wrap on both sides where they may.
GPU_FLAGS = ("--fmad=false", "--disable-warnings")
CPU_FLAGS = (
    "-std=c++17", "-O0", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-frounding-math", "-fwrapv",
    "-fno-strict-aliasing", "-fno-gnu-unique",
)  # fmt: skip
INSTRUCTIONS = 50_000_000  # of warps; kernels execute some ten thousand, rarely millions


@dataclass(frozen=True)
class Difference:
    """Where the two sides disagree, or what the checks accuse: ``what`` in words."""

    kernel: Kernel
    what: str


@functools.cache
def _folder() -> Path:
    """Where the header is compiled beforehand, and what g++ makes lies; it goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="workbench-fuzz-")
    _folder.kept = folder
    path = Path(folder.name)
    for name in ("words.cuh", "host.hpp"):
        (path / name).write_text((HERE / name).read_text())
    flags = [flag for flag in CPU_FLAGS if flag != "-shared"]
    subprocess.run(["g++", *flags, "-x", "c++-header", path / "words.cuh", "-o", path / "words.cuh.gch"], check=True)
    return path


@contextlib.contextmanager
def on_cpu(text: str):
    """The functions of a source as g++ compiles it."""
    folder = _folder()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source, library = Path(name) / "kernels.cpp", Path(name) / "kernels.so"
        source.write_text(text)
        command = ["g++", *CPU_FLAGS, f"-I{folder}", source, "-o", library]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"g++ refuses a random kernel:\n{done.stderr[:4000]}\n{text}")
        loaded = ctypes.CDLL(str(library))
        try:
            yield loaded
        finally:
            _ctypes.dlclose(loaded._handle)


def _buffers(kernel: Kernel, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    given = np.zeros(1, GIVEN)
    given["a"], given["b"], given["c"], given["d"], given["e"] = 200, -300, -1.5, 0x123456789ABCDEF0, [[7, -8, 1 << 30]]
    given["a"] += seed % 50
    out = np.zeros(kernel.blocks * kernel.threads * SLOTS, np.uint64)
    # Vector loads want the words on 16 bytes.
    room = np.zeros(programs.INPUTS + 2, np.uint64)
    words = room[room.ctypes.data // 8 % 2 :][: programs.INPUTS]
    words[:] = programs.inputs(seed)
    return words, out, np.full(CELLS, 0x55AA55AA, np.uint32), given


def _run_on_cpu(library: ctypes.CDLL, kernel: Kernel, seed: int) -> tuple[np.ndarray, np.ndarray]:
    words, out, cells, given = _buffers(kernel, seed)
    places = [ctypes.c_void_p(array.ctypes.data) for array in (words, out, cells, given)]
    function = ctypes.cast(library[kernel.name], ctypes.c_void_p)
    stuck = library.launch(function, *kernel.grid, *kernel.shape, *places)
    if stuck:
        raise RuntimeError(f"the threads of block {stuck - 1} of {kernel.name} wait for each other:\n{kernel.source()}")
    return out, cells


def _run_on_machine(program: ptx.Program, kernel: Kernel, seed: int, **options) -> tuple[np.ndarray, np.ndarray, list]:
    words, out, cells, given = _buffers(kernel, seed)
    report = program[kernel.name].launch(
        kernel.grid,
        kernel.shape,
        [words, out, cells, given],
        shared_bytes=8 * kernel.threads,
        instruction_limit=INSTRUCTIONS,
        **options,
    )
    return out, cells, report.findings


WAYS = (
    {"threads": 1}, {"checks": True}, {"checks": True, "last_warp_first": True}, {"statistics": True, "threads": 2},
)  # fmt: skip


def _compared(library: ctypes.CDLL, program: ptx.Program, kernel: Kernel, seed: int, ways) -> str:
    """What differs, in words; empty if nothing does."""
    out, cells = _run_on_cpu(library, kernel, seed)
    for options in ways:
        try:
            got, got_cells, findings = _run_on_machine(program, kernel, seed, **options)
        except WorkbenchError as error:
            return f"with {options}: {type(error).__name__}: {error}"
        if findings:
            return f"with {options}: {findings[0].message}"
        for name, ours, theirs in (("out", got, out), ("cells", got_cells, cells)):
            at = np.flatnonzero(ours != theirs)
            if at.size:
                i = int(at[0])
                place = f"thread {i // SLOTS} slot {i % SLOTS}" if name == "out" else f"cell {i}"
                return f"with {options}: {place} is {ours[i]:#x}, on the CPU {theirs[i]:#x} ({at.size} differ)"
    return ""


def left_out(kernels: list[Kernel], arch: str = "sm_80", flags: tuple[str, ...] = ()) -> list[Kernel]:
    """Those at which the compiler itself crashes, which says nothing of the machine."""
    crashing = []
    for kernel in kernels:
        try:
            _compiled(programs.source([kernel]), arch, flags)
        except CompilerCrash:
            crashing.append(kernel)
    return crashing


def _compiled(text: str, arch: str, flags: tuple[str, ...]) -> CompiledModule:
    return compile_cuda_module(text, arch=arch, options=[*GPU_FLAGS, *flags], include_dirs=[HERE])


def compare(kernels: list[Kernel], arch: str = "sm_80", flags: tuple[str, ...] = (), ways=WAYS) -> list[Difference]:
    """The differences of kernels of different names, at most one for each. CompilerCrash as the compiler does."""
    text = programs.source(kernels)
    compiled = _compiled(text, arch, flags)
    program = ptx.Program(next(iter(compiled.kernels.values())).ptx)
    found = []
    with on_cpu(text) as library:
        for kernel in kernels:
            what = _compared(library, program, kernel, kernel.seed, ways)
            if what:
                found.append(Difference(kernel, what))
    return found


def shrink(difference: Difference, seconds: float, clock, **options) -> Difference:
    """The smallest kernel that still differs: pieces are taken away as long as one can be, and the time lasts."""
    best, end = difference, clock() + seconds
    tried: set[str] = set()
    while clock() < end:
        candidates = []
        for smaller in cut(best.kernel):
            text = smaller.source() + str(smaller.grid)
            if text not in tried:
                tried.add(text)
                candidates.append(smaller)
            if len(candidates) == 24:
                break
        if not candidates:
            break
        found = still_different(candidates, **options)
        if found:
            smallest = min(found, key=lambda one: one.kernel.size())
            best = Difference(replace(smallest.kernel, name=best.kernel.name), smallest.what)
    return best


def still_different(candidates: list[Kernel], **options) -> list[Difference]:
    """Those of the candidates that differ; what does not compile does not."""
    named = [replace(kernel, name=f"k{i}") for i, kernel in enumerate(candidates)]
    try:
        return compare(named, **options)
    except (RuntimeError, WorkbenchError):
        if len(named) == 1:
            return []
        half = len(named) // 2
        return still_different(candidates[:half], **options) + still_different(candidates[half:], **options)


def batch(seed: int, count: int) -> tuple[list[Kernel], dict]:
    """The kernels of a seed, and how they are compiled."""
    draw = random.Random(seed)
    options = {
        "arch": draw.choice(("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")),
        "flags": draw.choice(((), (), (), (), ("--device-debug",))),
    }
    return [programs.kernel(draw.getrandbits(40), f"k{i}") for i in range(count)], options
