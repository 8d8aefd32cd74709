// Kernels whose verdict is known. A macro turns each into its faulty twin, with one slip.
#ifndef SLIP
#define SLIP 0
#endif
#define SLIPPED(number) (SLIP == number)

extern "C" __global__ void add(float* z, const float* x, const float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (SLIPPED(1) ? i <= n : i < n) z[i] = x[i] + y[i];
}

extern "C" __global__ void add_by_fours(float4* z, const float4* x, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) {
    float4 v = *(const float4*)((const float*)(x + i) + (SLIPPED(1) ? (i + 1 < n) : 0));
    z[i] = make_float4(v.w, v.z, v.y, v.x);
  }
}

extern "C" __global__ void strided_add(float* z, const float* x, int n) {
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * (SLIPPED(1) ? 128 : 256)) z[i] = x[i] + threadIdx.x;
}

extern "C" __global__ void turned(float* out, const float* x, int rows, int cols) {
  __shared__ float tile[16][17];
  int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  if (!SLIPPED(1)) __syncthreads();
  int r2 = blockIdx.x * 16 + threadIdx.y, c2 = blockIdx.y * 16 + threadIdx.x;
  if (r2 < cols && (SLIPPED(2) || c2 < rows)) out[r2 * rows + c2] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void wide_turned(float* out, const float* x, int rows, int cols) {
  long long r = blockIdx.y;
  int c = blockIdx.x * 256 + threadIdx.x;
  if (c < cols) out[(SLIPPED(1) ? (int)(r * cols) : r * cols) + c] = x[r * cols + c];
}

extern "C" __global__ void block_sum(float* out, const float* x, int n) {
  __shared__ float part[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  part[t] = i < n ? x[i] : 0.f;
  __syncthreads();
  for (int s = 64; s > 0; s >>= 1) {
    if (t < s) part[t] += part[t + s];
    if (!SLIPPED(1)) __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void row_sum(float* out, const float* x, int cols) {
  __shared__ float part[64];
  float sum = 0.f;
  for (int c = threadIdx.x; c < cols; c += 64) sum += x[(long long)blockIdx.x * cols + c];
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 64; ++i) sum += part[i];
    out[SLIPPED(1) ? blockIdx.x / 2 : blockIdx.x] = sum;
  }
}

extern "C" __global__ void swapped_in_warp(float* out, const float* x) {
  __shared__ float seen[4][32];
  int w = threadIdx.x / 32, l = threadIdx.x % 32;
  seen[w][l] = x[blockIdx.x * 128 + threadIdx.x];
  if (!SLIPPED(1)) __syncwarp();
  out[blockIdx.x * 128 + threadIdx.x] = seen[w][31 - l];
}

// Nobody waits for threads that have ended.
extern "C" __global__ void early(float* out, const float* x, int n) {
  __shared__ float part[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  if (SLIPPED(1)) part[threadIdx.x] = 0.f;  // by threads that then end: no barrier orders it
  if (i >= n) return;
  part[threadIdx.x] = x[i];
  __syncthreads();
  out[i] = part[SLIPPED(1) && n > 32 ? 63 - threadIdx.x : threadIdx.x];
}

extern "C" __global__ void branched(float* out, const float* x, int n) {
  __shared__ float part[64];
  float sum = x[threadIdx.x];
  part[threadIdx.x] = sum;
  if (SLIPPED(1) ? threadIdx.x < n : n > 1) {
    __syncthreads();
    sum += part[63 - threadIdx.x];
  }
  __syncthreads();
  out[threadIdx.x] = sum;
}

// A loop that threads leave by two ways; in the slip one of them goes round the barrier behind it.
extern "C" __global__ void searched(float* out, const float* x, int cols) {
  __shared__ float part[64];
  float sum = 0.f;
  for (int c = 0; c < cols; ++c) {
    float v = x[(long long)threadIdx.x * cols + c];
    if (v < 0.f) {
      if (SLIPPED(1)) goto rest;
      break;
    }
    sum += v;
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  sum = part[63 - threadIdx.x];
rest:
  __syncthreads();
  out[threadIdx.x] = sum;
}

// The rounds of a loop with a barrier depend on the thread in the slip.
extern "C" __global__ void rounds(float* out, const float* x, int n) {
  __shared__ float part[64];
  float sum = 0.f;
  for (int k = SLIPPED(1) ? threadIdx.x : 0; k < n; ++k) {
    part[threadIdx.x] = x[k * 64 + threadIdx.x];
    __syncthreads();
    sum += part[63 - threadIdx.x];
    if (!SLIPPED(2)) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

extern "C" __global__ void gathered(float* out, const float* x, const int* index, int n, int cols) {
  int c = blockIdx.x * 128 + threadIdx.x, r = blockIdx.y;
  if (c < cols) out[(long long)r * cols + c] = x[(long long)index[r] * cols + c];
}

extern "C" __global__ void scattered(float* out, const float* x, const int* index, int n, int cols) {
  int c = blockIdx.x * 128 + threadIdx.x, r = blockIdx.y;
  if (c < cols && index[r] >= 0) out[(long long)index[r] * cols + c] = x[(long long)r * cols + c];
}

// A list in shared memory, which a loop fills whose rounds depend on a count. The slip leaves out the first places.
extern "C" __global__ void listed(float* out, const float* x, const int* index, int n) {
  __shared__ int list[256];
  int first = blockIdx.x * 256, count = min(n - first, 256);
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += 64) list[i] = index[first + i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += 64) out[first + i] = x[list[i]];
}

// The index comes from memory that the kernel itself writes: a fact about what was there before says nothing.
extern "C" __global__ void own_index(float* out, int* index, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) {
    if (SLIPPED(1)) index[i] = 1 << 20;
    out[index[i]] = 1.f;
  }
}

extern "C" __global__ void counted(int* bins, const int* x, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) {
    if (SLIPPED(1)) bins[x[i] & 255] += 1;
    else atomicAdd(&bins[x[i] & 255], 1);
  }
}

extern "C" __global__ void product(float* c, const float* a, const float* b, int M, int N, int K) {
  __shared__ float left[8][8], right[8][9];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 8 + ty, col = blockIdx.x * 8 + tx;
  float sum = 0.f;
  for (int t = 0; t < K; t += 8) {
    left[ty][tx] = row < M && t + tx < K ? a[row * K + t + tx] : 0.f;
    right[ty][tx] = (SLIPPED(1) || t + ty < K) && col < N ? b[(t + ty) * N + col] : 0.f;
    __syncthreads();
    for (int k = 0; k < 8; ++k) sum += left[ty][k] * right[k][tx];
    if (!SLIPPED(2)) __syncthreads();
  }
  if (row < M && col < N) c[row * N + col] = sum;
}

// Two stages of copies in flight, filled for any number of tiles.
extern "C" __global__ void staged(float* out, const float* x, int tiles) {
  __shared__ __align__(16) float stage[2][64 * 4];
  int t = threadIdx.x;
  const float* mine = x + (long long)blockIdx.x * tiles * 256;
  auto copy = [&](int k) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&stage[k & 1][t * 4]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(mine + k * 256 + t * 4) : "memory");
  };
  copy(0);
  asm volatile("cp.async.commit_group;" ::: "memory");
  float sum = 0.f;
  for (int k = 0; k < tiles; ++k) {
    if (k + 1 < tiles) copy(k + 1);
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (SLIPPED(1)) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    sum += stage[k & 1][(t * 4 + 5) & 255];
    if (!SLIPPED(2)) __syncthreads();
  }
  out[blockIdx.x * 64 + t] = sum;
}

// A copy that only one of two joining paths has in flight.
extern "C" __global__ void joined_copies(float* out, const float* x, int n) {
  __shared__ __align__(16) float stage[64 * 4];
  int t = threadIdx.x;
  for (int k = 0; k < 4; ++k) stage[t * 4 + k] = 0.f;
  if (n > 3) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&stage[t * 4]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + t * 4) : "memory");
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  if (!SLIPPED(1)) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (!SLIPPED(2)) __syncthreads();
  out[t] = stage[(t * 4 + 9) & 255];
}

