// Functions of scores by the special function unit alone, without what exp2f and tanhf do for numbers that make no
// difference to a softmax.
#pragma once

// 2^x; 0 for what is less than 2^-126.
__device__ __forceinline__ float exp2_or_zero(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// tanh(x) by its definition, to 2^-22 absolute.
__device__ __forceinline__ float tanh_of(float x) {
  return 1.f - __fdividef(2.f, 1.f + exp2_or_zero(2.f * 1.4426950408889634f * x));
}
