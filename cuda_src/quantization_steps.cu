// Scores of a query with keys that are quantized and read back within a thread, one thread for each
// token: int8 and e4m3 with a scale for the token, NVFP4 with one in e4m3 for each 16 elements.
//
// The name behind a line is that of its step: follow the errors of each with numerics=True.
// query [SIZE], keys [tokens, SIZE], scores [tokens], all f32. Tunable: SIZE, elements of a key.
#include <cuda_fp16.h>

#ifndef SIZE
#define SIZE 128
#endif
constexpr int GROUP = 16;

__device__ float largest(const float* x, int count) {
  float most = 0.f;
  for (int i = 0; i < count; ++i) most = fmaxf(most, fabsf(x[i]));
  return most;
}

extern "C" __global__ void int8(float* scores, const float* query, const float* keys) {
  const int token = blockIdx.x * blockDim.x + threadIdx.x;
  const float* key = keys + token * SIZE;
  const float scale = largest(key, SIZE) / 127.f;  // scale
  float sum = 0.f;
  for (int i = 0; i < SIZE; ++i) {
    const float scaled = key[i] / scale;  // divide
    short code;
    float number;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=h"(code) : "f"(scaled));  // code
    asm("cvt.rn.f32.s8 %0, %1;" : "=f"(number) : "h"(code));
    sum = fmaf(query[i], number * scale, sum);  // sum
  }
  scores[token] = sum;
}

extern "C" __global__ void fp8_e4m3(float* scores, const float* query, const float* keys) {
  const int token = blockIdx.x * blockDim.x + threadIdx.x;
  const float* key = keys + token * SIZE;
  const float scale = largest(key, SIZE) / 448.f;  // scale
  float sum = 0.f;
  for (int i = 0; i < SIZE; i += 2) {
    const float low = key[i] / scale, high = key[i + 1] / scale;  // divide
    short codes;
    __half2 numbers;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));  // code
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(*reinterpret_cast<unsigned*>(&numbers)) : "h"(codes));
    sum = fmaf(query[i], __low2float(numbers) * scale, sum);       // sum
    sum = fmaf(query[i + 1], __high2float(numbers) * scale, sum);  // sum
  }
  scores[token] = sum;
}

extern "C" __global__ void nvfp4(float* scores, const float* query, const float* keys) {
  const int token = blockIdx.x * blockDim.x + threadIdx.x;
  const float* key = keys + token * SIZE;
  float sum = 0.f;
  for (int first = 0; first < SIZE; first += GROUP) {
    const float wanted = largest(key + first, GROUP) / 6.f;
    short code;
    __half2 numbers;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(code) : "f"(wanted));  // scale
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(*reinterpret_cast<unsigned*>(&numbers)) : "h"(code));
    const float scale = __low2float(numbers);
    for (int i = first; i < first + GROUP; i += 2) {
      const float low = key[i] / scale, high = key[i + 1] / scale;  // divide
      asm("{.reg .b8 c; cvt.rn.satfinite.e2m1x2.f32 c, %1, %2; cvt.rn.f16x2.e2m1x2 %0, c;}"
          : "=r"(*reinterpret_cast<unsigned*>(&numbers))
          : "f"(high), "f"(low));                                    // code
      sum = fmaf(query[i], __low2float(numbers) * scale, sum);       // sum
      sum = fmaf(query[i + 1], __high2float(numbers) * scale, sum);  // sum
    }
  }
  scores[token] = sum;
}
