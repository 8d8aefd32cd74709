#!/usr/bin/env bash
# torch saturates float8_e4m3fn but not float8_e4m3fnuz, and drops the sign for float8_e8m0fnu; ml_dtypes does neither.
#
# Versions: torch 2.13.0 (on the CPU), ml_dtypes 0.6.0, numpy 2.4.0.
# Behaviour: values beyond the range become the largest number in torch's float8_e4m3fn, infinity included, but NaN in
# torch's float8_e4m3fnuz and in ml_dtypes' float8_e4m3fn. A negative number becomes the scale of its magnitude in torch's
# float8_e8m0fnu, and NaN in ml_dtypes'. ml_dtypes' float4_e2m1fn turns NaN into -0, infinity into 6. So quantizers that
# are compared across the two libraries agree on numbers in range only.
# Output seen: see the assertions.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 ml_dtypes==0.6.0 numpy==2.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
import torch

values = [1000.0, -1e9, float("inf"), 448.0]


def of_torch(name, given):
    return torch.tensor(given).to(getattr(torch, name)).float().tolist()


def of_ml_dtypes(name, given):
    with np.errstate(all="ignore"):
        return np.array(given, np.float32).astype(getattr(ml_dtypes, name)).astype(np.float32).tolist()


seen = {
    "torch float8_e4m3fn": of_torch("float8_e4m3fn", values),
    "torch float8_e4m3fnuz": of_torch("float8_e4m3fnuz", values),
    "ml_dtypes float8_e4m3fn": of_ml_dtypes("float8_e4m3fn", values),
    "torch float8_e8m0fnu of -1, -8": of_torch("float8_e8m0fnu", [-1.0, -8.0]),
    "ml_dtypes float8_e8m0fnu of -1, -8": of_ml_dtypes("float8_e8m0fnu", [-1.0, -8.0]),
    "ml_dtypes float4_e2m1fn of nan, inf": of_ml_dtypes("float4_e2m1fn", [float("nan"), float("inf")]),
}
for name, found in seen.items():
    print(f"{name}: {found}")
assert [str(found) for found in seen.values()] == [
    "[448.0, -448.0, 448.0, 448.0]", "[nan, nan, nan, nan]", "[nan, nan, nan, 448.0]", "[1.0, 8.0]", "[nan, nan]",
    "[-0.0, 6.0]",
]
PYTHON
