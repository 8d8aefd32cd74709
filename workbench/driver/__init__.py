"""A CUDA driver over the PTX machine: the real PyCUDA, and what else needs only driver calls and PTX, without a GPU.

``libcuda.so.1`` (C++, in ``library/``) holds devices, contexts, memory, streams, events and handles. Modules and
launches come back here through hooks, because PTX is read in Python and run by ``workbench.ptx``. The library lies in
the package and nothing finds it by accident: `simulated_driver` loads it, and what asks for ``libcuda.so.1`` later in
the same process gets it. ``PYCUDA.md`` lists what of PyCUDA works, ``CLIENTS.md`` what of others.
"""

from workbench.driver.simulated import Driver, simulated_driver

__all__ = ["Driver", "simulated_driver"]
