// Prefix sums. Inclusive, within each block of 128 elements, unless it says otherwise.
constexpr int BLOCK = 128;

extern "C" __global__ void scan_hillis_steele(float* out, const float* in, int n) {
  __shared__ float tile[2][BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t, from = 0;
  tile[0][t] = i < n ? in[i] : 0.f;
  for (int s = 1; s < BLOCK; s *= 2, from = 1 - from) {
    __syncthreads();
    float x = tile[from][t];  // own
    if (t >= s) x += tile[from][t - s];  // s before
    tile[1 - from][t] = x;
  }
  if (i < n) out[i] = tile[from][t];
}
__device__ int padded(int i) { return i + i / 32; }
extern "C" __global__ void scan_blelloch(float* out, const float* in, int n) {
  // Exclusive; up-sweep and down-sweep over 256 elements, with one word of padding per 32 against bank conflicts.
  __shared__ float tile[2 * BLOCK + 2 * BLOCK / 32];
  int t = threadIdx.x, base = blockIdx.x * 2 * BLOCK;
  for (int i = t; i < 2 * BLOCK; i += BLOCK) tile[padded(i)] = base + i < n ? in[base + i] : 0.f;
  int s = 1;
  for (int d = BLOCK; d > 0; d /= 2, s *= 2) {
    __syncthreads();
    if (t < d) {
      float left = tile[padded(s * (2 * t + 1) - 1)];  // up left
      tile[padded(s * (2 * t + 2) - 1)] += left;
    }
  }
  if (t == 0) tile[padded(2 * BLOCK - 1)] = 0.f;  // its thread wrote the total
  for (int d = 1; d <= BLOCK; d *= 2) {
    s /= 2;
    __syncthreads();
    if (t < d) {
      int left = padded(s * (2 * t + 1) - 1), right = padded(s * (2 * t + 2) - 1);
      float kept = tile[left];
      tile[left] = tile[right];
      tile[right] += kept;
    }
  }
  __syncthreads();
  for (int i = t; i < 2 * BLOCK; i += BLOCK)
    if (base + i < n) out[base + i] = tile[padded(i)];  // store
}
__device__ int block_scan(int x, int* sums) {
  // The inclusive prefix of x over the block.
  int t = threadIdx.x, lane = t % 32;
  for (int s = 1; s < 32; s *= 2) {
    int below = __shfl_up_sync(0xffffffff, x, s);
    if (lane >= s) x += below;
  }
  if (lane == 31) sums[t / 32] = x;
  __syncthreads();
  for (int w = 0; w < t / 32; w++) x += sums[w];
  return x;
}
extern "C" __global__ void scan_warp_shuffle(int* out, const int* in, int n) {
  __shared__ int sums[BLOCK / 32];
  int i = blockIdx.x * BLOCK + threadIdx.x;
  int x = block_scan(i < n ? in[i] : 0, sums);
  if (i < n) out[i] = x;  // store
}
extern "C" __global__ void scan_chained(int* out, const int* in, int n, int* ticket, int* totals, int* flags) {
  // Over the whole array. Blocks number themselves in the order in which they start, and wait for the one before.
  __shared__ int sums[BLOCK / 32], part, before;
  int t = threadIdx.x;
  if (t == 0) part = atomicAdd(ticket, 1);
  __syncthreads();
  int i = part * BLOCK + t;
  int x = block_scan(i < n ? in[i] : 0, sums);
  if (t == BLOCK - 1) {
    volatile int* ready = flags;
    before = 0;
    if (part > 0) {
      while (ready[part - 1] == 0) {}
      before = totals[part - 1];
    }
    totals[part] = before + x;  // hand on
    __threadfence();
    ready[part] = 1;
  }
  __syncthreads();
  if (i < n) out[i] = before + x;
}
extern "C" __global__ void scan_look_back(int* out, const int* in, int n, int* ticket, unsigned long long* states) {
  // Over the whole array, by decoupled look-back. A state is 0, or in its upper half 1 (the lower half holds the sum of
  // its part) or 2 (the sum of everything up to its part); as both travel in one word, no fence is needed.
  __shared__ int sums[BLOCK / 32], part, before;
  int t = threadIdx.x;
  if (t == 0) part = atomicAdd(ticket, 1);
  __syncthreads();
  int i = part * BLOCK + t;
  int x = block_scan(i < n ? in[i] : 0, sums);
  if (t == BLOCK - 1) {
    atomicExch(&states[part], 1ull << 32 | (unsigned)x);
    int sum = 0;
    for (int b = part - 1; b >= 0; b--) {
      unsigned long long state;
      do state = atomicAdd(&states[b], 0ull);
      while (state >> 32 == 0);
      sum += (int)(unsigned)state;
      if (state >> 32 == 2) break;
    }
    atomicExch(&states[part], 2ull << 32 | (unsigned)(sum + x));
    before = sum;
  }
  __syncthreads();
  if (i < n) out[i] = before + x;  // store
}
extern "C" __global__ void scan_segmented(float* out, const float* in, const int* heads, int n) {
  // Sums start anew at every head; a flag says whether one lies between the partial sum's elements.
  __shared__ float tile[BLOCK];
  __shared__ int flags[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  float x = i < n ? in[i] : 0.f;
  int head = i < n ? heads[i] : 0;
  for (int s = 1; s < BLOCK; s *= 2) {
    tile[t] = x;
    flags[t] = head;
    __syncthreads();
    if (t >= s && !head) {
      x += tile[t - s];
      head = flags[t - s];
    }
    __syncthreads();
  }
  if (i < n) out[i] = x;
}
