"""Triton's own driver on the simulated one: its compiled launcher, its argument packing, its caches.

Only one thing is exchanged: the simulated driver runs PTX, so a kernel is loaded as that instead of as machine code.
"""

from __future__ import annotations

import os
from pathlib import Path

_latest: dict[str, Path] = {}


def start() -> None:
    """Let Triton find the simulated driver, and load the PTX of every kernel."""
    from workbench.driver.simulated import library_path

    os.environ["TRITON_LIBCUDA_PATH"] = str(library_path().parent)
    import torch
    import triton
    from triton import knobs
    from triton.runtime import cache, driver

    cache.triton_key = lambda: triton.__version__  # else the hash of all of Triton's files, in each process
    knobs.runtime.kernel_load_start_hook.add(_loading)
    utilities = driver.active.utils
    load_binary = utilities.load_binary

    def load_ptx(name: str, cubin: bytes, shared: int, device: int):
        from workbench.driver.images import image
        from workbench.toolchain.sass import resources_of

        major, minor = torch.cuda.get_device_capability(device)
        ptx = next(path for file, path in _latest.items() if file.endswith(".ptx")).read_text()
        return load_binary(name, image(ptx, resources_of(cubin, f"sm_{major}{minor}")) + b"\0", shared, device)

    utilities.load_binary = load_ptx


def _loading(module, function, name, metadata_group, kernel_hash) -> None:
    _latest.clear()
    _latest.update({file: Path(path) for file, path in metadata_group.items()})
