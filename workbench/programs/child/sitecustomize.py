"""Startup code of child processes: it gives them the simulated devices of their parent.

Python runs it first in the processes started by a program under ``workbench run``, or by one that has called
`workbench.simulated_gpu`. Their devices are simulated from the first import of torch's CUDA build, Triton, PyCUDA,
cuda-python or the workbench's own device on. The judge's processes are left alone: they judge what they run.
"""

import contextlib
import importlib.machinery
import os
import sys


def _is_for_gpus(torch: str) -> bool:
    spec = importlib.machinery.PathFinder.find_spec(torch)
    return spec is not None and os.path.exists(os.path.join(os.path.dirname(spec.origin or ""), "lib/libc10_cuda.so"))


class _BeforeImport:
    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> None:
        clients = ("triton", "pycuda", "cuda", "workbench.launch.sim")
        if fullname in clients or (fullname == "torch" and _is_for_gpus(fullname)):
            sys.meta_path.remove(cls)
            if "WORKBENCH_RUN" in os.environ:
                from workbench.programs.running import join_run

                join_run()
            else:
                from workbench.driver.torch_device.starting import join_gpu

                join_gpu()


if {"WORKBENCH_RUN", "WORKBENCH_GPU"} & os.environ.keys() and "WORKBENCH_NURSERY" not in os.environ:
    sys.meta_path.insert(0, _BeforeImport)

# Run the environment's own sitecustomize, which this file hides.
sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]
ours = sys.modules.pop("sitecustomize")
with contextlib.suppress(ImportError):
    import sitecustomize  # noqa: F401
sys.modules.setdefault("sitecustomize", ours)
