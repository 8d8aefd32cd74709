// Scales of the values of a tile, one per token, that multiply the weights before these become 16-bit numbers. What
// they are measured in is the largest scale so far, so that a weight stays at most 1 and keeps its precision however
// small the scales are; sums under a smaller one are shrunk, as they are under a smaller maximum of the scores.
#pragma once

#include "common/reductions.cuh"
#include "common/tensor_cores.cuh"

template <int TOKENS, bool USED> struct ValueScales {
  float unit = 1e-37f;
  float2 relative[TOKENS / 8];

  // Take the scales of the next tile from shared memory; returns what to multiply the sums so far by. A lane has tokens
  // 2 * (lane % 4) and the one after it of every 8.
  __device__ __forceinline__ float next(unsigned scales) {
    if (!USED) return 1.f;
    const float before = unit;
#pragma unroll
    for (int n = 0; n < TOKENS / 8; ++n) {
      relative[n] = load_floats(scales + 32 * n + threadIdx.x % 4 * 8);
      unit = fmaxf(unit, fmaxf(relative[n].x, relative[n].y));
    }
    unit = max_over_lanes<1, 4>(unit);
#pragma unroll
    for (int n = 0; n < TOKENS / 8; ++n) relative[n].x /= unit, relative[n].y /= unit;
    return before / unit;
  }

  __device__ __forceinline__ float of(int n, int odd) const {
    return !USED ? 1.f : odd ? relative[n].y : relative[n].x;
  }
  __device__ __forceinline__ float sums_unit() const { return USED ? unit : 1.f; }
};
