// Kernels that write what an asynchronous copy reads: with FAULT before the copy is over, without it after a wait.
// Lines that end in "copy" ask for the copy, those that end in "write" write its source.
#include "copies.cuh"
#ifdef FAULT
#define EARLY(statement) statement
#define LATE(statement)
#else
#define EARLY(statement)
#define LATE(statement) statement
#endif

constexpr int kThreads = 128, kBytes = kThreads * sizeof(int);

#define MEET meet(out + 1000)
#define BEGIN                                    \
  __shared__ alignas(1024) int tile[kThreads];   \
  __shared__ Barrier full;                       \
  const int t = threadIdx.x;                     \
  if (t == 0) init(full, 1), fence_init();       \
  tile[t] = -7;                                  \
  fence_async();                                 \
  __syncthreads();
#define KERNEL(name) extern "C" __global__ void name(int* x, int* out, const __grid_constant__ TensorMap map)

// ---- cp.async ----

KERNEL(own_store) {
  BEGIN
  copy(tile + t, x + t);  // copy
  commit();
  EARLY(x[t] = -1;)  // write
  wait_for_copies();
  LATE(x[t] = -1;)
  __syncthreads();
  out[t] = tile[t];
}

// Its own element, which it has not waited for.
extern "C" __global__ void unawaited(int* x, int* out) {
  BEGIN
  copy(tile + t, x + t);
  out[t] = tile[t];
  wait_for_copies();
}

// The group that is waited for is the one before.
KERNEL(wrong_group) {
  BEGIN
  if (t >= 64) copy(tile + t, x + t);
  commit();
  if (t < 64) copy(tile + t, x + t);  // copy
  commit();
  EARLY(asm volatile("cp.async.wait_group 1;" ::: "memory");)
  LATE(wait_for_copies();)
  if (t < 64) x[t] = -1;  // write
  wait_for_copies();
  __syncthreads();
  out[t] = tile[t];
}

KERNEL(other_warp) {
  BEGIN
  copy(tile + t, x + t);  // copy
  commit();
  EARLY(__syncthreads(); x[127 - t] = -1;)  // write
  wait_for_copies();
  __syncthreads();
  LATE(x[127 - t] = -1;)
  out[t] = tile[t];
}

// Its warp waits, and nothing tells the others that it has.
KERNEL(waited_by_one_warp) {
  BEGIN
  if (t < 32) {
    copy(tile + t, x + t);  // copy
    commit();
  }
  __syncthreads();
  if (t < 32) wait_for_copies();
  LATE(__syncthreads();)
  if (t >= 96) x[t - 96] = -1;  // write
  __syncthreads();
  out[t] = tile[t];
}

KERNEL(atomic) {
  BEGIN
  copy(tile + t, x + t);  // copy
  commit();
  EARLY(atomicAdd(x + t, 3);)  // write
  wait_for_copies();
  LATE(atomicAdd(x + t, 3);)
  __syncthreads();
  out[t] = tile[t];
}

KERNEL(at_an_mbarrier) {
  __shared__ Barrier landed;
  BEGIN
  if (t == 0) init(landed, kThreads);
  __syncthreads();
  copy(tile + t, x + t);  // copy
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&landed)) : "memory");
  __syncthreads();
  if (t < 32) wait(landed, 0);
  LATE(wait(landed, 0);)
  x[127 - t] = -1;  // write
  wait(landed, 0);
  out[t] = tile[t];
}

KERNEL(block_behind_a_flag) {
  BEGIN
  if (blockIdx.x == 0) {
    copy(tile + t, x + t);  // copy
    commit();
    LATE(wait_for_copies();)
  }
  MEET;
  if (blockIdx.x == 1) x[t] = -1;  // write
  wait_for_copies();
  __syncthreads();
  if (blockIdx.x == 0) out[t] = tile[t];
}

// ---- bulk loads ----

KERNEL(bulk_own_store) {
  BEGIN
  if (t == 0) {
    arrive_and_expect(full, kBytes);
    load(tile, x, kBytes, full);  // copy
    EARLY(x[5] = -1;)             // write
  }
  wait(full, 0);
  LATE(if (t == 0) x[5] = -1;)
  out[t] = tile[t];
}

