"""Probes that `doctor` runs on a GPU: one kernel per language, and the compatibility of driver and compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from workbench.errors import WrongResultError

OP, CASE = "copy_blocks", "small"
"""Op and case of the probe: their expected output is known bit for bit."""

_NEWER_DRIVER = "install a newer NVIDIA driver"

_REMEDIES = {
    "unsupported toolchain|unsupported ptx|PTX was compiled": "The driver is older than the compiler: see the row "
    '"NVRTC and driver".',
    "no kernel image|kernel image is invalid|invalid device kernel": "The compiler makes no code for this GPU: "
    "python -m pip install -U 'cuda-toolkit[nvrtc]' triton",
    "C compiler|Python\\.h|gcc": "Triton compiles its launcher: install a C compiler and Python's headers (gcc, "
    "python3-dev), or name one in CC.",
    "libcuda\\.so": "Triton looks for the driver's library: run ldconfig, or set TRITON_LIBCUDA_PATH to its folder.",
    "out of memory": "Something else fills the GPU's memory: see nvidia-smi.",
    "stopped after": "The GPU does not answer: see nvidia-smi, and reset it or restart the machine.",
}


def cuda_kernel() -> str:
    """Compile a CUDA C++ kernel with NVRTC, launch it through PyCUDA, and return a sentence on what ran.

    Raises WrongResultError if its output is wrong, and any error of the compiler and the driver.
    """
    from workbench.launch import devices

    device = devices.get("cuda")
    return ran("cuda", device.arch, "cuda", lambda variant, *run: variant.run(*run, device))


def triton_kernel() -> str:
    """Launch a kernel through Triton's JIT, which needs no PyCUDA, and return a sentence on what ran.

    Raises WrongResultError if its output is wrong, and any error of the compiler and the driver.
    """
    import torch

    major, minor = torch.cuda.get_device_capability()
    return ran("triton", f"sm_{major}{minor}", "cuda", lambda variant, *run: variant.jit(*run))


def ran(language: str, arch: str, where: str, launch: Callable[..., Any]) -> str:
    """Run the op's first variant in ``language`` on tensors on the torch device ``where``, and check its output.

    ``launch(variant, config, problem, tensors)`` launches it. Returns a sentence on what ran. Raises WrongResultError
    if the output is wrong.
    """
    from workbench.ops import registry

    found = registry.get(OP)
    variant, case = next(one for one in found.variants if one.language == language), found.case(CASE)
    config = variant.default_config(case.problem(arch=arch))
    problem = case.problem(config, arch=arch)
    tensors = case.inputs(problem, where)
    launch(variant, config, problem, tensors)
    check = case.check(tensors.out)
    if not check.ok:
        raise WrongResultError(f"{variant} ran for {arch} and left wrong bytes")
    return f"{variant} ran for {arch}, and its output is right"


def remedy_of(message: str) -> str:
    """Return the advice for a launch that failed with this message."""
    for pattern, remedy in _REMEDIES.items():
        if re.search(pattern, message, re.IGNORECASE):
            return remedy
    return "The message is the driver's or the compiler's; see nvidia-smi, then dmesg for what the driver logged."


def mismatch(driver: tuple[int, int], compiler: tuple[int, int], arch: str) -> tuple[str, str] | None:
    """Return the kinds of NVRTC's code that a driver does not load, and the remedy; None if it loads all.

    Args:
        driver: the CUDA version that the driver supports, such as (13, 0).
        compiler: the CUDA version of NVRTC.
        arch: the architecture of the GPU, such as ``"sm_90"``.
    """
    if compiler <= driver:
        return None
    have, wanted = ".".join(map(str, driver)), ".".join(map(str, compiler))
    wheel = "nvidia-cuda-nvrtc" if driver[0] >= 13 else f"nvidia-cuda-nvrtc-cu{driver[0]}"
    other = f"or take NVRTC {have}: python -m pip install '{wheel}=={have}.*'"
    if compiler[0] == driver[0]:
        # CUDA's minor version compatibility: machine code of the same major release loads, PTX of a newer one does not.
        return (
            f"the driver supports CUDA {have} and NVRTC is {wanted}: its machine code loads, its PTX does not",
            f'Compile for this GPU itself (arch="{arch}"), which gives machine code; {_NEWER_DRIVER}; {other}',
        )
    return (
        f"the driver supports CUDA {have} and NVRTC is {wanted}: neither its PTX nor its machine code may load",
        f"{_NEWER_DRIVER[0].upper()}{_NEWER_DRIVER[1:]}, {other}",
    )
