// Elements of a quantized cache as floats, without their scale.
#pragma once

#include <cuda_fp8.h>

__device__ __forceinline__ float to_float(signed char value) { return value; }
__device__ __forceinline__ float to_float(__nv_fp8_e4m3 value) { return float(value); }
__device__ __forceinline__ float to_float(__nv_fp8_e5m2 value) { return float(value); }
