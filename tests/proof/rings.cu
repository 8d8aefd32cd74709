// Kernels whose threads have roles, and wait for each other at mbarriers; a macro turns each into its faulty twin.
#include "../ptx/hopper.cuh"
#ifndef SLIP
#define SLIP 0
#endif
#define SLIPPED(number) (SLIP == number)

// One thread fills a ring of three stages for two warps; `fill` copies tile k.
template <class Fill> __device__ __forceinline__ void filled(float* out, int tiles, Fill fill) {
  __shared__ alignas(128) float stage[3][256];
  __shared__ Barrier full[3], empty[3];
  const int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 3; ++s) init(full[s], SLIPPED(6) ? 2 : 1), init(empty[s], SLIPPED(5) ? 63 : 64);
    if (!SLIPPED(7)) fence_init();
  }
  if (!SLIPPED(8)) __syncthreads();
  if (t >= 64) {
    if (t == 64)
#pragma unroll 1
      for (int k = 0; k < tiles; ++k) {
        const int s = k % 3;
        if (!SLIPPED(1)) wait(empty[s], (k / 3 + !SLIPPED(2)) % 2);
        if (!SLIPPED(13)) arrive_and_expect(full[s], SLIPPED(4) ? 2048 : 1024);
        fill(stage[SLIPPED(9) ? 0 : s] + (SLIPPED(14) ? 16 : 0), k, full[s]);
      }
    return;
  }
  float sum = 0.f;
#pragma unroll 1
  for (int k = 0; k < tiles; ++k) {
    const int s = k % 3;
    if (!SLIPPED(10)) wait(full[s], (k / 3 + SLIPPED(11)) % 2);
    if (SLIPPED(12)) arrive(empty[s]);
    sum += stage[s][(t * 4 + 5) & 255];
    if (!SLIPPED(3) && !SLIPPED(12)) arrive(empty[s]);
  }
  out[blockIdx.x * 64 + t] = sum;
}

extern "C" __global__ void ring(float* out, const float* x, int tiles) {
  const float* mine = x + (long long)blockIdx.x * tiles * 256;
  filled(out, tiles, [=](float* to, int k, Barrier& full) { load(to, mine + k * 256, 1024, full); });
}

// The same by tensor copies: boxes of 16 x 16 elements of a matrix of any size.
extern "C" __global__ void tile_ring(float* out, const __grid_constant__ TensorMap x, int tiles) {
  filled(out, tiles, [&](float* to, int k, Barrier& full) { load_tile(to, x, k * 16, blockIdx.x * 16, full); });
}

// The same with a stage and a phase that are counted on, and rounds that the compiler unrolls by four.
extern "C" __global__ void counted_ring(float* out, const float* x, int tiles) {
  __shared__ alignas(128) float stage[3][256];
  __shared__ Barrier full[3], empty[3];
  const int t = threadIdx.x;
  const float* mine = x + (long long)blockIdx.x * tiles * 256;
  if (t == 0) {
    for (int s = 0; s < 3; ++s) init(full[s], 1), init(empty[s], 64);
    fence_init();
  }
  __syncthreads();
  int s = 0, phase = t < 64 ? 0 : 1;
  if (t == 64) {
    for (int k = 0; k < tiles; ++k) {
      wait(empty[s], phase);
      arrive_and_expect(full[s], 1024);
      load(stage[s], mine + k * 256, 1024, full[s]);
      if (++s == (SLIPPED(1) ? 2 : 3)) s = 0, phase ^= 1;
    }
  }
  if (t >= 64) return;
  float sum = 0.f;
  for (int k = 0; k < tiles; ++k) {
    wait(full[s], phase);
    sum += stage[s][(t * 4 + 5) & 255];
    arrive(empty[s]);
    if (++s == 3) s = 0, phase ^= !SLIPPED(2);
  }
  out[blockIdx.x * 64 + t] = sum;
}

// All threads add to a tile of one stage where it lies, before it is filled again.
extern "C" __global__ void changed_in_place(float* out, const float* x, int tiles) {
  __shared__ alignas(128) float stage[64];
  __shared__ Barrier full;
  const int t = threadIdx.x;
  if (t == 0) init(full, 1), fence_init();
  __syncthreads();
  float sum = 0.f;
#pragma unroll 1
  for (int k = 0; k < tiles; ++k) {
    if (t == 0) {
      arrive_and_expect(full, 256);
      load(stage, x + k * 64, 256, full);
    }
    wait(full, k % 2);
    stage[t] += 1;
    if (!SLIPPED(1)) fence_async();
    if (!SLIPPED(2)) __syncthreads();
    sum += stage[63 - t];
    if (!SLIPPED(3)) __syncthreads();
  }
  out[t] = sum;
}

// Two groups of warps, each with a barrier of its own.
extern "C" __global__ void grouped(float* out, const float* x) {
  __shared__ float part[2][64];
  const int t = threadIdx.x % 64, group = threadIdx.x / 64;
  part[group][t] = x[threadIdx.x];
  if (group == 0) {
    if (!SLIPPED(1)) asm volatile("bar.sync 1, %0;" ::"n"(SLIPPED(2) ? 96 : 64) : "memory");
  } else {
    asm volatile("bar.sync 2, 64;" ::: "memory");
  }
  out[threadIdx.x] = part[SLIPPED(3) ? 1 - group : group][63 - t];
}

