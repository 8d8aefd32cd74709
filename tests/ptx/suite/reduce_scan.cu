// Sums and prefix sums in their classic stages. One block of 128 threads per 128 elements; out[0..] as each says.
extern "C" __global__ void reduce_interleaved(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[blockIdx.x * 128 + t];
  __syncthreads();
  for (int s = 1; s < 128; s *= 2) {
    if (t % (2 * s) == 0) tile[t] += tile[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = tile[0];
}
extern "C" __global__ void reduce_strided(float* out, const float* in) {
  // Consecutive threads work: no divergence, but bank conflicts.
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[blockIdx.x * 128 + t];
  __syncthreads();
  for (int s = 1; s < 128; s *= 2) {
    int i = 2 * s * t;
    if (i < 128) tile[i] += tile[i + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = tile[0];
}
extern "C" __global__ void reduce_unrolled_warp(float* out, const float* in) {
  // The last 32 sums need no block barrier, but __syncwarp.
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[blockIdx.x * 128 + t];
  __syncthreads();
  if (t < 64) tile[t] += tile[t + 64];
  __syncthreads();
  if (t < 32) {
    float x = tile[t] + tile[t + 32];
    __syncwarp();
    for (int s = 16; s > 0; s /= 2) {
      tile[t] = x;
      __syncwarp();
      x += tile[t ^ s];
      __syncwarp();
    }
    if (t == 0) out[blockIdx.x] = x;
  }
}
extern "C" __global__ void reduce_shuffle(float* out, const float* in) {
  __shared__ float partial[4];
  int t = threadIdx.x;
  float x = in[blockIdx.x * 128 + t];
  for (int s = 16; s > 0; s /= 2) x += __shfl_down_sync(~0u, x, s);
  if (t % 32 == 0) partial[t / 32] = x;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = partial[0] + partial[1] + partial[2] + partial[3];
}
extern "C" __global__ void scan_hillis_steele(float* out, const float* in) {
  __shared__ float tile[2][128];
  int t = threadIdx.x, from = 0;
  tile[0][t] = in[blockIdx.x * 128 + t];
  __syncthreads();
  for (int s = 1; s < 128; s *= 2) {
    tile[1 - from][t] = tile[from][t] + (t >= s ? tile[from][t - s] : 0.f);
    from = 1 - from;
    __syncthreads();
  }
  out[blockIdx.x * 128 + t] = tile[from][t];
}
extern "C" __global__ void scan_blelloch(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x, at = blockIdx.x * 128 + t;
  float x = in[at];
  tile[t] = x;
  int stride = 1;
  for (int d = 64; d > 0; d /= 2, stride *= 2) {
    __syncthreads();
    if (t < d) tile[stride * (2 * t + 2) - 1] += tile[stride * (2 * t + 1) - 1];
  }
  __syncthreads();
  if (t == 0) tile[127] = 0.f;
  for (int d = 1; d < 128; d *= 2) {
    stride /= 2;
    __syncthreads();
    if (t < d) {
      int left = stride * (2 * t + 1) - 1, right = stride * (2 * t + 2) - 1;
      float kept = tile[left];
      tile[left] = tile[right];
      tile[right] += kept;
    }
  }
  __syncthreads();
  out[at] = tile[t] + x;
}
extern "C" __global__ void scan_warp_shuffle(float* out, const float* in) {
  __shared__ float sums[4];
  int t = threadIdx.x, lane = t % 32, at = blockIdx.x * 128 + t;
  float x = in[at];
  for (int s = 1; s < 32; s *= 2) {
    float below = __shfl_up_sync(~0u, x, s);
    if (lane >= s) x += below;
  }
  if (lane == 31) sums[t / 32] = x;
  __syncthreads();
  for (int w = 0; w < t / 32; w++) x += sums[w];
  out[at] = x;
}
