// The sum of n floats, in the classic stages. Each block leaves its part in out[blockIdx.x], unless it says otherwise.
constexpr int BLOCK = 128;

extern "C" __global__ void reduce_divergent(float* out, const float* in, int n) {
  // Every second thread works, then every fourth: all warps stay busy with ever fewer lanes.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : 0.f;
  for (int s = 1; s < BLOCK; s *= 2) {
    __syncthreads();
    if (t % (2 * s) == 0) tile[t] += tile[t + s];  // step
  }
  if (t == 0) out[blockIdx.x] = tile[0];
}
extern "C" __global__ void reduce_conflicts(float* out, const float* in, int n) {
  // The first threads work, so warps retire; but their elements lie 2 s apart, in ever fewer banks.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : 0.f;
  for (int s = 1; s < BLOCK; s *= 2) {
    __syncthreads();
    int at = 2 * s * t;
    if (at < BLOCK) tile[at] += tile[at + s];  // step
  }
  if (t == 0) out[blockIdx.x] = tile[0];
}
extern "C" __global__ void reduce_sequential(float* out, const float* in, int n) {
  // The upper half is added to the lower one: neither divergence nor conflicts, until less than a warp is left.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : 0.f;
  for (int s = BLOCK / 2; s > 0; s /= 2) {
    __syncthreads();
    if (t < s) tile[t] += tile[t + s];  // step
  }
  if (t == 0) out[blockIdx.x] = tile[0];
}
extern "C" __global__ void reduce_first_add(float* out, const float* in, int n) {
  // Half of the threads would idle from the start: let each bring two elements.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * 2 * BLOCK + t;
  float x = i < n ? in[i] : 0.f;     // first load
  if (i + BLOCK < n) x += in[i + BLOCK];  // second load
  tile[t] = x;
  for (int s = BLOCK / 2; s > 0; s /= 2) {
    __syncthreads();
    if (t < s) tile[t] += tile[t + s];
  }
  if (t == 0) out[blockIdx.x] = tile[0];
}
extern "C" __global__ void reduce_unrolled_warp(float* out, const float* in, int n) {
  // One warp is left at 64 elements. Since Volta its lanes need __syncwarp, where older texts rely on volatile.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : 0.f;
  __syncthreads();
  if (t < 64) tile[t] += tile[t + 64];
  __syncthreads();
  if (t >= 32) return;
  float x = tile[t] + tile[t + 32];
  for (int s = 16; s > 0; s /= 2) {
    tile[t] = x;  // put
    __syncwarp();
    x += tile[t + s];  // get
    __syncwarp();
  }
  if (t == 0) out[blockIdx.x] = x;
}
extern "C" __global__ void reduce_shuffle(float* out, const float* in, int n) {
  // Registers instead of shared memory, but for one word per warp.
  __shared__ float partial[BLOCK / 32];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  float x = i < n ? in[i] : 0.f;
  for (int s = 16; s > 0; s /= 2) x += __shfl_down_sync(0xffffffff, x, s);  // within warps
  if (t % 32 == 0) partial[t / 32] = x;
  __syncthreads();
  if (t < 4) {
    x = partial[t];
    x += __shfl_down_sync(0xf, x, 2, 4);
    x += __shfl_down_sync(0xf, x, 1, 4);
    if (t == 0) out[blockIdx.x] = x;
  }
}
extern "C" __global__ void reduce_redux(int* out, const int* in, int n) {
  // Integers only: since Ampere one instruction adds up a warp. The sum of all goes to out[0].
  int i = blockIdx.x * BLOCK + threadIdx.x;
  int x = __reduce_add_sync(0xffffffff, i < n ? in[i] : 0);
  if (threadIdx.x % 32 == 0) atomicAdd(out, x);  // meet
}
__device__ float block_sum(float x, float* partial) {
  // The sum over the block, in thread 0.
  for (int s = 16; s > 0; s /= 2) x += __shfl_down_sync(0xffffffff, x, s);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  for (int w = 1; w < BLOCK / 32; w++) x += partial[w];
  return x;
}
extern "C" __global__ void reduce_multi(float* out, const float* in, int n) {
  // A fixed grid strides over the array, and the blocks meet in out[0].
  __shared__ float partial[BLOCK / 32];
  float x = 0.f;
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) x += in[i];  // load
  x = block_sum(x, partial);
  if (threadIdx.x == 0) atomicAdd(out, x);  // meet
}
extern "C" __global__ void reduce_last_block(float* out, const float* in, int n, float* parts, unsigned* arrived) {
  // In one launch and in a fixed order: the block that arrives last adds up what the others left in parts.
  __shared__ float partial[BLOCK / 32];
  __shared__ bool last;
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  float x = block_sum(i < n ? in[i] : 0.f, partial);
  if (t == 0) {
    parts[blockIdx.x] = x;  // leave
    __threadfence();
    last = atomicAdd(arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  x = 0.f;
  for (int b = t; b < gridDim.x; b += BLOCK) x += parts[b];  // collect
  x = block_sum(x, partial);
  if (t == 0) out[0] = x;
}
