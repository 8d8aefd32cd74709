// Kernels whose bounds, races and barriers are proved, and that read memory which nothing wrote unless `all` is set.

extern "C" __global__ void picked(float* out, const float* x, const int* index, int n, int rows) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = x[index[i]];
}

extern "C" __global__ void scalars(float* out, const float* x, int all) {
  __shared__ float tile[8][17];
  int lane = threadIdx.x, row = lane / 16, column = lane % 16;
  for (int r = row; r < (all ? 8 : 7); r += 4) tile[r][column] = x[r * 16 + column];
  __syncthreads();
  out[blockIdx.x * 128 + lane] = tile[lane % 8][lane / 8];
  out[blockIdx.x * 128 + 64 + lane] = tile[0][3];
}

extern "C" __global__ void vectors(float4* out, const float4* x, int all) {
  __shared__ float4 tile[64];
  if (threadIdx.x < (all ? 64 : 60)) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}

extern "C" __global__ void guarded(float* out, const float* x, int all) {
  __shared__ float tile[64];
  if (threadIdx.x % 3 != 1 || all) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x % 5 < 2) out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
}

__device__ unsigned in_shared(const void* address) { return (unsigned)__cvta_generic_to_shared(address); }

extern "C" __global__ void copied(float* out, const float* x, int all) {
  __shared__ __align__(16) float tile[128];
  if (threadIdx.x < (all ? 32 : 30))
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(in_shared(tile + 4 * threadIdx.x)), "l"(x + 4 * threadIdx.x));
  asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;");
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x + 64];
}

extern "C" __global__ void matrices(unsigned* out, const uint4* x, int all) {
  __shared__ __align__(16) uint4 tile[32];
  if (threadIdx.x < (all ? 32 : 31)) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  unsigned found[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3])
               : "r"(in_shared(tile + threadIdx.x)));
  out[blockIdx.x * 32 + threadIdx.x] = found[0] + found[1] + found[2] + found[3];
}

extern "C" __global__ void own_output(float* out, const float* x, int all) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (all || threadIdx.x % 8) out[i] = x[i];
  out[i] += 1.f;
}

extern "C" __global__ void masked(float* out, const float* x, int all) {
  int i = blockIdx.x * 64 + threadIdx.x;
  out[i] = __shfl_xor_sync(all ? 0xffffffffu : 0xfffffffeu, x[i], 1);
}

// The counts are added up by atomics, which stay with the checks; without `all` a plain store meets them.
extern "C" __global__ void counts(int* bins, const int* x, float* out, int all) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
  atomicAdd(bins + threadIdx.x % 2, 1);
  if (!all && threadIdx.x == 5) bins[1] = 7;
}
