"""A CUDA driver over the PTX machine: it runs the real PyCUDA, and other clients of the driver API, without a GPU.

``libcuda.so.1`` (C++, in ``library/``) holds devices, contexts, memory, streams, events and handles. Modules and
launches come back to Python through hooks, because PTX is parsed in Python and run by ``workbench.ptx``. The library
lies in the package, where no loader finds it by accident: `simulated_driver` loads it, and code that asks for
``libcuda.so.1`` later in the same process gets it. ``PYCUDA.md`` lists the parts of PyCUDA that work, ``CLIENTS.md``
the other clients.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = dict.fromkeys(("Driver", "simulated_driver"), "workbench.driver.simulated")

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.driver.simulated import Driver as Driver
    from workbench.driver.simulated import simulated_driver as simulated_driver


__getattr__, __dir__ = lazily(__name__, _LAZY)
