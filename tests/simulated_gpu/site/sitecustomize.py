"""On PYTHONPATH of a process that is to have a simulated GPU, and of all that it starts: it gets one with torch."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

SIZES = {
    "workbench.tuning.measuring.gpu_timing": {"FLUSHED_BYTES": 1 << 20},
    "workbench.attention.bench.paged_attention.measured": {"_RESERVE_BYTES": 1 << 20, "_ROUNDS": 2},
    "workbench.attention.bench.paged_attention.benchmark": {"STREAMED_BYTES": 1 << 20, "_STREAMED_STEP": 1 << 16},
}
"""What is there to keep a GPU busy for long would keep the PTX machine busy for hours."""


class _Loader(importlib.abc.Loader):
    """Loads a module of SIZES with these."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        vars(module).update(SIZES.get(module.__name__, {}))
        if module.__name__ == "workbench.base.processes.worker":
            _count_what_is_killed(module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in WATCHED:
            return None
        if name == "torch":
            WATCHED.remove(name)
            _start()
            return importlib.util.find_spec(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _start():
    import workbench

    workbench.simulated_gpu("h200", devices=2, memory_bytes=4 << 30, force=True)


def _count_what_is_killed(worker):
    """A worker is ended by a signal that no process can catch: what it has executed is kept before each answer."""
    import coverage

    packed = worker._packed

    def saved(*answer):
        coverage.Coverage.current().save()
        return packed(*answer)

    worker._packed = saved


WATCHED = set()
if os.environ.get("COVERAGE_PROCESS_START"):  # see blind.py
    import coverage

    coverage.process_startup()
    WATCHED |= {"workbench.base.processes.worker"}
if os.environ.get("WORKBENCH_SIMULATED_GPU"):
    WATCHED |= {"torch", *SIZES}
if WATCHED:
    sys.meta_path.insert(0, _Finder())
if "torch" in WATCHED & sys.modules.keys():  # in a fork of what has imported it
    WATCHED.remove("torch")
    _start()
for name in SIZES.keys() & sys.modules.keys() & WATCHED:
    vars(sys.modules[name]).update(SIZES[name])
