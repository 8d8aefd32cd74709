"""torch's ``cuda`` device on the simulated GPU: torch's own CUDA build over our driver and runtime.

Memory, streams, events, generators and graphs are torch's own. Its operators run as the kernels of its CPU, on the same
bytes; kernels of the program's own, in CUDA C++ or Triton, run on the PTX machine.
"""

from workbench.base.lazy import lazily

__getattr__, __dir__ = lazily(__name__, {"simulated_gpu": "workbench.driver.torch_device.starting"})
