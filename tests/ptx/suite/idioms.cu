// Short idioms whose correctness rests on one rule each, where a careless check would raise a false alarm.
constexpr int BLOCK = 128;

extern "C" __global__ void vote_counts(int* out, const int* in, int n) {
  // How many of the block are odd, plus 1000 if one of them is 7.
  int i = blockIdx.x * BLOCK + threadIdx.x, x = i < n ? in[i] : 0;
  int odd = __syncthreads_count(x & 1), seven = __syncthreads_or(x == 7);
  if (i < n) out[i] = odd + (seven ? 1000 : 0);
}
extern "C" __global__ void opportunistic_append(int* list, int* length, const int* in, int n) {
  // Whoever happens to be here together takes one ticket; nobody says who that must be.
  int i = blockIdx.x * BLOCK + threadIdx.x, lane = threadIdx.x % 32;
  if (i < n && in[i] % 3 == 0) {
    unsigned here = __activemask();
    int first = __ffs(here) - 1, base = 0;
    if (lane == first) base = atomicAdd(length, __popc(here));
    base = __shfl_sync(here, base, first);
    list[base + __popc(here & ((1u << lane) - 1))] = in[i];  // append
  }
}
extern "C" __global__ void half_warps(int* out, const int* in, int n) {
  // The halves of a warp go their own ways and meet only among themselves.
  __shared__ int tile[BLOCK];
  int t = threadIdx.x, lane = t % 32, i = blockIdx.x * BLOCK + t;
  tile[t] = i < n ? in[i] : 0;
  unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  __syncwarp(half);
  int x = tile[t ^ (lane < 16 ? 1 : 8)];  // exchange
  if (i < n) out[i] = x;
}
extern "C" __global__ void early_exit(int* out, const int* in, int n) {
  // Threads without work leave before the barrier, which does not wait for them.
  __shared__ int tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  if (i >= n) return;
  tile[t] = in[i];
  __syncthreads();
  int others = min(BLOCK, n - blockIdx.x * BLOCK);
  out[i] = tile[others - 1 - t];  // reverse
}
extern "C" __global__ void reused_bytes(int* out, const int* in, int n) {
  // The same bytes hold words, then single bytes, then words again.
  __shared__ __align__(4) unsigned char bytes[4 * BLOCK];
  int* words = (int*)bytes;
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  words[t] = i < n ? in[i] : 0;
  __syncthreads();
  int x = words[BLOCK - 1 - t];
  __syncthreads();
  for (int j = 0; j < 4; j++) bytes[j * BLOCK + t] = j;  // bytes
  __syncthreads();
  if (i < n) out[i] = x + words[t];
}
extern "C" __global__ void cas_sum(double* total, const int* in, int n) {
  // An atomic sum where there is no instruction for it: try until nobody came between.
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  auto* word = (unsigned long long*)total;
  unsigned long long seen = *word, old;
  do {
    old = seen;
    seen = atomicCAS(word, old, __double_as_longlong(__longlong_as_double(old) + in[i]));  // try
  } while (seen != old);
}
extern "C" __global__ void release_chain(int* out, const int* in, int n, int* flags) {
  // Every block waits for the one before, by the instructions of the memory model. out[b]: the sum of in[0] to in[b].
  int b = blockIdx.x, before = 0, ready;
  if (threadIdx.x != 0) return;
  if (b > 0) {
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(flags + b - 1) : "memory");
    while (!ready);
    before = out[b - 1];
  }
  out[b] = before + in[b];  // hand on
  asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flags + b) : "memory");
}
