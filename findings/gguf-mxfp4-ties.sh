#!/usr/bin/env bash
# gguf's MXFP4 quantizer rounds ties towards zero and cuts the largest values, and its NVFP4 has no quantizer.
#
# Versions: gguf 0.19.0, ml_dtypes 0.6.0, numpy 2.4.0.
# Behaviour: in a block of scale 1, the values between two codes (0.75, 1.75, 3.5) get the smaller code, where rounding to
# nearest even (ml_dtypes' float4_e2m1fn, `cvt.rn.satfinite.e2m1x2.f32` of PTX) gives the even one. A block whose largest
# magnitude is 7.9 keeps the scale 1, so that 7.9 is stored as 6. quants.NVFP4 reads blocks, and raises
# NotImplementedError when it is asked to write them.
# Output seen: gguf [0.5, 1.5, 3.0], nearest even [1.0, 2.0, 4.0]; 7.9 becomes 6.0.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q gguf==0.19.0 ml_dtypes==0.6.0 numpy==2.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
from gguf import quants


def through_mxfp4(*values):
    block = np.zeros((1, 32), np.float32)
    block[0, : len(values)] = values
    return quants.MXFP4.dequantize_blocks(quants.MXFP4.quantize_blocks(block))[0, : len(values)].tolist()


ties = [0.75, 1.75, 3.5]
found = through_mxfp4(*ties, 6.0)[:3]
nearest = np.array(ties, np.float32).astype(ml_dtypes.float4_e2m1fn).astype(np.float32).tolist()
print("gguf:", found, "nearest even:", nearest)
assert (found, nearest) == ([0.5, 1.5, 3.0], [1.0, 2.0, 4.0])
largest = through_mxfp4(7.9)
print("7.9 becomes", largest[0])
assert largest == [6.0]
try:
    quants.NVFP4.quantize_blocks(np.zeros((1, 64), np.float32))
    raise SystemExit("quants.NVFP4 writes blocks now")
except NotImplementedError:
    print("quants.NVFP4.quantize_blocks: NotImplementedError")
PYTHON
