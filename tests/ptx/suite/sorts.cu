// Networks and ranks that put elements in order.
constexpr int BLOCK = 128;

__device__ void order(float* tile, int low, int high, bool up) {
  float x = tile[low], y = tile[high];  // pair
  if ((x > y) == up) tile[low] = y, tile[high] = x;
}
extern "C" __global__ void bitonic_sort(float* out, const float* in, int n) {
  // 128 elements per block; what is missing counts as infinite.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : __int_as_float(0x7f800000);
  for (int size = 2; size <= BLOCK; size *= 2) {
    for (int s = size / 2; s > 0; s /= 2) {
      __syncthreads();
      if ((t & s) == 0) order(tile, t, t + s, (t & size) == 0);
    }
  }
  __syncthreads();
  if (i < n) out[i] = tile[t];
}
extern "C" __global__ void odd_even_merge_sort(float* out, const float* in, int n) {
  // Batcher's network: every comparison points the same way.
  __shared__ float tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : __int_as_float(0x7f800000);
  for (int p = 1; p < BLOCK; p *= 2) {
    for (int s = p; s > 0; s /= 2) {
      __syncthreads();
      int from = t - s % p;
      bool pairs = from >= 0 && from % (2 * s) < s && t / (2 * p) == (t + s) / (2 * p);
      if (pairs) order(tile, t, t + s, true);
    }
  }
  __syncthreads();
  if (i < n) out[i] = tile[t];  // store
}
extern "C" __global__ void transposition_sort(float* data, int n) {
  // Neighbours swap in turns, n times; by one block, in global memory.
  for (int round = 0; round < n; round++) {
    for (int i = 2 * threadIdx.x + round % 2; i + 1 < n; i += 2 * BLOCK) order(data, i, i + 1, true);
    __syncthreads();
  }
}
extern "C" __global__ void radix_split(unsigned* out, const unsigned* in, int n, int bit) {
  // One step of a radix sort within a block: those without the bit first, each group in its old order.
  __shared__ int zeros[BLOCK / 32];
  int t = threadIdx.x, lane = t % 32, i = blockIdx.x * BLOCK + t;
  unsigned x = i < n ? in[i] : 0xffffffff;
  bool zero = (x >> bit & 1) == 0;
  unsigned votes = __ballot_sync(0xffffffff, zero);  // vote
  if (lane == 0) zeros[t / 32] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1)), all = 0;
  for (int w = 0; w < BLOCK / 32; w++) before += w < t / 32 ? zeros[w] : 0, all += zeros[w];
  int to = blockIdx.x * BLOCK + (zero ? before : all + t - before);
  if (i < n) out[to] = x;
}
extern "C" __global__ void compact(float* out, int* count, const float* in, int n) {
  // One block keeps the positive elements, in order.
  __shared__ int sums[BLOCK / 32];
  int t = threadIdx.x, lane = t % 32, kept = 0;
  for (int start = 0; start < n; start += BLOCK) {
    float x = start + t < n ? in[start + t] : 0.f;
    unsigned votes = __ballot_sync(0xffffffff, x > 0.f);
    if (lane == 0) sums[t / 32] = __popc(votes);
    __syncthreads();
    int at = kept + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < BLOCK / 32; w++) at += w < t / 32 ? sums[w] : 0, kept += sums[w];  // ranks
    if (x > 0.f) out[at] = x;
    __syncthreads();
  }
  if (t == 0) *count = kept;
}
extern "C" __global__ void top_k(float* values, int* indices, const float* in, int rows, int columns, int k) {
  // One warp per row: k times the largest of the lanes' largest. A lane looks only at its own elements of the tile.
  extern __shared__ float tiles[];
  int lane = threadIdx.x % 32, row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= rows) return;
  float* tile = tiles + threadIdx.x / 32 * columns;
  for (int i = lane; i < columns; i += 32) tile[i] = in[row * columns + i];  // load
  for (int round = 0; round < k; round++) {
    float best = -__int_as_float(0x7f800000);
    int at = columns;
    for (int i = lane; i < columns; i += 32)
      if (tile[i] > best) best = tile[i], at = i;
    for (int s = 16; s > 0; s /= 2) {
      float other = __shfl_xor_sync(0xffffffff, best, s);
      int other_at = __shfl_xor_sync(0xffffffff, at, s);
      if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    if (lane == 0) values[row * k + round] = best, indices[row * k + round] = at;
    if (at % 32 == lane) tile[at] = -__int_as_float(0x7f800000);
  }
}
