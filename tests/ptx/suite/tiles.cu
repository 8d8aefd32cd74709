// Tiles in shared memory: transposes, a matrix product, a stencil, a sort, a histogram, softmax, layer norm, a radix step.
extern "C" __global__ void transpose_plain(float* out, const float* in) {
  // 32 x 32 tile of a 64 x 64 matrix, 32 x 8 threads.
  __shared__ float tile[32][32];
  int x = blockIdx.x * 32, y = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = in[(y + j) * 64 + x + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) out[(x + j) * 64 + y + threadIdx.x] = tile[threadIdx.x][j];
}
extern "C" __global__ void transpose_padded(float* out, const float* in) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32, y = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = in[(y + j) * 64 + x + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) out[(x + j) * 64 + y + threadIdx.x] = tile[threadIdx.x][j];
}
extern "C" __global__ void matmul_tiled(float* out, const float* in) {
  // C = A * B, 48 x 48 each, B behind A; 16 x 16 threads.
  __shared__ float a[16][16], b[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0.f;
  for (int k = 0; k < 48; k += 16) {
    a[ty][tx] = in[row * 48 + k + tx];
    b[ty][tx] = in[48 * 48 + (k + ty) * 48 + column];
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += a[ty][i] * b[i][tx];
    __syncthreads();
  }
  out[row * 48 + column] = sum;
}
extern "C" __global__ void stencil(float* out, const float* in) {
  // Mean of 7 neighbours, with a halo of 3 on both sides; the array has 3 elements before and after.
  __shared__ float tile[128 + 6];
  int t = threadIdx.x, at = blockIdx.x * 128 + t;
  tile[t] = in[at];
  if (t < 6) tile[128 + t] = in[at + 128];
  __syncthreads();
  float sum = 0.f;
  for (int i = 0; i < 7; i++) sum += tile[t + i];
  out[at] = sum / 7.f;
}
extern "C" __global__ void bitonic_sort(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x, at = blockIdx.x * 128 + t;
  tile[t] = in[at];
  __syncthreads();
  for (int size = 2; size <= 128; size *= 2) {
    for (int s = size / 2; s > 0; s /= 2) {
      int other = t ^ s;
      if (other > t) {
        float x = tile[t], y = tile[other];
        bool up = (t & size) == 0;
        if ((x > y) == up) tile[t] = y, tile[other] = x;
      }
      __syncthreads();
    }
  }
  out[at] = tile[t];
}
extern "C" __global__ void histogram(int* out, const float* in) {
  __shared__ int bins[16];
  int t = threadIdx.x;
  if (t < 16) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[(int)fabsf(in[blockIdx.x * 128 + t] * 8.f) & 15], 1);
  __syncthreads();
  if (t < 16) atomicAdd(&out[t], bins[t]);
}
__device__ float over_block(float x, float* scratch, bool maximum) {
  for (int s = 16; s > 0; s /= 2) {
    float other = __shfl_xor_sync(~0u, x, s);
    x = maximum ? fmaxf(x, other) : x + other;
  }
  __syncthreads();  // the last round's readers are done
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  x = scratch[0];
  for (int w = 1; w < 4; w++) x = maximum ? fmaxf(x, scratch[w]) : x + scratch[w];
  return x;
}
extern "C" __global__ void softmax(float* out, const float* in) {
  __shared__ float scratch[4];
  int at = blockIdx.x * 128 + threadIdx.x;
  float x = in[at], e = expf(x - over_block(x, scratch, true));
  out[at] = e / over_block(e, scratch, false);
}
extern "C" __global__ void layer_norm(float* out, const float* in) {
  __shared__ float scratch[4];
  int at = blockIdx.x * 128 + threadIdx.x;
  float x = in[at], centred = x - over_block(x, scratch, false) / 128.f;
  out[at] = centred * rsqrtf(over_block(centred * centred, scratch, false) / 128.f + 1e-5f);
}
extern "C" __global__ void radix_step(float* out, const float* in) {
  // One stable split by sign: negative numbers first, each half in its order.
  __shared__ int counts[4];
  int t = threadIdx.x, lane = t % 32, base = blockIdx.x * 128;
  float x = in[base + t];
  unsigned negative = __ballot_sync(~0u, x < 0.f);
  if (lane == 0) counts[t / 32] = __popc(negative);
  __syncthreads();
  int before = __popc(negative & ((1u << lane) - 1)), total = 0;
  for (int w = 0; w < 4; w++) before += w < t / 32 ? counts[w] : 0, total += counts[w];
  out[base + (x < 0.f ? before : total + t - before)] = x;
}