// A quotient that is only defined where a guard holds: nothing follows from it elsewhere.
extern "C" __global__ void divided(float* out, const float* x, int n, int m) {
  int i = blockIdx.x * 64 + threadIdx.x, row = 0;
  if (m > 0) row = i / m;
  if (i < n && row < n) out[i] = x[row];
  if (SLIPPED(1) && m <= 0 && i == 0) out[n] = 1.f;
}

// A barrier that is on some paths of a loop only, the same for all threads.
extern "C" __global__ void sometimes(float* out, const float* x, int n) {
  __shared__ float part[64];
  float sum = x[threadIdx.x];
  for (int k = 0; k < n; ++k) {
    part[threadIdx.x] = sum + k;
    if (k % 3 == 0) __syncthreads();
    sum += part[63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}

// Rounds of a loop in which each thread has the value of the round before.
extern "C" __global__ void carried(float* out, const int* index, int n) {
  int last = threadIdx.x;
  for (int k = 0; k < n; ++k) {
    out[last] = k + threadIdx.x * 100.f;
    last = SLIPPED(1) ? index[k] : 64 * (k + 1) + threadIdx.x;
  }
}

__device__ __noinline__ float far(const float* p, int i) { return i > 3 ? p[i] : p[i / 2] + 1.f; }
extern "C" __global__ void called(float* out, const float* x, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = far(x, i);
}

extern "C" __global__ void led(float** tables, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) tables[0][i] = 1.f;
}

// Three stages of copies in flight; the compiler unrolls the rounds by four.
extern "C" __global__ void ringed(float* out, const float* x, int tiles) {
  __shared__ __align__(16) float stage[3][64 * 4];
  int t = threadIdx.x, now = 0;
  const float* mine = x + (long long)blockIdx.x * tiles * 256;
  auto copy = [&](int k, int place) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&stage[place][t * 4]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(mine + k * 256 + t * 4) : "memory");
  };
  for (int k = 0; k < 2; ++k) {
    if (k < tiles) copy(k, k);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  float sum = 0.f;
  for (int k = 0; k < tiles; ++k) {
    if (SLIPPED(1)) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else asm volatile("cp.async.wait_group 1;" ::: "memory");
    if (!SLIPPED(2)) __syncthreads();
    int next = now == 0 ? 2 : now - 1;
    if (k + 2 < tiles) copy(k + 2, SLIPPED(3) ? now : next);
    asm volatile("cp.async.commit_group;" ::: "memory");
    sum += stage[now][(t * 4 + 5) & 255];
    now = now == 2 ? 0 : now + 1;
  }
  out[blockIdx.x * 64 + t] = sum;
}

