#!/usr/bin/env bash
# In a Triton program a scalar load is made by every thread, a later atomic by one, and no barrier lies between them.
#
# Version: triton 3.7.1, compiled for sm_80 with 4 warps; no GPU is needed.
# Behaviour: `tl.load(flag)` of one element becomes a load by all 128 threads, and `tl.atomic_xchg(flag, 1)` behind a
# branch on it an `atom` by thread 0 alone. Between the two there is no `bar.sync`, so that a warp which comes late reads
# what thread 0 has exchanged, and takes the other branch than the warps before it. Reduction kernels of the form "the
# first program stores, later ones add", under a lock, have this in Triton. With `tl.debug_barrier()` behind the load the
# barrier is there.
# Output seen: "load by every thread, exchange by thread 0, 0 barriers between; with debug_barrier: 1".
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q triton==3.7.1
cat > "$folder/flag.py" <<'PYTHON'
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def first_or_add(total, flag, value, APART: tl.constexpr):
    seen = tl.load(flag)
    if APART:
        tl.debug_barrier()
    if seen == 0:
        tl.atomic_xchg(flag, 1)
        tl.store(total, value)
    else:
        tl.store(total, tl.load(total) + value)


def compiled(apart):
    signature = {"total": "*fp32", "flag": "*i32", "value": "fp32", "APART": "constexpr"}
    source = ASTSource(fn=first_or_add, signature=signature, constexprs={"APART": apart})
    made = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4})
    return [line.strip() for line in made.asm["ptx"].splitlines()]


def between(lines):
    load = next(at for at, line in enumerate(lines) if "ld.global" in line)
    exchange = next(at for at, line in enumerate(lines) if "atom.global" in line)
    assert load < exchange
    assert not lines[load].startswith("@"), lines[load]  # no thread is left out
    guard = re.match(r"@(%p\d+) atom", lines[exchange])[1]
    assert any(re.match(rf"setp\.eq\.b32\s+{guard}, %r\d+, 0;", line) for line in lines), guard  # thread 0
    return sum("bar.sync" in line for line in lines[load:exchange])


plain, apart = between(compiled(False)), between(compiled(True))
print(f"load by every thread, exchange by thread 0, {plain} barriers between; with debug_barrier: {apart}")
assert (plain, apart) == (0, 1)
PYTHON
"$folder/venv/bin/python" "$folder/flag.py"