// Each thread has waited itself, and no barrier follows.
KERNEL(bulk_each_after_its_wait) {
  BEGIN
  if (t == 0) {
    arrive_and_expect(full, kBytes);
    load(tile, x, kBytes, full);  // copy
  }
  __syncthreads();
  EARLY(if (t < 64))
  wait(full, 0);
  x[127 - t] = -1;  // write
  wait(full, 0);
  out[t] = tile[t];
}

KERNEL(bulk_block_behind_a_flag) {
  BEGIN
  if (blockIdx.x == 0) {
    if (t == 0) {
      arrive_and_expect(full, kBytes);
      load(tile, x, kBytes, full);  // copy
    }
    LATE(wait(full, 0);)
  }
  MEET;
  if (blockIdx.x == 1) x[t] = -1;  // write
  if (blockIdx.x == 0) wait(full, 0);
  if (blockIdx.x == 0) out[t] = tile[t];
}

KERNEL(tensor_own_store) {
  BEGIN
  if (t == 0) {
    arrive_and_expect(full, kBytes);
    load_tile(tile, map, 0, 0, full);  // copy
    EARLY(x[33] = -1;)                 // write
  }
  wait(full, 0);
  LATE(if (t == 0) x[33] = -1;)
  out[t] = tile[t];
}

KERNEL(bulk_store_to_source) {
  __shared__ alignas(16) int other[kThreads];
  BEGIN
  other[t] = -1;
  fence_async();
  __syncthreads();
  if (t == 0) {
    arrive_and_expect(full, kBytes);
    load(tile, x, kBytes, full);  // copy
    LATE(wait(full, 0);)
    store(x, other, kBytes);  // write
    wait_for_stores();
  }
  wait(full, 0);
  out[t] = tile[t];
}

KERNEL(tensor_store_to_source) {
  __shared__ alignas(128) int other[kThreads];
  BEGIN
  other[t] = -1;
  fence_async();
  __syncthreads();
  if (t == 0) {
    arrive_and_expect(full, kBytes);
    load(tile, x, kBytes, full);  // copy
    LATE(wait(full, 0);)
    store_tile(map, 0, 0, other);  // write
    wait_for_stores();
  }
  wait(full, 0);
  out[t] = tile[t];
}

KERNEL(reduction_to_source) {
  __shared__ alignas(16) int other[kThreads];
  BEGIN
  other[t] = 2;
  fence_async();
  __syncthreads();
  if (t == 0) {
    arrive_and_expect(full, kBytes);
    load(tile, x, kBytes, full);  // copy
    LATE(wait(full, 0);)
    add(x, other, kBytes);  // write
    wait_for_stores();
  }
  wait(full, 0);
  out[t] = tile[t];
}

// ---- bulk stores, which read shared memory ----

KERNEL(shared_own_store) {
  BEGIN
  if (t == 0) {
    store(out, tile, kBytes);  // copy
    EARLY(tile[1] = 3;)        // write
    wait_for_reads();
    LATE(tile[1] = 3;)
    wait_for_stores();
  }
}

KERNEL(shared_atomic) {
  BEGIN
  if (t == 0) {
    store(out, tile, kBytes);       // copy
    EARLY(atomicAdd(tile + 1, 3);)  // write
    wait_for_reads();
    LATE(atomicAdd(tile + 1, 3);)
    wait_for_stores();
  }
}

KERNEL(shared_copy_into) {
  BEGIN
  if (t == 0) {
    store(out, tile, kBytes);   // copy
    EARLY(copy(tile + 1, x);)   // write
    wait_for_reads();
    LATE(copy(tile + 1, x);)
    wait_for_copies();
    wait_for_stores();
  }
}

// One thread waits, and nothing tells the others that it has.
KERNEL(shared_waited_by_one) {
  BEGIN
  if (t == 0) store(out, tile, kBytes);  // copy
  __syncthreads();
  if (t == 0) wait_for_reads();
  LATE(__syncthreads();)
  if (t >= 96) tile[t - 96] = 3;  // write
  if (t == 0) wait_for_stores();
}
