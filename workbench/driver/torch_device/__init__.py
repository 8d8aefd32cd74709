"""torch's ``cuda`` device on the simulated GPU: torch's own CUDA build over the workbench's driver and runtime.

Memory, streams, events, generators and graphs are torch's own. torch's operators run as its CPU kernels, on the bytes
of the simulated device; the program's own kernels, in CUDA C++ or Triton, run on the PTX machine.
"""

from workbench.base.lazy import lazily

__getattr__, __dir__ = lazily(__name__, {"simulated_gpu": "workbench.driver.torch_device.starting"})
