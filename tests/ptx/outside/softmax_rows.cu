// One warp per row: soft cap with tanh.approx, softmax in base two with ex2.approx.ftz, butterflies of shfl.sync.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float butterfly(float x, int lane_mask) {
  float y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;\n" : "=f"(y) : "f"(x), "r"(lane_mask));
  return y;
}

extern "C" __global__ void softmax(const float* in, float* out, float* lse, float cap, int width) {
  const float log2e = 1.44269504088896340736f;
  const int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  float largest = -5e4f, sum = 0;  // finite: a lane without elements must not take infinity from infinity
  for (int i = lane; i < width; i += 32) {
    float t;
    asm volatile("tanh.approx.f32 %0, %1;\n" : "=f"(t) : "f"(in[row * width + i] / cap));
    const float x = t * cap * log2e;
    float both;
    asm volatile("max.f32 %0, %1, %2;\n" : "=f"(both) : "f"(largest), "f"(x));
    sum = sum * exp2_approx(largest - both) + exp2_approx(x - both);
    largest = both;
    out[row * width + i] = x;
  }
  for (int m = 16; m > 0; m /= 2) {
    const float other = butterfly(largest, m), other_sum = butterfly(sum, m), both = fmaxf(largest, other);
    sum = sum * exp2_approx(largest - both) + other_sum * exp2_approx(other - both);
    largest = both;
  }
  float inverse, log;
  asm volatile("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(inverse) : "f"(sum));
  asm volatile("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(log) : "f"(sum));
  for (int i = lane; i < width; i += 32) out[row * width + i] = exp2_approx(out[row * width + i] - largest) * inverse;
  if (lane == 0) lse[row] = largest + log;
}
