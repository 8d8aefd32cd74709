#!/usr/bin/env bash
# __launch_bounds__(384) is not enough for setmaxnreg: ptxas drops the instruction, and exits with 0.
#
# Versions: nvidia-cuda-nvcc 13.0.88 (ptxas of CUDA 13.0).
# Behaviour: for sm_90a, a kernel that moves registers from one warp group to another by setmaxnreg keeps these instructions
# only if its register count at entry is known: from .minnctapersm or .maxnreg. With .maxntid alone, or nothing, ptxas
# ignores every setmaxnreg of the kernel, says so in an "info" line (C7508), and succeeds. Warp-specialised kernels then run
# with one register count for all roles.
# Output seen: "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry" in
# the first two cases, no line in the others.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nvidia-cuda-nvcc==13.0.88
ptxas="$(find "$folder/venv" -name ptxas -type f)"
cd "$folder"
said() { # directives of the kernel -> what ptxas prints
  cat > kernel.ptx <<PTX
.version 8.6
.target sm_90a
.address_size 64
.visible .entry roles(.param .u64 out) $1
{
  .reg .pred %p;
  .reg .u32 %r;
  .reg .u64 %rd;
  mov.u32 %r, %tid.x;
  setp.lt.u32 %p, %r, 128;
  @%p bra producer;
  setmaxnreg.inc.sync.aligned.u32 232;
  ld.param.u64 %rd, [out];
  cvta.to.global.u64 %rd, %rd;
  st.global.u32 [%rd], %r;
  ret;
producer:
  setmaxnreg.dec.sync.aligned.u32 40;
  ret;
}
PTX
  "$ptxas" -arch=sm_90a kernel.ptx -o kernel.cubin 2>&1
}
for directives in "" ".maxntid 384"; do
  found="$(said "$directives")"
  echo "[$directives] $found"
  grep -q "C7508.*'setmaxnreg' ignored" <<< "$found"
done
for directives in ".maxntid 384 .minnctapersm 1" ".maxntid 384 .maxnreg 168"; do
  found="$(said "$directives")"
  echo "[$directives] ${found:-nothing}"
  [ -z "$found" ]
done