// 64 rows of A times 8 columns of B^T: a thread fills three stages, a warp group multiplies with one group of products
// in flight, gives a stage back when the next one's products are under way, and stores its tile by a tensor copy.
extern "C" __global__ void multiplied(const __grid_constant__ TensorMap out, const __grid_constant__ TensorMap a,
                                      const __grid_constant__ TensorMap b, int steps) {
  __shared__ alignas(1024) char rows[3][64 * 128], columns[3][8 * 128];
  __shared__ alignas(128) float result[64 * 8];
  __shared__ Barrier full[3], empty[3];
  const int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 3; ++s) init(full[s], 1), init(empty[s], 1);
    fence_init();
  }
  __syncthreads();
  if (t >= 128) {
    if (t == 128)
#pragma unroll 1
      for (int k = 0; k < steps; ++k) {
        const int s = k % 3;
        if (!SLIPPED(1)) wait(empty[s], (k / 3 + 1) % 2);
        arrive_and_expect(full[s], 72 * 128);
        load_tile(rows[s], a, 64 * k, 64 * blockIdx.x, full[s]);
        load_tile(columns[s], b, 64 * k, 0, full[s]);
      }
    return;
  }
  float d[4] = {};
  const auto issue = [&](int k) {
    const int s = k % 3;
    if (!SLIPPED(2)) wait(full[s], k / 3 % 2);
    if (!SLIPPED(3)) open_products();
    for (int i = 0; i < 4; ++i) multiply(d, descriptor(rows[s]) + 2 * i, descriptor(columns[s]) + 2 * i, 1);
    if (!SLIPPED(4)) commit_products();
  };
  issue(0);
#pragma unroll 1
  for (int k = 1; k < steps; ++k) {
    issue(k);
    wait_for_products<SLIPPED(5) ? 2 : 1>();
    if (t == 0) arrive(empty[(k - !SLIPPED(6)) % 3]);
  }
  if (!SLIPPED(7)) wait_for_products<0>();
  for (int i = 0; i < 4; ++i) result[(t / 32 * 16 + t % 32 / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = d[i];
  if (!SLIPPED(8)) fence_async();
  if (!SLIPPED(9)) meet<128>(1);
  if (t == 0) {
    store_tile(out, 0, SLIPPED(10) ? 32 * blockIdx.x : 64 * blockIdx.x, result);
    if (!SLIPPED(11)) wait_for_reads();
  }
  if (SLIPPED(12)) result[t] = 0;
}

// One lane of each warp writes.
extern "C" __global__ void elected(float* out) {
  unsigned chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  if (chosen || SLIPPED(1)) out[threadIdx.x / 32] = threadIdx.x;
}

// An index in shared memory that the other group of warps changes behind a barrier of both.
extern "C" __global__ void told(float* out) {
  __shared__ int place;
  const int t = threadIdx.x;
  if (t == 0) place = 0;
  asm volatile("bar.sync 1, 128;" ::: "memory");
  if (t == 64) place = SLIPPED(1) ? 5000 : 1;
  asm volatile("bar.sync 2, 128;" ::: "memory");
  if (t == 0) out[place] = 1;
}

extern "C" __global__ void short_matrix(float* out) {  // 32 rows where a product reads 64
  __shared__ alignas(1024) char rows[32 * 128], columns[8 * 128];
  float d[4] = {};
  ((float*)rows)[threadIdx.x] = ((float*)columns)[threadIdx.x] = 0.f;
  fence_async();
  __syncthreads();
  open_products();
  multiply(d, descriptor(rows), descriptor(columns), 1);
  commit_products();
  wait_for_products<0>();
  out[threadIdx.x] = d[0];
}

// A lane arrives for its warp behind a barrier of it.
extern "C" __global__ void weighted(float* out, const float* x) {
  __shared__ float part[32];
  __shared__ Barrier full;
  const int t = threadIdx.x;
  if (t == 0) init(full, 32), fence_init();
  __syncthreads();
  if (t < 32) {
    part[t] = x[t];
    if (!SLIPPED(2)) __syncwarp();
    if (t == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)), "n"(SLIPPED(1) ? 16 : 32)
                   : "memory");
    return;
  }
  wait(full, 0);
  out[t - 32] = part[t - 32];
}

// Warps that a byte each sends to a task, and another byte to the end: two tasks write a half of the result.
extern "C" __global__ void dispatched(float* out, const float* x) {
  __shared__ unsigned char task[4];
  const int t = threadIdx.x, warp = __shfl_sync(~0u, t / 32, 0);
  if (warp == 2) {
    if (t == 64 && (!SLIPPED(1) || x[0] > 0)) task[0] = 0, task[1] = SLIPPED(2) ? 0 : 1;
    meet<96>(1);
    if (!SLIPPED(3)) meet<96>(1);
    if (t == 64) task[0] = task[1] = 2;
    meet<96>(1);
    return;
  }
  for (;;) {
    meet<96>(1);
    const int mine = task[warp];
    if (mine == 2) return;
    out[mine * 32 + t % 32] = x[t];
    meet<96>(1);
  }
}

// One thread waits for its own copy before it has asked for it.
extern "C" __global__ void late(float* out, const float* x) {
  __shared__ alignas(128) float stage[64];
  __shared__ Barrier full;
  const int t = threadIdx.x;
  if (t == 0) init(full, 1), fence_init();
  __syncthreads();
  if (t == 0) {
    arrive_and_expect(full, 256);
    if (SLIPPED(1)) wait(full, 0);
    load(stage, x, 256, full);
  }
  if (t != 0 || !SLIPPED(1)) wait(full, 0);
  out[t] = stage[t];
}
