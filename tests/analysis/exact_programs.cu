// Programs that compute the same in different ways, for tests of exact comparison.
#include <cuda_fp16.h>
#define ROWS 12
#define COLUMNS 98
#define LOG2_E 1.4426950408889634f

__device__ float total(float x) {
  for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

// ---- c[48][40] = a[48][72] * b[72][40]
#define M 48
#define N 40
#define K 72
extern "C" __global__ void matmul_plain(float* c, const float* a, const float* b) {
  const int row = blockIdx.x, column = threadIdx.x;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + column];
  c[row * N + column] = sum;
}
extern "C" __global__ void matmul_tiled(float* c, const float* a, const float* b) {
  __shared__ float tile_a[8][8], tile_b[8][8];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, column = blockIdx.x * 8 + x;
  float even = 0, odd = 0;
  for (int first = 0; first < K; first += 8) {
    tile_a[y][x] = a[row * K + first + x];
    tile_b[y][x] = b[(first + y) * N + column];
    __syncthreads();
    for (int k = 0; k < 8; k += 2) {
      even += tile_a[y][k] * tile_b[k][x];
      odd += tile_a[y][k + 1] * tile_b[k + 1][x];
    }
    __syncthreads();
  }
  c[row * N + column] = even + odd;
}
extern "C" __global__ void matmul_split(float* c, const float* a, const float* b) {  // K in three
  const int row = blockIdx.x, column = threadIdx.x, part = K / 3;
  float sum = 0;
  for (int k = blockIdx.y * part; k < blockIdx.y * part + part; ++k)
    sum += a[row * K + k] * b[k * N + column];
  atomicAdd(c + row * N + column, sum);
}
extern "C" __global__ void matmul_half(float* c, const float* a, const float* b) {  // sums in f16
  const int row = blockIdx.x, column = threadIdx.x;
  __half2 sum = __float2half2_rn(0.f);
  for (int k = 0; k < K; k += 2)
    sum = __hfma2(__floats2half2_rn(a[row * K + k], a[row * K + k + 1]),
                  __floats2half2_rn(b[k * N + column], b[(k + 1) * N + column]), sum);
  c[row * N + column] = __low2float(sum) + __high2float(sum);
}

// ---- softmax of each row
extern "C" __global__ void softmax_plain(float* y, const float* x) {  // without a maximum
  const int row = blockIdx.x;
  float sum = 0;
  for (int i = 0; i < COLUMNS; ++i) sum += __expf(x[row * COLUMNS + i]);
  for (int i = threadIdx.x; i < COLUMNS; i += 32)
    y[row * COLUMNS + i] = __expf(x[row * COLUMNS + i]) / sum;
}
extern "C" __global__ void softmax_online(float* y, const float* x) {
  const int row = blockIdx.x, lane = threadIdx.x;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < COLUMNS; i += 32) {
    const float value = x[row * COLUMNS + i] * LOG2_E, higher = fmaxf(most, value);
    sum = sum * exp2f(most - higher) + exp2f(value - higher);
    most = higher;
  }
  for (int apart = 16; apart; apart /= 2) {
    const float other = __shfl_xor_sync(~0u, most, apart), added = __shfl_xor_sync(~0u, sum, apart);
    const float higher = fmaxf(most, other);
    sum = sum * exp2f(most - higher) + added * exp2f(other - higher);
    most = higher;
  }
  for (int i = lane; i < COLUMNS; i += 32)
    y[row * COLUMNS + i] = exp2f(x[row * COLUMNS + i] * LOG2_E - most) * (1.f / sum);
}
extern "C" __global__ void softmax_library(float* y, const float* x) {  // libdevice's expf
  const int row = blockIdx.x;
  float sum = 0;
  for (int i = 0; i < COLUMNS; ++i) sum += expf(x[row * COLUMNS + i]);
  for (int i = threadIdx.x; i < COLUMNS; i += 32)
    y[row * COLUMNS + i] = expf(x[row * COLUMNS + i]) / sum;
}
extern "C" __global__ void log_sum(float* y, const float* x) {  // y[ROWS]
  const int row = blockIdx.x, lane = threadIdx.x;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < COLUMNS; i += 32) most = fmaxf(most, x[row * COLUMNS + i]);
  for (int apart = 16; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
  for (int i = lane; i < COLUMNS; i += 32) sum += __expf(x[row * COLUMNS + i] - most);
  sum = total(sum);
  if (lane == 0) y[row] = most + __logf(sum);
}

// ---- norms, and x * sigmoid(x)
extern "C" __global__ void rms_norm(float* y, const float* x, float eps) {
  const int row = blockIdx.x, lane = threadIdx.x;
  float sum = 0;
  for (int i = lane; i < COLUMNS; i += 32) sum += x[row * COLUMNS + i] * x[row * COLUMNS + i];
  const float scale = rsqrtf(total(sum) * (1.f / COLUMNS) + eps);
  for (int i = lane; i < COLUMNS; i += 32) y[row * COLUMNS + i] = x[row * COLUMNS + i] * scale;
}
extern "C" __global__ void layer_norm(float* y, const float* x, float eps) {  // E[x^2] - mean^2
  const int row = blockIdx.x, lane = threadIdx.x;
  float sum = 0, squares = 0;
  for (int i = lane; i < COLUMNS; i += 32) {
    sum += x[row * COLUMNS + i];
    squares += x[row * COLUMNS + i] * x[row * COLUMNS + i];
  }
  const float mean = total(sum) / COLUMNS;
  const float scale = rsqrtf(total(squares) / COLUMNS - mean * mean + eps);
  for (int i = lane; i < COLUMNS; i += 32)
    y[row * COLUMNS + i] = (x[row * COLUMNS + i] - mean) * scale;
}
extern "C" __global__ void silu(float* y, const float* x) {  // h tanh(h) + h, h = x / 2
  for (int i = threadIdx.x; i < COLUMNS; i += 32) {
    float half = 0.5f * x[blockIdx.x * COLUMNS + i], value;
    asm("tanh.approx.f32 %0, %1;" : "=f"(value) : "f"(half));
    y[blockIdx.x * COLUMNS + i] = half * value + half;
  }
}
extern "C" __global__ void compensated(float* y, const float* x) {  // Kahan's sum; y[ROWS]
  float sum = 0, lost = 0;
  for (int i = 0; i < COLUMNS; ++i) {
    const float value = x[blockIdx.x * COLUMNS + i] - lost, next = sum + value;
    lost = (next - sum) - value;
    sum = next;
  }
  y[blockIdx.x] = sum;
}
