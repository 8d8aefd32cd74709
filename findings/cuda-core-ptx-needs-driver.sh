#!/usr/bin/env bash
# cuda.core cannot compile CUDA C++ to PTX without a driver, although NVRTC needs none.
#
# Versions: cuda-core 1.2.2, cuda-bindings 13.5.0, nvidia-cuda-nvrtc 13.5.37.
# Behaviour: Program(source, "c++").compile("ptx") with an architecture that is given asks for libcuda before it calls
# NVRTC, and raises DynamicLibNotFoundError on a machine without one (a CI runner, a laptop). The same source compiles in
# the same environment by cuda.bindings.nvrtc.
# Output seen: DynamicLibNotFoundError; NVRTC_SUCCESS and 'compute_80' PTX. With a driver the script has nothing to show.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q cuda-core==1.2.2 cuda-bindings==13.5.0 nvidia-cuda-nvrtc==13.5.37
"$folder/venv/bin/python" - <<'PYTHON'
import ctypes

from cuda.bindings import nvrtc
from cuda.core import Program, ProgramOptions

try:
    ctypes.CDLL("libcuda.so.1")
    raise SystemExit("a driver is installed here: nothing to show")
except OSError:
    pass
source = 'extern "C" __global__ void one(float* out) { out[0] = 1.f; }'
try:
    Program(source, "c++", ProgramOptions(arch="sm_80")).compile("ptx")
    raise AssertionError("cuda.core compiles without a driver now")
except RuntimeError as error:
    print("cuda.core:", type(error).__name__, str(error)[:80])
    assert type(error).__name__ == "DynamicLibNotFoundError"
_, program = nvrtc.nvrtcCreateProgram(source.encode(), b"one.cu", 0, [], [])
(result,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
_, size = nvrtc.nvrtcGetPTXSize(program)
print("cuda.bindings.nvrtc:", result, size, "bytes of PTX")
assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS
assert size > 100
PYTHON
