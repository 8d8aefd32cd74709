// Faults that others have reported in asynchronous kernels for sm_90a, rebuilt small, and the rules behind them.
#include "hopper.cuh"
#include "forms.cuh"

constexpr int TILE_BYTES = 64 * 128;  // 64 rows of 128 bytes

// Tiles written by ordinary stores, then multiplied. 1: no fence.proxy.async, 2: the readers' fence behind the barrier in
// its place, 3: right, with zeros that nvcc sinks below wgmma.fence.
// https://github.com/tile-ai/tilelang/issues/2634, https://github.com/pytorch/ao/pull/4278
template <int FORM> __global__ void generic_tiles(float* out, const __half* x) {
  __shared__ alignas(1024) __half a[64 * 64], b[8 * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += 128) a[i] = x[i];  // generic_tiles: a
  for (int i = threadIdx.x; i < 8 * 64; i += 128) b[i] = x[i];
  if (FORM == 0 || FORM == 3) fence_async();
  __syncthreads();
  if (FORM == 2) fence_async();
  float d[4] = {};
  if (FORM != 3) for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");
  open_products();
  for (int k = 0; k < 4; ++k) multiply(d, descriptor(a) + 2 * k, descriptor(b) + 2 * k, 1);  // generic_tiles: product
  commit_products();
  wait_for_products<0>();
  for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = d[i];
}
FORMS_4(generic_tiles)

// Two warp groups multiply what a third warp has loaded. 1: the wait for a behind the products, 2: no wait for b, 3: one
// group waits for a and the other does not, 4: the parity of the round before, 5: the stage is given back before the
// products are over, 6: the producer does not wait for it. https://github.com/facebookresearch/CUTracer/issues/106
template <int FORM> __global__ void pipeline(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* out, int steps) {
  __shared__ alignas(1024) char stage_a[2][2 * TILE_BYTES], stage_b[2][TILE_BYTES / 8];
  __shared__ Barrier full_a[2], full_b[2], empty[2];
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) init(full_a[s], 1), init(full_b[s], 1), init(empty[s], 2);
    fence_init();
  }
  __syncthreads();
  if (group == 2) {
    for (int i = 0; i < steps && threadIdx.x == 256; ++i) {
      const int s = i % 2;
      if (FORM != 6) wait(empty[s], (i / 2 + 1) % 2);
      arrive_and_expect(full_a[s], 2 * TILE_BYTES);  // pipeline: expect a
      load_tile(stage_a[s], a, 64 * i, 0, full_a[s]);  // pipeline: load a
      arrive_and_expect(full_b[s], TILE_BYTES / 8);  // pipeline: expect b
      load_tile(stage_b[s], b, 64 * i, 0, full_b[s]);  // pipeline: load b
    }
    return;
  }
  float d[4] = {};
  for (int i = 0; i < steps; ++i) {
    const int s = i % 2, parity = (FORM == 4 && i >= 2 ? i / 2 + 1 : i / 2) % 2;
    if (FORM != 1 && !(FORM == 3 && group == 1)) wait(full_a[s], parity);  // pipeline: wait a
    if (FORM != 2) wait(full_b[s], parity);
    open_products();
    for (int k = 0; k < 4; ++k) multiply(d, descriptor(stage_a[s] + group * TILE_BYTES) + 2 * k, descriptor(stage_b[s]) + 2 * k, 1);  // pipeline: product
    commit_products();
    if (FORM == 1) wait(full_a[s], parity);
    if (FORM == 5 && threadIdx.x % 128 == 0) arrive(empty[s]);
    wait_for_products<0>();  // pipeline: over
    if (FORM != 5 && threadIdx.x % 128 == 0) arrive(empty[s]);
  }
  for (int i = 0; i < 4; ++i) out[i * 256 + threadIdx.x] = d[i];
}
FORMS_7(pipeline)

// Two stages that all threads of a warp, or of two, read. 1: the parity is never flipped, 2: twice the bytes are expected,
// 3: a stage is filled again before all warps have seen it full, 4: before all lanes of one have,
// 5: no fence.proxy.async between reads and the copy, which matters only to the letter.
// https://github.com/NVIDIA/cutlass/issues/2404, https://github.com/tile-ai/tilelang/issues/2346,
// https://github.com/rchardx/hopper-gemm/issues/3, https://github.com/deepseek-ai/DeepGEMM/pull/389,
// https://github.com/deepseek-ai/DeepEP/pull/642, https://github.com/NVIDIA/TransformerEngine/pull/2695
template <int FORM> __global__ void stages(float* y, const float* x, int steps) {
  __shared__ alignas(128) float stage[2][64];
  __shared__ Barrier full[2];
  const int t = threadIdx.x;
  const auto fill = [&](int i) {
    arrive_and_expect(full[i % 2], FORM == 2 ? 512 : 256);
    load(stage[i % 2], x + i * 64, 256, full[i % 2]);  // stages: fill
  };
  if (t == 0) init(full[0], 1), init(full[1], 1), fence_init(), fill(0), fill(1);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    wait(full[i % 2], FORM == 1 ? 0 : i / 2 % 2);  // stages: wait
    sum += stage[i % 2][(t + 1) % 64];  // stages: read
    if (FORM != 5) fence_async();
    if (FORM != 3 && FORM != 4) __syncthreads();
    if (t == 0 && i + 2 < steps) fill(i + 2);
  }
  y[t] = sum;
}
FORMS_6(stages)

