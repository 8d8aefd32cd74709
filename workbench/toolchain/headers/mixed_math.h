// What a host compiler's <cmath> adds and NVRTC lacks: functions of two floating-point types, taken as double.
// The nvcc of the simulated driver includes it before every source, because PyCUDA's own kernels rely on it.
#pragma once
#define WORKBENCH_MIXED(name)                                                              \
  __device__ inline double name(float a, double b) { return name((double)a, b); } \
  __device__ inline double name(double a, float b) { return name(a, (double)b); }
WORKBENCH_MIXED(pow)
WORKBENCH_MIXED(fmod)
WORKBENCH_MIXED(atan2)
WORKBENCH_MIXED(hypot)
WORKBENCH_MIXED(copysign)
#undef WORKBENCH_MIXED
