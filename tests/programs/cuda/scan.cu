// Exclusive prefix sums, two ways within a block: Blelloch's tree in shared memory, and shuffles within each warp.
// Both leave the sum of each block behind; a second scan turns those into what every block has to add.
#include <vector>

#include "check.h"

constexpr int kThreads = 128, kWarp = 32;

__global__ void scan_tree(const int* in, int* out, int* sums, int n) {
  __shared__ int tree[2 * kThreads];
  const int thread = threadIdx.x, first = 2 * kThreads * blockIdx.x;
  for (int i = thread; i < 2 * kThreads; i += kThreads) tree[i] = first + i < n ? in[first + i] : 0;
  int stride = 1;
  for (int nodes = kThreads; nodes > 0; nodes /= 2) {  // up: each node becomes the sum below it
    __syncthreads();
    if (thread < nodes) tree[stride * (2 * thread + 2) - 1] += tree[stride * (2 * thread + 1) - 1];
    stride *= 2;
  }
  if (thread == 0) {
    sums[blockIdx.x] = tree[2 * kThreads - 1];
    tree[2 * kThreads - 1] = 0;
  }
  for (int nodes = 1; nodes <= kThreads; nodes *= 2) {  // down: each node passes on what stands left of it
    stride /= 2;
    __syncthreads();
    if (thread < nodes) {
      int& left = tree[stride * (2 * thread + 1) - 1];
      int& right = tree[stride * (2 * thread + 2) - 1];
      const int kept = left;
      left = right;
      right += kept;
    }
  }
  __syncthreads();
  for (int i = thread; i < 2 * kThreads && first + i < n; i += kThreads) out[first + i] = tree[i];
}

__global__ void scan_shuffled(const int* in, int* out, int* sums, int n) {
  __shared__ int of_warps[kThreads / kWarp];
  const int i = blockIdx.x * kThreads + threadIdx.x, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int own = i < n ? in[i] : 0;
  int sum = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int below = __shfl_up_sync(0xffffffff, sum, distance);
    if (lane >= distance) sum += below;
  }
  if (lane == kWarp - 1) of_warps[warp] = sum;
  __syncthreads();
  for (int before = 0; before < warp; ++before) sum += of_warps[before];
  if (i < n) out[i] = sum - own;
  if (threadIdx.x == kThreads - 1) sums[blockIdx.x] = sum;
}

__global__ void add_offsets(int* out, const int* offsets, int per_block, int n) {
  for (int i = threadIdx.x; i < per_block && blockIdx.x * per_block + i < n; i += blockDim.x)
    out[blockIdx.x * per_block + i] += offsets[blockIdx.x];
}

template <class Kernel>
bool right_for(Kernel kernel, int per_block, int n) {
  const int blocks = (n + per_block - 1) / per_block;
  std::vector<int> values(n), found(n);
  for (int i = 0; i < n; ++i) values[i] = i * 37 % 11 - 3;
  int *in, *out, *sums, *offsets, *total;
  CHECK(cudaMalloc(&in, n * sizeof(int)));
  CHECK(cudaMalloc(&out, n * sizeof(int)));
  CHECK(cudaMalloc(&sums, blocks * sizeof(int)));
  CHECK(cudaMalloc(&offsets, blocks * sizeof(int)));
  CHECK(cudaMalloc(&total, sizeof(int)));
  CHECK(cudaMemcpy(in, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  kernel<<<blocks, kThreads>>>(in, out, sums, n);
  kernel<<<1, kThreads>>>(sums, offsets, total, blocks);
  add_offsets<<<blocks, kThreads>>>(out, offsets, per_block, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int* memory : {in, out, sums, offsets, total}) CHECK(cudaFree(memory));
  bool right = true;
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    right &= found[i] == sum;
    sum += values[i];
  }
  return right;
}

int main() {
  bool right = true;
  for (int n : {1, 255, 256, 1000}) {
    right &= right_for(scan_tree, 2 * kThreads, n);
    right &= right_for(scan_shuffled, kThreads, n);
  }
  return judged("scan", right);
}
