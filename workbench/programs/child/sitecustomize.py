"""What Python runs first in the processes that a program under ``workbench run`` starts: their devices are simulated
too, from their first import of Triton, PyCUDA, cuda-python or the workbench's own device on. The judge's processes
stay apart: what they run is judged there."""

import contextlib
import os
import sys


class _BeforeImport:
    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in ("triton", "pycuda", "cuda", "workbench.devices.sim"):
            sys.meta_path.remove(cls)
            from workbench.programs.running import join_run

            join_run()


if "WORKBENCH_RUN" in os.environ and "WORKBENCH_NURSERY" not in os.environ:
    sys.meta_path.insert(0, _BeforeImport)

# The environment's own file of this name, which this one stands before.
sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]
ours = sys.modules.pop("sitecustomize")
with contextlib.suppress(ImportError):
    import sitecustomize  # noqa: F401
sys.modules.setdefault("sitecustomize", ours)