// Tensor maps in global memory that are changed between copies. 1: a load still reads one, 2: a store does, 3: no
// fence.proxy.tensormap acquires the change, 4: a plain store changes the map, and no fence.proxy.tensormap releases it,
// 5: nor is the load over that reads it. https://github.com/NVIDIA/cutlass/issues/2162, https://github.com/deepseek-ai/DeepGEMM/pull/343
__device__ inline void acquire_map(TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
template <int FORM> __device__ inline void retarget(TensorMap* map, const void* to) {
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(to) : "memory");  // retargeted: change
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
  if (FORM != 3) acquire_map(map);
}
template <int FORM> __global__ void retargeted(TensorMap* from, TensorMap* to, float* x1, float* y1) {
  __shared__ alignas(1024) float tile[2][8 * 32];
  __shared__ Barrier full[2];
  if (threadIdx.x) return;
  init(full[0], 1), init(full[1], 1), fence_init();
  arrive_and_expect(full[0], 1024);
  load_tile(tile[0], *from, 0, 0, full[0]);  // retargeted: load
  if (FORM != 1 && FORM != 5) wait(full[0], 0);
  if (FORM >= 4) {
    ((volatile unsigned*)from)[31] = 0;  // retargeted: plain store
    acquire_map(from);
  } else {
    retarget<FORM>(from, x1);
  }
  arrive_and_expect(full[1], 1024);
  load_tile(tile[1], *from, 0, 0, full[1]);  // retargeted: load again
  wait(full[0], 0), wait(full[1], 0);
  store_tile(*to, 0, 0, tile[0]);  // retargeted: store
  if (FORM != 2) wait_for_stores();
  if (FORM < 4) retarget<FORM>(to, y1);
  store_tile(*to, 0, 0, tile[1]);  // retargeted: store again
  wait_for_stores();
}
FORMS_6(retargeted)

// A tensor map that a warp changes in shared memory and copies over the one in global memory. 1: while a load reads that,
// 2: nobody acquires it.
template <int FORM> __global__ void staged_map(TensorMap* from, float* x1) {
  __shared__ alignas(128) TensorMap staged;
  __shared__ alignas(1024) float tile[2][8 * 32];
  __shared__ Barrier full[2];
  const int lane = threadIdx.x;
  if (lane == 0) {
    init(full[0], 1), init(full[1], 1), fence_init();
    arrive_and_expect(full[0], 1024);
    load_tile(tile[0], *from, 0, 0, full[0]);  // staged_map: load
  }
  __syncwarp();
  if (FORM != 1) wait(full[0], 0);
  ((unsigned*)&staged)[lane] = ((unsigned*)from)[lane];
  __syncwarp();
  if (lane == 0)
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared_address(&staged)), "l"(x1) : "memory");
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(from), "r"(shared_address(&staged)) : "memory");  // staged_map: copy
  if (FORM != 2) acquire_map(from);
  if (lane == 0) {
    arrive_and_expect(full[1], 1024);
    load_tile(tile[1], *from, 0, 0, full[1]);  // staged_map: load again
  }
  wait(full[0], 0), wait(full[1], 0);
}
FORMS_3(staged_map)

// An mbarrier is initialised and a copy counts on it. 1: no fence.mbarrier_init, 2: nor a barrier, 3: it is initialised
// again while others wait. https://github.com/MoonshotAI/FlashKDA/issues/24
template <int FORM> __global__ void first_copy(float* y, const float* x) {
  __shared__ alignas(128) float tile[64];
  __shared__ Barrier full;
  const int t = threadIdx.x;
  if (t == 0) {
    init(full, 1);  // first_copy: init
    if (FORM == 0 || FORM == 3) fence_init();
  }
  if (FORM != 2) __syncthreads();
  if (t == 32) {
    arrive_and_expect(full, 256);  // first_copy: expect
    load(tile, x, 256, full);  // first_copy: copy
  }
  if (FORM == 2) __syncthreads();
  wait(full, 0);  // first_copy: wait
  y[t] = tile[t];
  fence_async();
  if (FORM == 3) {
    if (t == 0) init(full, 1), fence_init();  // first_copy: again
    __syncthreads();  // first_copy: barrier
    if (t == 32) {
      arrive_and_expect(full, 256);
      load(tile, x, 256, full);
    }
    wait(full, 0);
    y[t] += tile[t];
  }
}
FORMS_4(first_copy)

