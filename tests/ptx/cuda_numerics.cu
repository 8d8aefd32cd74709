// Small programs in which an infinity or a NaN is born at the line that ends with its name, and their
// corrected twins, which `fixed` chooses: the same kernel without the fault. One warp each.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define LANE (threadIdx.x)

#define kHuge __int_as_float(0x7f800000)

__device__ float warp_max(float x) {
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ float warp_sum(float x) {
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// A row of the softmax whose scores are all masked.
extern "C" __global__ void masked_row(float* out, const float* x, int fixed) {
  const float score = x[LANE];
  float most = warp_max(score);
  if (fixed && most == -kHuge) most = 0.f;
  const float p = exp2f(score - most);  // masked_row
  const float sum = warp_sum(p);
  out[LANE] = fixed && sum == 0.f ? 0.f : p / sum;
}

// A softmax that does not subtract its maximum.
extern "C" __global__ void exp_overflow(float* out, const float* x, int fixed) {
  const float most = fixed ? warp_max(x[LANE]) : 0.f;
  const float p = exp2f(x[LANE] - most);  // exp_overflow
  out[LANE] = p / warp_sum(p);
}

// Slots behind the end of a sequence hold anything, here infinity: a weight of 0 does not remove it.
extern "C" __global__ void padded_slots(float* out, const float* p, const float* v, int length, int fixed) {
  float sum = 0.f;
  for (int i = 0; i < 32; ++i) {
    if (fixed && i >= length) break;
    sum = fmaf(i < length ? p[i] : 0.f, v[i], sum);  // padded_slots
  }
  out[LANE] = sum;
}

// A norm of zeros without an epsilon.
extern "C" __global__ void norm_of_zeros(float* out, const float* x, int fixed) {
  const float square = warp_sum(x[LANE] * x[LANE]);
  const float scale = rsqrtf(square + (fixed ? 1e-6f : 0.f));  // norm_of_zeros
  out[LANE] = x[LANE] * scale;
}

// Scores in f16 without their scale.
extern "C" __global__ void half_scores(__half* out, const float* q, const float* k, int fixed) {
  const float score = q[LANE] * k[LANE];
  out[LANE] = __float2half_rn(fixed ? score * 0.01f : score);  // half_scores
}

// Codes of e4m3 without a scale.
extern "C" __global__ void saturated_codes(unsigned short* out, const float* x, int fixed) {
  const float a = x[LANE] * (fixed ? 0.25f : 1.f), b = a * 0.5f;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out[LANE]) : "f"(a), "f"(b));  // saturated_codes
}

// The scale of a group of zeros.
extern "C" __global__ void scale_of_zero(float* out, const float* x, int fixed) {
  float scale = warp_max(fabsf(x[LANE])) / 448.f;
  if (fixed) scale = fmaxf(scale, 1e-12f);
  out[LANE] = x[LANE] / scale;  // scale_of_zero
}

// An entropy: 0 log 0.
extern "C" __global__ void log_of_zero(float* out, const float* p, int fixed) {
  const float at_least = fixed ? 1e-30f : 0.f;
  const float logarithm = __log2f(p[LANE] + at_least);  // log_of_zero
  out[LANE] = p[LANE] * logarithm;
}

// Two halves of a softmax of which neither has a token.
extern "C" __global__ void merged_halves(float* out, const float* lse, int fixed) {
  const float a = lse[LANE], b = lse[32 + LANE];
  float most = fmaxf(a, b);
  if (fixed && most == -kHuge) most = 0.f;
  const float weight = exp2f(a - most);  // merged_halves
  out[LANE] = weight;
}

// A mean of nothing.
extern "C" __global__ void empty_mean(float* out, const float* x, int count, int fixed) {
  const float sum = warp_sum(LANE < count ? x[LANE] : 0.f);
  const float number = fixed ? fmaxf(count, 1.f) : count;
  out[LANE] = sum / number;  // empty_mean
}

// A variance as a difference, which rounding makes negative.
extern "C" __global__ void negative_variance(float* out, const float* x, int fixed) {
  const float mean = warp_sum(x[LANE]) / 32.f, square = warp_sum(__fmul_rn(x[LANE], x[LANE])) / 32.f;
  float variance = __fsub_rn(square, __fmul_rn(mean, mean));
  if (fixed) variance = fmaxf(variance, 0.f);
  out[LANE] = sqrtf(variance);  // negative_variance
}

// A sum in f16.
extern "C" __global__ void half_sum(float* out, const __half* x, int fixed) {
  __half sum = __float2half(0.f);
  float wide = 0.f;
  for (int i = 0; i < 32; ++i) {
    if (fixed)
      wide += __half2float(x[i]);
    else
      sum = __hadd(sum, x[i]);  // half_sum
  }
  out[LANE] = fixed ? wide : __half2float(sum);
}

// The arc cosine of a dot product that rounding makes larger than 1.
extern "C" __global__ void arc_cosine(float* out, const float* x, int fixed) {
  const float cosine = fixed ? fminf(x[LANE], 1.f) : x[LANE];
  out[LANE] = acosf(cosine);  // arc_cosine
}

