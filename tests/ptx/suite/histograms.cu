// How often each of 32 values occurs, and lists that grow by tickets.
constexpr int BLOCK = 128, BINS = 32;

extern "C" __global__ void histogram_global(int* bins, const int* in, int n) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) atomicAdd(&bins[in[i]], 1);  // count
}
extern "C" __global__ void histogram_shared(int* bins, const int* in, int n) {
  // Each block counts for itself first.
  __shared__ int own[BINS];
  int t = threadIdx.x;
  if (t < BINS) own[t] = 0;
  __syncthreads();
  for (int i = blockIdx.x * BLOCK + t; i < n; i += gridDim.x * BLOCK) atomicAdd(&own[in[i]], 1);
  __syncthreads();
  if (t < BINS) atomicAdd(&bins[t], own[t]);  // count
}
extern "C" __global__ void histogram_aggregated(int* bins, const int* in, int n) {
  // The lanes with the same value find each other, and the first one counts for all.
  __shared__ int own[BINS];
  int t = threadIdx.x, lane = t % 32, i = blockIdx.x * BLOCK + t;
  if (t < BINS) own[t] = 0;
  __syncthreads();
  unsigned here = __ballot_sync(0xffffffff, i < n);
  if (i < n) {
    int value = in[i];
    unsigned peers = __match_any_sync(here, value);
    if (lane == __ffs(peers) - 1) atomicAdd(&own[value], __popc(peers));  // count
  }
  __syncthreads();
  if (t < BINS) atomicAdd(&bins[t], own[t]);
}
extern "C" __global__ void append_even(int* list, int* length, const int* in, int n) {
  // One ticket per warp: the first of the lanes that keep something reserves room for all of them. In any order.
  int i = blockIdx.x * BLOCK + threadIdx.x, lane = threadIdx.x % 32;
  bool keep = i < n && in[i] % 2 == 0;
  unsigned kept = __ballot_sync(0xffffffff, keep);
  if (!keep) return;
  int first = __ffs(kept) - 1, base = 0;
  if (lane == first) base = atomicAdd(length, __popc(kept));  // ticket
  base = __shfl_sync(kept, base, first);
  list[base + __popc(kept & ((1u << lane) - 1))] = in[i];
}
