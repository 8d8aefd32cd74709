"""Two toy ops for the tuner: ``scale`` is a real CUDA kernel, ``steps`` is Python that logs each time it is run.

Run as a script it tunes ``steps``, for tests of several and of killed processes:
``python toy.py STORE LOG SECONDS_PER_RUN``, or with ``serve STORE LOG VALUES`` one tuner after the other, each in a
process of its own, for every line that it reads.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch

from workbench.attention.ops.named_case import NamedCase
from workbench.errors import CompileError, KernelFault, KernelTimeout
from workbench.ops.op import Op
from workbench.ops.tensors import RunTensors
from workbench.ops.variant import Check, CudaStep, CudaVariant, Restriction, Variant
from workbench.toolchain.occupancy import occupancy


@dataclass(frozen=True)
class ToyProblem:
    count: int
    page: int | None = None
    dtype: str = "float32"
    layout: str = "flat"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    def to_dict(self) -> dict:
        return asdict(self)


@dataclass
class ToyTensors(RunTensors):
    x: torch.Tensor
    out: torch.Tensor


@dataclass(frozen=True)
class ToyCase(NamedCase):
    """``count`` floats; the answer is twice each."""

    name: str = "small"
    count: int = 4096
    layout: str = "flat"

    @property
    def label(self) -> str:
        return self.name

    def problem(self, config=None, arch="sm_80") -> ToyProblem:
        return ToyProblem(self.count, page=(config or {}).get("PAGE"), layout=self.layout, arch=arch)

    def inputs(self, problem, device="cpu") -> ToyTensors:
        x = torch.arange(self.count, dtype=torch.float32, device=device)
        return ToyTensors(x, torch.full_like(x, float("nan")))

    def reference(self) -> torch.Tensor:
        return 2 * torch.arange(self.count, dtype=torch.float64)

    def check(self, out) -> Check:
        error = (out.cpu().double() - self.reference()).abs().nan_to_num(float("inf")).max()
        return Check(float(error), 1e-6, bool(error <= 1e-6))

    def minimum_bytes(self, problem) -> int:
        return 8 * self.count

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, record) -> ToyCase:
        return cls(**record)


# -- a real kernel ----------------------------------------------------------------------------------------------

CASES = {"small": ToyCase(), "large": ToyCase("large", 65536)}


def scale_variant(
    modes: tuple[int, ...] = (0,),
    strided: tuple[int, ...] = (0, 1),
    threads: tuple[int, ...] = (32, 64, 128),
    name: str = "cuda_scale",
) -> CudaVariant:
    def blocks(config, problem):
        return -(-problem.count // (config["NUM_THREADS"] * config["VEC_SIZE"]))

    return CudaVariant(
        op="scale",
        name=name,
        idea="one thread, a few neighbours",
        space={"VEC_SIZE": (1, 2, 4), "NUM_THREADS": threads, "STRIDED": strided, "MODE": modes},
        restrictions=(
            Restriction("whole blocks", "count % (NUM_THREADS * VEC_SIZE) == 0", _whole_blocks),
            Restriction(
                "not 4 x 128", "VEC_SIZE * NUM_THREADS < 512", lambda c, p: c["VEC_SIZE"] * c["NUM_THREADS"] < 512
            ),
        ),
        layouts=("flat",),
        dtypes=("float32",),
        source=Path(__file__).with_name("scale.cu"),
        defaults=lambda problem: {"VEC_SIZE": 1, "NUM_THREADS": threads[-1], "STRIDED": strided[0], "MODE": modes[0]},
        steps=(CudaStep(kernel="scale", grid=lambda config, problem: (blocks(config, problem),)),),
    )


def _whole_blocks(config, problem) -> bool:
    return problem.count % (config["NUM_THREADS"] * config["VEC_SIZE"]) == 0


def scale_op(**options) -> Op:
    return Op("scale", (scale_variant(**options),), CASES, function=lambda: None)


# -- a kernel in name only --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FakeKernel:
    """What the tuner reads of a CompiledKernel."""

    registers: int = 32
    language: str = "cuda"
    spill_bytes: int = 0
    stack_bytes: int = 0
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    threads_per_block: int = 128
    compiler: str = "none"
    key: str = "0"
    from_cache: bool = False
    remarks: tuple = ()
    ptx: str = ""

    @property
    def occupancy(self):
        return occupancy("sm_80", self.threads_per_block, self.registers, self.static_shared_bytes)


def fake_report(instructions: int = 1000, blocks: int = 1, threads: int = 128, **figures) -> SimpleNamespace:
    """A LaunchReport of a launch that did little but ``instructions``."""
    names = ["load_requests", "load_sectors", "store_requests", "store_sectors", "bytes_requested"]
    report = {f"global_{name}": 0 for name in names}
    report |= {"operand_wavefronts": 0}
    report |= {f"shared_{name}": 0 for name in ("requests", "wavefronts", "ideal_wavefronts", "conflicts")}
    report |= {"unique_bytes_read": 0, "unique_bytes_written": 0, "mix": {"integer": instructions}, "lines": []}
    report |= {"instructions": instructions, "thread_instructions": 32 * instructions}
    return SimpleNamespace(**report | {"grid": (blocks,), "block": (threads,), "sampled": None} | figures)


@dataclass(frozen=True, eq=False, kw_only=True)
class StepsVariant(Variant):
    """Doubles the input in Python; STEPS is also its cost. Every run appends a line to ``log``."""

    log: Path | None = None
    seconds: float = 0.0
    behaviour: Callable[[dict], None] = field(default=lambda config: None)
    """Called with the configuration before it is run; may raise."""
    text: str = "1"

    language = "cuda"

    @property
    def source_hash(self) -> str:
        return self.text

    def kernels(self, config, problem, arch="sm_80", *, machine_code=True):
        self._log("compile", config)
        if config["STEPS"] == 13:
            raise CompileError("planted", "toy.py(13): error")
        return (FakeKernel(key=str(config)),)

    def run(self, config, problem, tensors, device, **options):
        self._log("run", config)
        self.behaviour(config)
        time.sleep(self.seconds)
        torch.mul(tensors.x, 2, out=tensors.out)
        return fake_report(config["STEPS"] * 10_000_000)

    def _log(self, what, config) -> None:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{what} {config['STEPS']} {config.get('PAGE', '')} {os.getpid()}\n")


def steps_variant(
    values=tuple(range(1, 13)), pages: tuple[int, ...] | None = None, name="steps", kind=StepsVariant, **options
):
    space = {"STEPS": values} | ({"PAGE": pages} if pages else {})
    rule = Restriction("page size", "PAGE == page", lambda c, p: not pages or p.page in (None, c["PAGE"]))
    return kind(
        op="steps",
        name=name,
        idea="costs what it is told to",
        space=space,
        restrictions=(rule,),
        layouts=("flat",),
        dtypes=("float32",),
        source=Path(__file__),
        defaults=functools.partial(_default_steps, values, pages),
        **options,
    )


def _default_steps(values, pages, problem) -> dict:
    return {"STEPS": values[-1]} | ({"PAGE": problem.page or pages[0]} if pages else {})


def steps_op(*variants, **options) -> Op:
    return Op("steps", variants or (steps_variant(**options),), {"small": ToyCase(count=64)}, function=lambda: None)


def two_sizes(*variants) -> Op:
    """The second case is scouted for on the first."""
    cases = {"small": ToyCase(count=64), "large": ToyCase("large", 65536)}
    return Op("steps", variants, cases, function=lambda: None)


def fail_by_value(config) -> None:
    """One value for each way to fail at run time."""
    errors = {14: KernelFault("planted fault"), 15: KernelTimeout("planted hang"), 16: RuntimeError("planted crash")}
    if config["STEPS"] in errors:
        raise errors[config["STEPS"]]


class WrongCase(ToyCase):
    """Its answer is not what the variants compute."""

    def reference(self):
        return super().reference() + 1


ALL_ENDS = (1, 2, 3, 13, 14, 15, 16)
ENDS = {13: "compile_error", 14: "launch_error", 15: "timeout", 16: "crash"}


def tune_steps(*variants, cases=None, store=None, **options):
    variants = variants or (steps_variant(),)
    from workbench.tuning import tune

    return tune(steps_op(*variants), cases, device="sim", store=store, **options)


def main(store: str, log: str, seconds: str) -> None:
    from workbench.tuning import tune

    run = tune(steps_op(log=Path(log), seconds=float(seconds)), device="sim", store=store, record=False)
    print(f"new {run.new} reused {run.reused} trials {len(run.trials)}")


def serve(store: str, log: str, values: str) -> None:
    from workbench.tuning import tune

    op = steps_op(values=tuple(range(1, int(values) + 1)), log=Path(log), seconds=0.01)
    for _ in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.read(reader, 1)
                tune(op, device="sim", store=store, record=False, progress=_say)
            finally:
                os._exit(0)
        print("pid", child, flush=True)
        os.write(writer, b".")
        _, status = os.waitpid(child, 0)
        print("ended", status, flush=True)


def _say(progress) -> None:
    os.write(1, f"done {progress.latest.config['STEPS']}\n".encode())


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1] == "serve" else main(*sys.argv[1:])