// A kernel that writes a NaN, and another one that reads it.
extern "C" __global__ void written(float* out, const float* x, int fixed) {
  out[LANE] = fixed ? x[LANE] : x[LANE] / x[LANE];  // written
}
extern "C" __global__ void read_later(float* out, const float* x) {
  out[LANE] = x[LANE] + 1.f;  // read_later
}

// A NaN that goes through shared memory, and there through a copy from global memory.
extern "C" __global__ void through_shared(float* out, const float* x, int fixed) {
  __shared__ float kept[32];
  kept[LANE] = fixed ? x[LANE] : sqrtf(x[LANE] - 4.f);  // through_shared
  __syncthreads();
  const float neighbour = kept[LANE ^ 1];
  out[LANE] = neighbour * 2.f;  // multiplied
}

// A product of matrices that sums up in f16: each element is 16 * 64 * 64.
extern "C" __global__ void product_overflow(float* out, const float* x, int fixed) {
  const __half2 one = __float2half2_rn(fixed ? 1.f : 64.f);
  const unsigned a = *reinterpret_cast<const unsigned*>(&one);
  unsigned d0 = 0, d1 = 0;
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2, %2, %2}, {%2, %2}, {%0, %1};"
      : "+r"(d0), "+r"(d1) : "r"(a));  // product_overflow
  const __half2 sum = *reinterpret_cast<const __half2*>(&d0);
  out[LANE] = __half2float(__low2half(sum)) + x[LANE];
}

// A weight of 0 times an infinite value, in a product of matrices.
extern "C" __global__ void product_of_nothing(float* out, const float* x, int fixed) {
  const __half2 zero = __float2half2_rn(0.f), value = __float2half2_rn(fixed ? 1.f : x[LANE]);
  const unsigned a = *reinterpret_cast<const unsigned*>(&zero), b = *reinterpret_cast<const unsigned*>(&value);
  float d[4] = {};
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a), "r"(b));  // product_of_nothing
  out[LANE] = d[0];
}

// Conversions to all formats, of 3e38, 1000, 5, 1e-9 and a NaN.
extern "C" __global__ void narrowed(unsigned* out, const float* x) {
  const float a = x[LANE];
  unsigned short small;
  asm volatile("{.reg .b8 c; cvt.rn.satfinite.e2m1x2.f32 c, %1, %1; cvt.u16.u8 %0, c;}" : "=h"(small) : "f"(a));  // e2m1
  out[LANE] = small;
  asm volatile("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %1;" : "=h"(small) : "f"(a));  // ue8m0
  out[32 + LANE] = small;
  asm volatile("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %1;" : "=h"(small) : "f"(a));  // e5m2
  out[64 + LANE] = small;
  out[96 + LANE] = __bfloat16_as_ushort(__float2bfloat16_rn(a));  // bf16
  out[128 + LANE] = __half_as_ushort(__float2half_rn(a));  // f16
  asm volatile("cvt.rni.sat.s8.f32 %0, %1;" : "=h"(small) : "f"(a));  // s8
  out[160 + LANE] = small;
}

// ---- which line loses the digits ----

// A sum in bf16.
extern "C" __global__ void brain_sum(float* out, const float* x, int count) {
  __nv_bfloat16 sum = __float2bfloat16_rn(0.f);
  for (int i = 0; i < count; ++i) {
    const __nv_bfloat16 next = __float2bfloat16_rn(x[32 * i + LANE]);
    sum = __hadd(sum, next);  // brain_sum
  }
  out[LANE] = __bfloat162float(sum);
}

// A variance as the difference of two large numbers.
extern "C" __global__ void naive_variance(float* out, const float* x, int count) {
  float sum = 0.f, square = 0.f;
  for (int i = 0; i < count; ++i) {
    const float one = x[32 * i + LANE];
    sum += one;
    square = fmaf(one, one, square);  // square
  }
  const float mean = sum / count;
  out[LANE] = square / count - mean * mean;  // naive_variance
}

// A softmax of scores that were narrowed to f16 before their scale.
extern "C" __global__ void unscaled_scores(float* out, const float* q, const float* k, float scale) {
  float dot = 0.f;
  for (int i = 0; i < 64; ++i) dot = fmaf(q[i], k[32 * i + LANE], dot);
  const __half narrow = __float2half_rn(dot);  // unscaled_scores
  const float score = __half2float(narrow) * scale;
  const float p = exp2f(score - warp_max(score));
  out[LANE] = p / warp_sum(p);
}

// Codes of three formats, and back: the rounding to a code is the error of the result.
extern "C" __global__ void codes(float* out, const float* x) {
  short bits;
  __half2 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(bits) : "f"(x[LANE]));  // e4m3 code
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(*reinterpret_cast<unsigned*>(&pair)) : "h"(bits));
  out[LANE] = __low2float(pair);
  float number;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=h"(bits) : "f"(x[LANE]));  // s8 code
  asm("cvt.rn.f32.s8 %0, %1;" : "=f"(number) : "h"(bits));
  out[32 + LANE] = number;
}
