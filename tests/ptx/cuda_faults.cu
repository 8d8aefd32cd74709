// Correct kernels with barriers, and kernels with one planted fault each.
extern "C" __global__ void past_the_end(float* out, const float* in) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i + 1];  // out-of-bounds
  out[i] = x;
}
extern "C" __global__ void bad_alignment(float4* out, const float* in) {
  out[0] = *(const float4*)(in + threadIdx.x + 1);  // misaligned
}
extern "C" __global__ void shared_overrun(float* out, const float* in) {
  __shared__ float tile[32];
  tile[threadIdx.x * 2] = in[threadIdx.x];  // shared overrun
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void traps(float* out, const float* in) {
  if (in[threadIdx.x] > 5.f) __trap();  // trap
  out[threadIdx.x] = 1.f;
}
extern "C" __global__ void never_ends(float* out, const float* in) {
  for (int n = 0; *(volatile const float*)in == 0.f; ++n) ((volatile float*)out)[1] = n;  // endless
  out[threadIdx.x] = 1.f;
}
extern "C" __global__ void race(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];                // race write
  out[t] = tile[(t + 32) % 128];  // race read
}
extern "C" __global__ void uninitialised(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x;
  if (t < 100) tile[t] = in[t];
  __syncthreads();
  out[t] = tile[t];  // uninitialised
}
extern "C" __global__ void atomic_then_store(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  __syncthreads();
  atomicAdd(&tile[t ^ 1], 1.f);
  tile[t] = in[t] + 9.f;  // lane race
  __syncthreads();
  out[t] = tile[t];
}
extern "C" __global__ void divergent_barrier(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (t < 48) __syncthreads();  // divergent
  out[t] = tile[t ^ 64];
}
extern "C" __global__ void absent_lane(int* out, const int* in) {
  int t = threadIdx.x, x = in[t];
  if (t < 16) x = __shfl_xor_sync(~0u, x, 16);  // absent
  out[t] = x;
}
// ---- correct ones: no finding, and one for every barrier that is taken away ----
extern "C" __global__ void block_sum(float* out, const float* in) {
  __shared__ float partial[32];
  int t = threadIdx.x;
  float x = in[t];
  for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
  if (t % 32 == 0) partial[t / 32] = x;
  __syncthreads();
  x = t < blockDim.x / 32 ? partial[t] : 0.f;
  for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
  if (t == 0) partial[0] = x;
  __syncthreads();
  out[t] = partial[0];
}
extern "C" __global__ void tree_sum(float* out, const float* in) {
  __shared__ float tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  __syncthreads();
  for (int s = 64; s > 0; s /= 2) {
    if (t < s) tile[t] += tile[t + s];
    __syncthreads();
  }
  out[t] = tile[0];
}
extern "C" __global__ void warp_synchronous(float* out, const float* in) {
  __shared__ volatile float tile[128];
  int t = threadIdx.x, lane = t % 32;
  tile[t] = in[t];
  __syncwarp();
  for (int s = 16; s > 0; s /= 2) {
    float other = lane < s ? tile[t + s] : 0.f;
    __syncwarp();
    if (lane < s) tile[t] = tile[t] + other;
    __syncwarp();
  }
  out[t] = tile[t - lane];
}
extern "C" __global__ void halves(unsigned short* out, const unsigned short* in) {
  // Neighbours in different warps write the two halves of one word: no race.
  __shared__ unsigned short tile[128];
  int t = threadIdx.x, i = t % 64 * 2 + t / 64;
  tile[i] = in[i];
  __syncthreads();
  out[t] = tile[127 - t];
}
extern "C" __global__ void histogram(int* out, const int* in) {
  __shared__ int bins[8];
  int t = threadIdx.x;
  if (t < 8) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[in[t] & 7], 1);
  __syncthreads();
  if (t < 8) out[t] = bins[t];
}
extern "C" __global__ void pipeline(float* out, const float* in) {
  __shared__ float stage[2][128];
  int t = threadIdx.x;
  unsigned to[2];
  for (int s = 0; s < 2; s++) to[s] = (unsigned)__cvta_generic_to_shared(&stage[s][t]);
  float total = 0.f;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;" ::"r"(to[0]), "l"(in + t));
  for (int i = 0; i < 4; i++) {
    if (i < 3) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to[(i + 1) % 2]), "l"(in + (i + 1) * 128 + t));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    total += stage[i % 2][127 - t];
    __syncthreads();
  }
  out[t] = total;
}
