// Long sums: dot products, matrices times vectors, bodies that attract each other.
constexpr int BLOCK = 128;

template <class T>
__device__ T warp_sum(T x) {
  for (int s = 16; s > 0; s /= 2) x += __shfl_xor_sync(0xffffffff, x, s);
  return x;
}
extern "C" __global__ void dot_vectorised(float* out, const float* a, const float* b, int n) {
  // 16 bytes per lane, then the up to three elements left over.
  float x = 0.f;
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n / 4; i += gridDim.x * BLOCK) {
    float4 p = ((const float4*)a)[i], q = ((const float4*)b)[i];  // load
    x += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
  }
  int rest = n / 4 * 4 + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) x += a[rest] * b[rest];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) atomicAdd(out, x);
}
extern "C" __global__ void spmv_scalar(float* y, const int* starts, const int* columns, const float* values,
                                       const float* x, int rows) {
  // A sparse matrix by rows (CSR), one thread per row: neighbours read far apart.
  int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row < rows) {
    float sum = 0.f;
    for (int i = starts[row]; i < starts[row + 1]; i++) {
      float value = values[i];  // values
      sum += value * x[columns[i]];
    }
    y[row] = sum;
  }
}
extern "C" __global__ void spmv_vector(float* y, const int* starts, const int* columns, const float* values,
                                       const float* x, int rows) {
  // One warp per row: neighbours read next to each other.
  int row = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row < rows) {
    float sum = 0.f;
    for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) {
      float value = values[i];  // values
      sum += value * x[columns[i]];
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
  }
}
extern "C" __global__ void gemv_int8(int* y, const int* a, const int* x, int rows, int words) {
  // a [rows, 4 words] and x [4 words] in int8, four products at a time; one warp per row.
  int row = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  int sum = 0;
  for (int i = lane; i < words; i += 32) sum = __dp4a(a[row * words + i], x[i], sum);  // product
  sum = warp_sum(sum);
  if (lane == 0) y[row] = sum;
}
extern "C" __global__ void gemv_double(double* y, const double* a, const double* x, int rows, int columns) {
  // One block per row; rows may be fewer than blocks.
  __shared__ double partial[BLOCK / 32];
  int t = threadIdx.x, row = blockIdx.x;
  if (row >= rows) return;
  double sum = 0.0;
  for (int i = t; i < columns; i += BLOCK) sum += a[row * columns + i] * x[i];  // product
  sum = warp_sum(sum);
  if (t % 32 == 0) partial[t / 32] = sum;
  __syncthreads();
  if (t == 0) y[row] = partial[0] + partial[1] + partial[2] + partial[3];
}
extern "C" __global__ void nbody(float3* forces, const float4* bodies, int n) {
  // Every body (x, y, z, mass) feels all others; a block keeps 128 of them at a time in shared memory.
  __shared__ float4 tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  float4 me = i < n ? bodies[i] : float4{0.f, 0.f, 0.f, 0.f};
  float3 force = {0.f, 0.f, 0.f};
  for (int start = 0; start < n; start += BLOCK) {
    tile[t] = start + t < n ? bodies[start + t] : float4{0.f, 0.f, 0.f, 0.f};
    __syncthreads();
#pragma unroll 1
    for (int j = 0; j < BLOCK; j++) {
      float4 other = tile[j];  // broadcast
      float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
      float inverse = rsqrtf(x * x + y * y + z * z + 0.01f), pull = other.w * inverse * inverse * inverse;
      force.x += pull * x, force.y += pull * y, force.z += pull * z;
    }
    __syncthreads();
  }
  if (i < n) forces[i] = force;
}
