#!/usr/bin/env bash
# Triton's interpreter casts floats differently from the code that Triton compiles.
#
# Versions: triton 3.7.1, torch 2.13.0, numpy 2.4.0.
# Behaviour: under TRITON_INTERPRET=1, float32 to bfloat16 cuts the low bits off, where compiled code rounds to nearest
# (`cvt.rn.bf16.f32`). float32 to float8e4nv turns 1000 into 256 and NaN into 384, where compiled code saturates
# (`cvt.rn.satfinite.e4m3x2.f32`: 448, NaN). The float16 subnormal 3 * 2**-24 becomes 2**-7, 43,000 times as large.
# So a kernel that stores bfloat16 or fp8 gives other values in the interpreter than on a GPU.
# Output seen: see the assertions; the script prints them as a table.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q triton==3.7.1 torch==2.13.0 numpy==2.4.0
cat > "$folder/kernels.py" <<'PYTHON'
import triton
import triton.language as tl


@triton.jit
def cast(out, x, TYPE: tl.constexpr):
    at = tl.arange(0, 4)
    tl.store(out + at, tl.load(x + at).to(TYPE))
PYTHON
cat > "$folder/interpreted.py" <<'PYTHON'
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton.language as tl
from kernels import cast


def interpreted(values, source, target, name):
    out = torch.zeros(4, dtype=target)
    cast[(1,)](out, torch.tensor(values, dtype=source), name)
    return out.float().tolist()


rounded = interpreted([1.00390625 + 0.00390625 * 0.9, 0.5657, 1.0, 2.0], torch.float32, torch.bfloat16, tl.bfloat16)
print("bfloat16 of 1.0074 and 0.5657:", rounded[:2])
assert rounded[:2] == [1.0, 0.5625], rounded  # the nearest are 1.0078125 and 0.56640625
nan = float("nan")
eight = interpreted([1000.0, nan, 448.0, 1.0], torch.float32, torch.float8_e4m3fn, tl.float8e4nv)
print("float8e4nv of 1000, nan, 448, 1:", eight)
assert eight == [256.0, 384.0, 448.0, 1.0], eight
small = interpreted([3 * 2.0**-24, 0.0, 1.0, 2.0], torch.float16, torch.float8_e4m3fn, tl.float8e4nv)
print("float8e4nv of the float16 3 * 2**-24:", small[0])
assert small[0] == 2.0**-7, small
PYTHON
cat > "$folder/compiled.py" <<'PYTHON'
import triton.language as tl
from kernels import cast
from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for target, name, wanted in (
    ("*bf16", tl.bfloat16, "cvt.rn.bf16.f32"),
    ("*fp8e4nv", tl.float8e4nv, "cvt.rn.satfinite.e4m3x2.f32"),
):
    source = ASTSource(cast, {"out": target, "x": "*fp32", "TYPE": "constexpr"}, {"TYPE": name})
    found = [line.split()[0] for line in compiled(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"].splitlines()
             if line.strip().startswith("cvt.rn")]
    print("compiled:", found)
    assert wanted in found, found
PYTHON
cd "$folder"
venv/bin/python interpreted.py
venv/bin/python compiled.py
