#!/usr/bin/env bash
# Numba's CUDA simulator computes with NumPy's types, compiled kernels with Numba's: other precision, other overflow.
#
# Versions: numba-cuda 0.30.4, numba 0.68.1, llvmlite 0.50.0, numpy 2.4.0.
# Behaviour: under NUMBA_ENABLE_CUDASIM=1 an element of a float32 array times 0.1 is a float32 (NumPy 2's rule for
# scalars), where compiled code converts to float64 and multiplies there. The square of an int32 element wraps to 32 bits
# in the simulator, where compiled code multiplies 64-bit integers.
# Output seen: x * 0.1 - x * 0.1000001 of 1.0 is -9.68575478e-08 in the simulator, -1e-07 in float64; the square of
# 100,000 divided by 100,000 is 14,100 in the simulator; the PTX has mul.f64 and mul.lo.s64.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "numba-cuda[cu13]==0.30.4" numba==0.68.1 llvmlite==0.50.0 numpy==2.4.0
cat > "$folder/kernels.py" <<'PYTHON'
from numba import cuda


def difference(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * 0.1 - x[i] * 0.1000001


def square(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = (x[i] * x[i]) // x[i]
PYTHON
cat > "$folder/simulated.py" <<'PYTHON'
import os
import warnings

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
import kernels
import numpy as np
from numba import cuda

warnings.simplefilter("ignore", RuntimeWarning)
out = np.zeros(1)
cuda.jit(kernels.difference)[1, 1](out, np.ones(1, np.float32))
print("simulator, difference:", out[0])
assert out[0] == np.float32(0.1) - np.float32(0.1000001) != 0.1 - 0.1000001, out
out = np.zeros(1, np.int64)
cuda.jit(kernels.square)[1, 1](out, np.array([100_000], np.int32))
print("simulator, 100000**2 // 100000:", out[0])
assert out[0] == 14_100, out
PYTHON
cat > "$folder/compiled.py" <<'PYTHON'
import kernels
from numba import cuda, float32, float64, int32, int64

floats, _ = cuda.compile_ptx(kernels.difference, (float64[::1], float32[::1]), cc=(8, 0))
whole, _ = cuda.compile_ptx(kernels.square, (int64[::1], int32[::1]), cc=(8, 0))
for wanted, ptx in (("mul.f64", floats), ("cvt.f64.f32", floats), ("mul.lo.s64", whole)):
    print("compiled:", wanted, wanted in ptx)
    assert wanted in ptx
assert "mul.f32" not in floats
PYTHON
cd "$folder"
venv/bin/python simulated.py
venv/bin/python compiled.py
