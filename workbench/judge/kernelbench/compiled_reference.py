"""The time predicted for a problem's reference under ``torch.compile``, to compare with a solution's.

The reference is compiled by Inductor on the simulated device, in a process of its own; the second call is timed. Times
are kept on disk by the problem's text, sizes and seed, the GPU's model and the versions.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from workbench.base.files import replace_file
from workbench.base.home import cache_part
from workbench.base.own_files import discard, read_own
from workbench.base.processes.worker import Worker
from workbench.base.trials.trial import canonical, digest
from workbench.base.versions import versions
from workbench.judge.kernelbench.candidate import simulate
from workbench.judge.kernelbench.problem import KernelBenchProblem, init_inputs
from workbench.judge.kernelbench.seeding import seeded

_SEED = 0
_COMPILE_SECONDS = 300.0
_LEFT_TO_LIBRARIES = re.compile(r"\b(?:extern_kernels\.|torch\.ops\.aten\.)(\w+)\S*\(")


@dataclass(frozen=True)
class CompiledReference:
    """The predicted time of one call in seconds, or None and the reason why there is none.

    ``operators`` are those that Inductor leaves to torch's libraries; their predicted time is that of their bytes
    alone.
    """

    seconds: float | None
    operators: tuple[str, ...] = field(default=())
    message: str = ""


def compiled_reference(problem: KernelBenchProblem, model: str, memory_mib: int, seconds: float) -> CompiledReference:
    """Return the time of the problem's reference under ``torch.compile``; ``seconds`` is the limit of a call."""
    text, sizes = problem.text, {name: list(pair) for name, pair in problem.sizes.items()}
    key = digest(text, canonical(sizes), model, canonical(dict(versions())))
    path = cache_part("kernelbench_references") / f"{key}.json"
    if (kept := _kept(path)) is not None:
        return kept
    try:
        with Worker(variables={"OMP_NUM_THREADS": "1"}) as worker:
            worker.call(simulate, model, memory_mib)
            found = worker.call(measure, problem, seconds=_COMPILE_SECONDS + 2 * seconds)
    except Exception as error:
        return CompiledReference(None, (), f"{type(error).__name__}: {error}".splitlines()[-1][:400])
    replace_file(path, json.dumps(asdict(found)), mode=0o644)
    return found


def _kept(path: Path) -> CompiledReference | None:
    content = read_own(path)
    if content is None:
        return None
    try:
        record = json.loads(content)
        return CompiledReference(record["seconds"], tuple(record["operators"]), record["message"])
    except (ValueError, KeyError, TypeError) as error:
        discard(path, f"{type(error).__name__}: {error}")
        return None


def measure(problem: KernelBenchProblem) -> CompiledReference:
    """Compile and time the reference in this process, on the simulated device that runs already."""
    import torch
    from torch._inductor.utils import run_and_get_code

    names = problem.namespace()
    with seeded(_SEED), torch.no_grad():
        model = names["Model"](*init_inputs(names)).cuda()
        inputs = [one.cuda() if isinstance(one, torch.Tensor) else one for one in names["get_inputs"]()]
        compiled = torch.compile(model)
        _, sources = run_and_get_code(compiled, *inputs)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        compiled(*inputs)
        end.record()
        torch.cuda.synchronize()
    lines = (line for source in sources for line in source.splitlines() if not line.lstrip().startswith("#"))
    left = sorted({name for line in lines for name in _LEFT_TO_LIBRARIES.findall(line)})
    return CompiledReference(start.elapsed_time(end) / 1e3, tuple(left))
