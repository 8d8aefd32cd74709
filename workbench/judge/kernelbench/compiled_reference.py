"""The time predicted for a problem's reference under ``torch.compile``, to compare with a solution's.

The reference is compiled by Inductor on the simulated device, in a process of its own; the second call is timed. Times
are kept on disk by the problem's text, sizes and seed, the GPU's model and the versions; the reason why there is none
is kept in this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.files import replace_file
from workbench.base.home import cache_part
from workbench.base.own_files import discard, read_own
from workbench.base.processes.fork_server import Child
from workbench.base.processes.forking import Main
from workbench.base.trials.trial import canonical, digest
from workbench.base.versions import versions
from workbench.errors import WorkbenchError
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


_failed: dict[Path, CompiledReference] = {}


def compiled_reference(
    problem: KernelBenchProblem, model: str, seconds: float, fork: Callable[[], Child]
) -> CompiledReference:
    """Return the time of the problem's reference under ``torch.compile``; ``seconds`` is the limit of a call.

    ``fork`` returns a process in which `serve` answers, on the simulated ``model``.
    """
    text, sizes = problem.text, {name: list(pair) for name, pair in problem.sizes.items()}
    key = digest(text, canonical(sizes), model, canonical(dict(versions())))
    path = cache_part("kernelbench_references") / f"{key}.json"
    if (kept := _kept(path) or _failed.get(path)) is not None:
        return kept
    limit = _COMPILE_SECONDS + 2 * seconds
    child = fork()
    try:
        child.request(problem, limit)
        found = _read(child.json(limit))
    except WorkbenchError as error:
        found = _refused(error)
    finally:
        child.end()
    if found.seconds is None:
        _failed[path] = found
    else:
        replace_file(path, json.dumps(asdict(found)), mode=0o644)
    return found


def _kept(path: Path) -> CompiledReference | None:
    content = read_own(path)
    if content is None:
        return None
    try:
        return _read(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:
        discard(path, f"{type(error).__name__}: {error}")
        return None


def _read(record: Mapping[str, Any]) -> CompiledReference:
    return CompiledReference(record["seconds"], tuple(record["operators"]), record["message"])


def _refused(error: Exception) -> CompiledReference:
    return CompiledReference(None, (), f"{type(error).__name__}: {error}".splitlines()[-1][:400])


# -- in the process that compiles ---------------------------------------------------------------------------------


def serve() -> Main:
    """Return the function that answers a problem with the time of its reference, on the simulated device."""

    def main(problem: Any, send: Callable[[bytes], None]) -> None:
        try:
            found = _measured(problem)
        except Exception as error:
            found = _refused(error)
        send(json.dumps(asdict(found)).encode())

    return main


def _measured(problem: KernelBenchProblem) -> CompiledReference:
    import torch
    import torch._inductor.config
    from torch._inductor.utils import run_and_get_code

    torch._inductor.config.compile_threads = 1  # its pool imports all of torch again in each process
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
