// Cooperative groups and the C++ barriers and pipelines of libcu++.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

// Each of 9 rows of `out` shows one operation of a tile of SIZE lanes.
template <int Size>
__device__ void show_tile(const int* in, int* out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<Size>(block);
  const int i = block.thread_rank(), n = block.size();
  const int value = in[i];
  out[i] = cg::reduce(tile, value, cg::plus<int>());
  out[n + i] = cg::inclusive_scan(tile, value);
  out[2 * n + i] = cg::exclusive_scan(tile, value, cg::greater<int>());
  out[3 * n + i] = tile.shfl_down(value, 1) + 1000 * tile.meta_group_rank();
  out[4 * n + i] = tile.ballot(value & 1);
  out[5 * n + i] = tile.any(value == 3) + 2 * tile.all(value >= 0);
  auto same = cg::labeled_partition(tile, value % 3);
  out[6 * n + i] = 100 * same.size() + same.thread_rank();
  out[7 * n + i] = -1;
  if (value & 1) {
    auto odd = cg::coalesced_threads();
    out[7 * n + i] = 1000 * odd.size() + cg::reduce(odd, value, cg::greater<int>());
  }
  out[8 * n + i] = tile.shfl(value, 0) + tile.shfl_xor(value, 1);
  block.sync();
}

extern "C" __global__ void tile_32(const int* in, int* out) { show_tile<32>(in, out); }
extern "C" __global__ void tile_16(const int* in, int* out) { show_tile<16>(in, out); }
extern "C" __global__ void tile_4(const int* in, int* out) { show_tile<4>(in, out); }

// A block reads a tile with memcpy_async of a group, and writes it back in reverse.
extern "C" __global__ void group_copy(const int* in, int* out) {
  __shared__ alignas(16) int tile[256];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile, in, sizeof tile);
#ifndef NO_WAIT
  cg::wait(block);
#endif
  for (int i = block.thread_rank(); i < 256; i += block.size()) out[i] = tile[255 - i];
}

// cuda::barrier: the copies arrive at it, and everybody waits there.
extern "C" __global__ void barrier_copy(const int* in, int* out) {
  __shared__ alignas(16) int tile[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&barrier, block.size());
  block.sync();
  for (int round = 0; round < 3; ++round) {
    cuda::memcpy_async(block, tile, in + 256 * round, cuda::aligned_size_t<16>(sizeof tile), barrier);
#ifdef NO_WAIT
    (void)barrier.arrive();
#else
    barrier.arrive_and_wait();
#endif
    for (int i = block.thread_rank(); i < 256; i += block.size()) out[256 * round + i] = tile[255 - i];
    block.sync();
  }
}

// cuda::pipeline of two stages, one thread each: sums of rows of 4 integers per thread.
extern "C" __global__ void pipeline_sum(const int* in, int* out, int steps) {
  __shared__ alignas(16) int4 stage[2][64];
  auto pipe = cuda::make_pipeline();
  const int thread = threadIdx.x;
  const int4* rows = reinterpret_cast<const int4*>(in);
  int sum = 0;
  for (int step = 0; step < steps + 1; ++step) {
    if (step < steps) {
      pipe.producer_acquire();
      cuda::memcpy_async(&stage[step % 2][thread], rows + step * 64 + thread, cuda::aligned_size_t<16>(sizeof(int4)), pipe);
      pipe.producer_commit();
    }
    if (step > 0) {
#ifndef NO_WAIT
      cuda::pipeline_consumer_wait_prior<1>(pipe);
      if (step == steps) pipe.consumer_wait();
#endif
      const int4 row = stage[(step - 1) % 2][thread];
      sum += row.x + row.y + row.z + row.w;
      pipe.consumer_release();
    }
  }
  out[thread] = sum;
}

// A pipeline that the whole block shares: the threads of a partition produce, the others consume.
extern "C" __global__ void pipeline_roles(const int* in, int* out, int steps) {
  constexpr int kStages = 2;
  __shared__ alignas(16) int stage[kStages][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state, block.size() / 2);
  const bool produces = block.thread_rank() < block.size() / 2;
  const int i = block.thread_rank() % 64;
  int sum = 0;
  for (int step = 0; step < steps; ++step) {
    if (produces) {
      pipe.producer_acquire();
      cuda::memcpy_async(&stage[step % kStages][i], in + step * 64 + i, sizeof(int), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      sum += stage[step % kStages][63 - i];
      pipe.consumer_release();
    }
  }
  if (!produces) out[i] = sum;
}