// Blocks of a cluster read each other's parts, then what one of them multicasts. 1: a part is written again while the
// other block reads it, 2: it is read before the other block wrote it, 3: the producer waits for its own block only.
// https://github.com/NVIDIA/cutlass/issues/3316
template <int FORM> __global__ void __cluster_dims__(2, 1, 1) cluster_sums(float* out, const float* x, int rounds) {
  __shared__ float part[64];
  __shared__ alignas(128) float stage[64];
  __shared__ Barrier full, empty;
  const int t = threadIdx.x;
  const unsigned rank = cluster_rank();
  if (t == 0) init(full, 1), init(empty, FORM == 3 ? 1 : 2), fence_init();
  cluster_barrier();
  float sum = 0, other;
  for (int i = 0; i < rounds; ++i) {
    part[t] = x[(i * 2 + rank) * 64 + t];  // cluster_sums: write
    if (FORM == 2) __syncthreads();
    else cluster_barrier();
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(other) : "r"(in_block(shared_address(&part[63 - t]), rank ^ 1)) : "memory");  // cluster_sums: remote read
    sum += other;
    if (FORM == 1) __syncthreads();
    else cluster_barrier();
  }
  for (int i = 0; i < rounds; ++i) {
    if (t == 0) arrive_and_expect(full, 256);
    if (rank == 0 && t == 0) {
      if (i) wait_in_cluster(empty, (i + 1) % 2);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;" ::"r"(shared_address(stage)), "l"(x + i * 64), "r"(shared_address(&full)), "h"((unsigned short)3) : "memory");  // cluster_sums: multicast
    }
    wait(full, i % 2);
    sum += stage[63 - t];  // cluster_sums: stage read
    fence_async();
    __syncthreads();
    if (t == 0 && (FORM != 3 || rank == 0)) arrive_in(empty, 0);
  }
  out[blockIdx.x * 64 + t] = sum;
  cluster_barrier();
}
FORMS_4(cluster_sums)

// What a block does to shared memory of another one, and that reads it. 1: stores and 3: atomics without a barrier of
// the cluster between, 2: atomics with it.
template <int FORM> __global__ void __cluster_dims__(2, 1, 1) remote_writes(int* out) {
  __shared__ int part[32];
  part[threadIdx.x] = 0;
  cluster_barrier();
  const unsigned there = in_block(shared_address(&part[threadIdx.x]), cluster_rank() ^ 1);
  if (FORM < 2) asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(7) : "memory");  // remote_writes: remote store
  else asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(there), "r"(7) : "memory");  // remote_writes: remote atomic
  if (FORM % 2 == 0) cluster_barrier();
  out[blockIdx.x * 32 + threadIdx.x] = part[threadIdx.x];  // remote_writes: read
  cluster_barrier();
}
FORMS_4(remote_writes)

// st.async counts its bytes at an mbarrier of the block that it writes to. 1: the reader does not wait for that.
template <int FORM> __global__ void __cluster_dims__(2, 1, 1) stored_async(int* out) {
  __shared__ int part[32];
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1), fence_init(), arrive_and_expect(full, 128);
  cluster_barrier();
  const unsigned rank = cluster_rank() ^ 1;
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(in_block(shared_address(&part[threadIdx.x]), rank)), "r"(7), "r"(in_block(shared_address(&full), rank)) : "memory");  // stored_async: store
  if (FORM == 0) wait(full, 0);
  else cluster_barrier();
  out[blockIdx.x * 32 + threadIdx.x] = part[threadIdx.x];  // stored_async: read
  cluster_barrier();
}
FORMS_2(stored_async)

// cp.async of two warps, each of which counts at an mbarrier of its own. 1: both wait for the first only.
template <int FORM> __global__ void counted_copies(float* y, const float* x) {
  __shared__ alignas(16) float tile[2][128];
  __shared__ Barrier full[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) init(full[0], 32), init(full[1], 32);
  __syncthreads();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tile[warp][4 * lane])), "l"(x + 4 * threadIdx.x) : "memory");  // counted_copies: copy
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&full[warp])) : "memory");
  __syncthreads();
  wait(full[0], 0);
  if (FORM == 0) wait(full[1], 0);
  y[threadIdx.x] = tile[0][threadIdx.x] + tile[1][threadIdx.x];  // counted_copies: read
}
FORMS_2(counted_copies)

// The second of two launches that may overlap reads what the first writes. 1: without griddepcontrol.wait.
// https://github.com/NVIDIA/cutlass/issues/2760
template <int FORM> __global__ void dependent(float* y, const float* x) {
  if (FORM == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
  y[threadIdx.x] = 2 * x[threadIdx.x];  // dependent: read
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
FORMS_2(dependent)