// Two names of the same dynamic shared memory.
extern __shared__ float first_name[];
extern __shared__ int second_name[];
extern "C" __global__ void two_names(float* out, const float* x) {
  int t = threadIdx.x;
  first_name[t] = x[t];
  if (!SLIPPED(1)) __syncthreads();
  out[t] = (float)second_name[63 - t];
}

extern "C" __global__ void vectors_of_floats(float4* out) {
  __shared__ float part[64 * 4];
  for (int k = 0; k < 4; ++k) part[threadIdx.x * 4 + k] = k;
  out[threadIdx.x] = *(float4*)(part + threadIdx.x * 4);
}

// An assertion that fails ends the launch: no barrier waits, and behind it the index is in range.
extern "C" __global__ void asserted(float* out, const float* x, const int* index, int n) {
  __shared__ float part[64];
  int t = threadIdx.x, i = index[t];
  part[t] = x[t];
  if (!SLIPPED(1)) assert(i >= 0);
  assert(i < n);
  __syncthreads();
  out[t] = part[63 - t] + x[i];
}

// A float of the block decides whether its threads meet.
extern "C" __global__ void chosen_by_a_float(float* out, const float* x) {
  __shared__ float part[64];
  int t = threadIdx.x;
  float sum = 0.f;
  part[t] = x[t];
  float chosen;
  asm volatile("ld.global.b32 %0, [%1];" : "=f"(chosen) : "l"(x + (SLIPPED(1) ? t : blockIdx.x)));  // as Triton loads it
  if (chosen > 0.5f) {
    __syncthreads();
    sum = part[63 - t];
  }
  __syncthreads();
  out[blockIdx.x * 64 + t] = sum;
}

extern "C" __global__ void printed(float* out, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = 1.f;
  printf("%d\n", i);
}

extern "C" __global__ void pointed(float* out, int n, float (*far)(int)) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = far(i);
}

struct Arrays {
  float* out;
  int n;
};

extern "C" __global__ void structured(Arrays arrays) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < arrays.n) arrays.out[i] = 1.f;
}
