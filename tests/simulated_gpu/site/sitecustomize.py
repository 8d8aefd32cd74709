"""On PYTHONPATH of a process that is to have a simulated GPU, and of all that it starts: it gets one before torch."""

import importlib.abc
import importlib.machinery
import os
import sys


class _Imported(importlib.abc.Loader):
    """Of a module that is there already."""

    def create_module(self, spec):
        return sys.modules[spec.name]

    def exec_module(self, module):
        """Nothing is left to do."""


class _BeforeTorch(importlib.abc.MetaPathFinder):
    """Starts the simulated GPU when torch is first looked for, which imports it on the way."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import simulated_gpu

        simulated_gpu.start()
        known = sys.modules["torch"].__spec__
        spec = importlib.machinery.ModuleSpec("torch", _Imported(), origin=known.origin, is_package=True)
        spec.submodule_search_locations = known.submodule_search_locations
        return spec


if os.environ.get("WORKBENCH_SIMULATED_GPU"):
    sys.meta_path.insert(0, _BeforeTorch())
