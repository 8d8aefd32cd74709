// Small faulty kernels: of each, one rule of the prover alone tells the fault (test_rules.py).
#define SHARED(p) ((unsigned)__cvta_generic_to_shared(p))
#define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(SHARED(to)), "l"(from) : "memory")
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(count) asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory")

extern "C" __global__ void some_lanes_wait(float* out, const float* x) {
  __shared__ float part[32];
  int t = threadIdx.x;
  part[t] = x[t];
  __syncwarp(t < 16 ? 0xFFFFu : 0xFFFF0000u);
  if (t == 0) out[0] = part[31];
}

extern "C" __global__ void warps_do_not_meet(float* out, const float* x) {
  __shared__ float part[64];
  int t = threadIdx.x;
  part[t] = x[t];
  __syncwarp();
  out[t] = part[63 - t];
}

extern "C" __global__ void rows_of_warps(float* out, const float* x) {  // block (32, 2)
  __shared__ float part[64];
  int t = threadIdx.y * 32 + threadIdx.x;
  part[t] = x[t];
  __syncwarp();
  out[t] = part[t ^ 32];
}

extern "C" __global__ void lane_of_a_square(float* out) {  // block (16, 4)
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  atomicAdd(out + lane, 1.f);
}

extern "C" __global__ void own_index(float* out, int* index) {
  int t = threadIdx.x;
  index[t] = 1 << 20;
  __syncthreads();
  atomicAdd(out + index[t], 1.f);
}

extern "C" __global__ void barrier_on_one_path(float* out, const float* x, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  part[t] = x[t];
  if (n > 3) __syncthreads();
  out[t] = part[63 - t];
}

extern "C" __global__ void joined_paths(float* out, int n) {
  int place = 0;
  if (n > 3) asm volatile("mov.b32 %0, 0;" : "=r"(place));
  else asm volatile("mov.b32 %0, 64;" : "=r"(place));
  __syncthreads();
  out[place + threadIdx.x] = 1.f;
}

extern "C" __global__ void ended_after_a_store(float* out, const float* x, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  part[t] = 0.f;
  if (t >= n) return;
  __syncthreads();
  out[t] = part[63 - t];
}

extern "C" __global__ void ended_after_a_path(float* out, const float* x, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  if (t < n / 2) {
    asm volatile("membar.cta;");
    part[t] = 0.f;
  }
  if (t >= n) return;
  __syncthreads();
  out[t] = part[63 - t];
}

extern "C" __global__ void copied_and_read(float* out, const float* x) {
  __shared__ __align__(16) float stage[64 * 4];
  int t = threadIdx.x;
  COPY(stage + t * 4, x + t * 4);
  COMMIT;
  WAIT(1);
  __syncthreads();
  out[t] = stage[(t * 4 + 9) & 255];
}

extern "C" __global__ void copied_without_a_group(float* out, const float* x) {
  __shared__ __align__(16) float stage[64 * 4];
  int t = threadIdx.x;
  COPY(stage + t * 4, x + t * 4);
  WAIT(0);
  __syncthreads();
  out[t] = stage[(t * 4 + 9) & 255];
}

extern "C" __global__ void copied_on_one_path(float* out, const float* x, int n) {
  __shared__ __align__(16) float stage[64 * 4];
  int t = threadIdx.x;
  if (n > 3) COPY(stage + t * 4, x + t * 4);
  COMMIT;
  __syncthreads();
  out[t] = stage[(t * 4 + 9) & 255];
}

extern "C" __global__ void copied_from_outside(const float* x) {  // x has 64 * 4 - 1 elements
  __shared__ __align__(16) float stage[64 * 4];
  COPY(stage + threadIdx.x * 4, x + threadIdx.x * 4);
  COMMIT;
  WAIT(0);
}

extern "C" __global__ void copied_to_outside(const float* x) {
  __shared__ __align__(16) float stage[63 * 4];
  COPY(stage + threadIdx.x * 4, x + threadIdx.x * 4);
  COMMIT;
  WAIT(0);
}

extern "C" __global__ void read_before_waiting(float* out, const float* x) {
  __shared__ __align__(16) float stage[64 * 4];
  int t = threadIdx.x;
  COPY(stage + t * 4, x + t * 4);
  COMMIT;
  out[t] = stage[t * 4];
  WAIT(0);
}

extern "C" __global__ void copies_over_rounds(float* out, const float* x, int n) {
  __shared__ __align__(16) float stage[2][64 * 4];
  int t = threadIdx.x;
  float sum = 0.f;
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    sum += stage[k + 1 & 1][(t * 4 + 9) & 255];
    __syncthreads();
    COPY(stage[k & 1] + t * 4, x + t * 4);
    COMMIT;
    WAIT(1);
  }
  out[t] = sum;
}

extern "C" __global__ void far_strides(float* out, int n) {
  for (int i = threadIdx.x; i < n; i += 1 << 20) atomicAdd(out + i, 1.f);
}

extern "C" __global__ void rounds_of_threads(float* out, const float* x, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  float sum = 0.f;
  for (int k = t; k < n; ++k) {
    __syncthreads();
    sum += k;
  }
  out[t] = sum;
}

extern "C" __global__ void barrier_in_some_rounds(float* out, const float* x, int n) {
  __shared__ float part[64];
  float sum = 0.f;
  part[threadIdx.x] = x[threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    if (k == 1) sum += part[63 - threadIdx.x];
    if (k % 3 == 2) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

extern "C" __global__ void one_of_two_arrays(float* out, float* other, int n) {  // other has 63 elements
  float* place = n > 3 ? out : other;
  place[threadIdx.x] = 1.f;
}

extern "C" __global__ void rows_of_matrices(int* out) {
  __shared__ __align__(16) int tile[32 * 4 - 1];
  unsigned a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(SHARED(tile + threadIdx.x * 4)));
  out[threadIdx.x] = a + b + c + d;
}

extern "C" __global__ void vector_outside(float* out) {  // out has 64 * 4 - 1 elements
  ((float4*)out)[threadIdx.x] = make_float4(0.f, 0.f, 0.f, 0.f);
}

extern "C" __global__ void signed_bytes(float* out, const signed char* x) {  // out has 256 elements
  atomicAdd(out + x[threadIdx.x], 1.f);
}

extern "C" __global__ void plain_sum(float* out) { out[0] += 1.f; }

extern "C" __global__ void sum_of_a_block(int* out) { atomicAdd_block(out, 1); }

extern "C" __global__ void sums_of_two_sizes(unsigned* out) {
  if (threadIdx.x < 32) atomicAdd(out + 1, 1u);
  else atomicAdd((unsigned long long*)out, 1ull);
}

extern "C" __global__ void read_as_it_was(float* out) {
  float v;
  out[threadIdx.x] = 1.f;
  __syncthreads();
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(out + (threadIdx.x + 1) % 64) : "memory");
  out[64 + threadIdx.x] = v;
}

extern "C" __global__ void store_beside_a_sum(float* out) {
  if (threadIdx.x == 0) out[0] = 2.f;
  else atomicAdd(out, 1.f);
}

extern "C" __global__ void left_of_it(float* out, const float* x) { out[threadIdx.x] = x[(int)threadIdx.x - 1]; }

extern "C" __global__ void right_of_it(float* out, const float* x) { out[threadIdx.x] = x[threadIdx.x + 1]; }

extern "C" __global__ void beside_a_vector(float4* out, const float* x) { out[threadIdx.x] = *(const float4*)(x + threadIdx.x); }

extern "C" __global__ void vectors_of_floats(float4* out) {
  __shared__ float part[64 * 4];
  for (int k = 0; k < 4; ++k) part[threadIdx.x * 4 + k] = k;
  out[threadIdx.x] = *(float4*)(part + threadIdx.x * 4);
}

extern "C" __global__ void some_reach_it(float* out, int n) {
  if (threadIdx.x < n) __syncthreads();
  out[threadIdx.x] = 1.f;
}

extern "C" __global__ void two_blocks(float* out) {
  if (threadIdx.x == 0) out[blockIdx.x / 2] = 1.f;
}

extern "C" __global__ void in_the_middle(float4* out, float* other) {
  __shared__ __align__(16) float part[64];
  if (threadIdx.x == 0) *(float4*)part = make_float4(1.f, 1.f, 1.f, 1.f);
  if (threadIdx.x == 1) other[0] = part[3];
  __syncthreads();
  out[threadIdx.x] = ((float4*)part)[0];
}

extern "C" __global__ void over_the_next(float4* out) {
  int t = threadIdx.x;
  out[t] = make_float4(1.f, 1.f, 1.f, 1.f);
  if (t < 63) ((float*)out)[t * 4 + 5] = 2.f;
}

extern "C" __global__ void repeated_stores(float* out, const float* x, int n) {  // as Triton's, whose threads may repeat a store
  unsigned to;
  asm volatile(".shared .align 4 .b8 global_smem[128]; mad.lo.u32 %0, %1, 4, global_smem;" : "=r"(to) : "r"(threadIdx.x % 32));
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x[0]) : "memory");
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x[1]) : "memory");
  __syncthreads();
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(to) : "memory");
  if (threadIdx.x < 32) out[threadIdx.x] = v;
}

extern "C" __global__ void stored_by_no_replicas(float* out) {  // as another compiler's that uses LLVM
  __shared__ float part[32];
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(SHARED(part + threadIdx.x % 32)), "f"((float)threadIdx.x) : "memory");
}

extern "C" __global__ void replicas_of_two_values(unsigned* out) {  // two threads store to a place what only one holds
  unsigned to, v;
  asm volatile(".shared .align 4 .b8 global_smem[128]; mad.lo.u32 %0, %1, 4, global_smem;" : "=r"(to) : "r"(threadIdx.x % 32));
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(threadIdx.x) : "memory");
  __syncthreads();
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(to) : "memory");
  if (threadIdx.x < 32) out[threadIdx.x] = v;
}

extern "C" __global__ void replicas_of_two_copies(const float4* x) {
  unsigned to;
  asm volatile(".shared .align 16 .b8 global_smem[512]; mad.lo.u32 %0, %1, 16, global_smem;" : "=r"(to) : "r"(threadIdx.x % 32));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
}

extern "C" __global__ void scattered(float* out, const int* index) { out[index[threadIdx.x]] = 1.f; }

extern "C" __global__ void changed_meanwhile(float* out) {
  __shared__ volatile int place;
  if (threadIdx.x == 0) place = 0;
  __syncthreads();
  atomicAdd(out + place, 1.f);
  if (threadIdx.x == 63) place = 64;
}

extern "C" __global__ void changed_behind_it(float* out, int n) {
  __shared__ volatile int place;
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    if (threadIdx.x == 0) place = 0;
    __syncthreads();
    int v = *(int*)&place;
    __syncthreads();
    atomicAdd(out + v, 1.f);
    if (threadIdx.x == 63) place = 64;
  }
}

extern "C" __global__ void stored_by_some(float* out, int n) {
  __shared__ int place[64];
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    if (threadIdx.x < 32) place[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(out + place[63 - threadIdx.x], 1.f);
    __syncthreads();
    place[threadIdx.x] = 64;
    __syncthreads();
  }
}

extern "C" __global__ void rounds_that_do_not_come(float* out, const int* x) {
  __shared__ int place[64];
  int t = threadIdx.x;
  if (t == 0) {
#pragma unroll 1
    for (int k = 0; k < 64; ++k) {
      if (x[k] > 0) break;
      place[k] = 0;
    }
  }
  __syncthreads();
  if (t > 1 && x[t] <= 0 && x[t - 1] <= 0 && x[t - 2] <= 0 && x[0] > 0) atomicAdd(out + place[t], 1.f);
}

extern "C" __global__ void extended(float* out, const int* x) {  // elements of x are at least -1
  unsigned long long v;
  asm volatile("ld.global.u32 %0, [%1];" : "=l"(v) : "l"(x + threadIdx.x));
  atomicAdd(out + v + 1, 1.f);
}

extern "C" __global__ void narrowed(float* out) {
  int v;
  asm volatile("cvt.s8.s32 %0, %1;" : "=r"(v) : "r"(threadIdx.x * 4));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void clamped(float* out) {
  int v;
  asm volatile("min.relu.s32 %0, %1, 5;" : "=r"(v) : "r"((int)threadIdx.x - 64));
  atomicAdd(out + v + 64, 1.f);
}

extern "C" __global__ void half_a_unit(float* out) {  // a multiple of 2**31 is no multiple of 2**32
  unsigned v;
  asm volatile("shl.b32 %0, %1, 31;" : "=r"(v) : "r"(threadIdx.x));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void sign_of_it(float* out) {
  int v;
  asm volatile("shr.s32 %0, %1, 31;" : "=r"(v) : "r"((int)threadIdx.x - 1));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void high_bit(float* out) {
  unsigned v;
  asm volatile("shr.u32 %0, %1, 31;" : "=r"(v) : "r"(threadIdx.x - 1));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void divided(float* out) {
  int v;
  asm volatile("div.s32 %0, %1, 4;" : "=r"(v) : "r"((int)threadIdx.x * 4 - 7));
  atomicAdd(out + v + 2, 1.f);
}

extern "C" __global__ void rest_of_it(float* out) {
  int v;
  asm volatile("rem.s32 %0, %1, 64;" : "=r"(v) : "r"((int)threadIdx.x - 1));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void one_place_apart(float* out, const int* starts, const int* lengths) {
  int b = blockIdx.x;
  if (threadIdx.x <= lengths[b]) out[starts[b] + threadIdx.x] = 1.f;
}

extern "C" __global__ void hidden_register(float* out) {
  int v;
  asm volatile("{.reg .b32 hid; mov.b32 hid, 64; {.reg .b32 hid; mov.b32 hid, 0;} mov.b32 %0, hid;}" : "=r"(v));
  atomicAdd(out + v, 1.f);
}

#define STORE(place, value) asm volatile("st.shared.b32 [%0], %1;" ::"r"(SHARED(&(place))), "r"(value) : "memory")

extern "C" __global__ void stored_behind_the_barrier(float* out) {
  __shared__ int place[64];
  int v;
  STORE(place[threadIdx.x], 0);
  __syncthreads();
  STORE(place[threadIdx.x], 64);
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(SHARED(place + threadIdx.x)) : "memory");
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void two_values(float* out, int n) {
  __shared__ int place[64];
  STORE(place[threadIdx.x], 0);
  if (threadIdx.x == n) STORE(place[threadIdx.x], 64);
  __syncthreads();
  atomicAdd(out + place[63 - threadIdx.x], 1.f);
}

extern "C" __global__ void near_a_reciprocal(float* out) {  // 21,846 / 2**16 is a third only of smaller numbers
  unsigned n = (threadIdx.x + 2000) * 32;
  atomicAdd(out + (n * 21846 >> 16) - n / 3, 1.f);
}

extern "C" __global__ void digits_that_overlap(float* out) { out[threadIdx.x % 16 * 3 + threadIdx.x / 16 * 8] = 1.f; }

extern "C" __global__ void sum_of_a_cluster(int* out) {  // of a launch without clusters, so of a block
  asm volatile("red.relaxed.cluster.global.add.s32 [%0], 1;" ::"l"(out) : "memory");
}

extern "C" __global__ void stored_elsewhere(float* out) {
  asm volatile("st.shared.f32 [%0], 0f00000000;" ::"l"(out + threadIdx.x) : "memory");
}

extern "C" __global__ void not_generic(float* out) {
  __shared__ float part[64];
  asm volatile("{.reg .b64 a; mov.b64 a, %0; red.add.f32 [a], 0f00000000;}" ::"l"(__cvta_generic_to_shared(part)) : "memory");
}

extern "C" __global__ void half_an_address(float* out) {
  asm volatile("{.reg .b32 a; .reg .b64 b; cvt.u32.u64 a, %0; cvt.u64.u32 b, a; st.global.f32 [b], 0f00000000;}"
               ::"l"(out + threadIdx.x) : "memory");
}

extern "C" __global__ void without_a_place(float* out, const int4* x) {  // 0, 22, 44, 66
  int v;
  asm volatile("{.reg .b32 a; ld.global.nc.v4.u32 {a, _, _, %0}, [%1];}" : "=r"(v) : "l"(x + threadIdx.x));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void bytes_without_a_sign(float* out, const unsigned char* x) {  // elements are at least -1
  int v = x[threadIdx.x];
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void declared_outside(float* out) {  // a launch without dynamic memory
  asm volatile("{.extern .shared .align 4 .b8 part[256]; red.shared.add.f32 [part], 0f00000000;}" ::: "memory");
}

extern "C" __global__ void vectors_of_its_own(float* out) {
  asm volatile("{.local .align 4 .b8 part[16]; .reg .f32 v; mov.f32 v, 0f00000000; st.local.v4.f32 [part], {v, v, v, v};}" ::: "memory");
}

extern "C" __global__ void barrier_under_a_guard(float* out, const float* x, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  part[t] = x[t];
  asm volatile("{.reg .pred p; setp.gt.s32 p, %0, 3; @p bar.sync 0;}" ::"r"(n) : "memory");
  out[t] = part[63 - t];
}

extern "C" __global__ void copied_in_a_warp(float* out, const float* x) {
  __shared__ __align__(16) float stage[32 * 4];
  int t = threadIdx.x;
  COPY(stage + t * 4, x + t * 4);
  COMMIT;
  __syncwarp();
  out[t] = stage[(t ^ 1) * 4];
  WAIT(0);
}

extern "C" __global__ void other_predicate(float* out) {
  int v;
  asm volatile("{.reg .pred p; setp.lt.u32 _|p, %1, 32; mov.b32 %0, %1; @!p mov.b32 %0, 0;}" : "=r"(v) : "r"(threadIdx.x));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void high_half_of_a_clock(float* out) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  atomicAdd(out + (now >> 32), 1.f);
}

extern "C" __global__ void from_half_on(float* out, int n) {
  unsigned v;
  asm volatile("{.reg .pred p; .reg .b32 end; mad.lo.u32 end, %1, 4, 3000000000; mov.b32 %0, 3000000000;"
               "$L: add.u32 %0, %0, 4; setp.lt.u32 p, %0, end; @p bra $L;}" : "=&r"(v) : "r"(n));
  out[threadIdx.x + 1] = v;
}

extern "C" __global__ void shifted_by_a_sum(float* out) {  // by 2**32 + 3
  unsigned v;
  asm volatile("{.reg .b32 c; mov.b32 c, 0x80000000; add.u32 c, c, c; add.u32 c, c, 3; shl.b32 %0, %1, c;}" : "=r"(v) : "r"(threadIdx.x));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void many_bits(float* out) {
  unsigned v;
  asm volatile("{.reg .b32 c; mov.b32 c, -1; bfe.u32 %0, %1, 3, c;}" : "=r"(v) : "r"(threadIdx.x));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void vectors_of_32_bytes(float* out) {
  asm volatile("{.reg .b64 v; mov.b64 v, 0; st.global.v4.b64 [%0], {v, v, v, v};}" ::"l"(out + threadIdx.x * 8) : "memory");
}

extern "C" __global__ void two_of_one_name(float* out) {
  asm volatile("{.shared .align 4 .b8 part[8]; red.shared.add.f32 [part + 4], 0f00000000;}" ::: "memory");
  asm volatile("{.shared .align 4 .b8 part[4]; red.shared.add.f32 [part + 4], 0f00000000;}" ::: "memory");
}

extern "C" __global__ void policy_as_a_number(float* out) {
  unsigned long long v = 0;
  asm volatile("mov.b64 %0, 0; createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(v));
  atomicAdd(out + (v ? 64 : 0), 1.f);
}

extern "C" __global__ void ended_in_a_loop(float* out, const float* x, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  part[t] = 0.f;
#pragma unroll 1
  for (int k = 0; k < n; ++k)
    if (x[k % 64] == t) return;
  __syncthreads();
  out[t] = part[63 - t];
}

extern "C" __global__ void byte_of_an_address(float* out) {  // of an array that begins behind 256 bytes
  __shared__ float before[64], part[64];
  before[threadIdx.x] = 0.f;
  asm volatile("{.reg .b16 a; .reg .b32 b; cvt.u8.u32 a, %0; cvt.u32.u16 b, a; red.shared.add.f32 [b], 0f00000000;}"
               ::"r"(SHARED(part)) : "memory");
}

extern "C" __global__ void generic_under_a_mask(float* out) {
  __shared__ __align__(16) float part[64];
  asm volatile("{.reg .b64 a; and.b64 a, %0, 0x3FFFF; red.add.f32 [a], 0f00000000;}" ::"l"(part) : "memory");
}

extern "C" __global__ void seventeenth_barrier(float* out) { asm volatile("bar.sync 16;" ::: "memory"); }

__constant__ float table[64];

extern "C" __global__ void stored_to_a_constant(float* out) {
  asm volatile("st.f32 [%0], 0f00000000;" ::"l"(table + threadIdx.x) : "memory");
}

extern "C" __global__ void lane_asked(float* out) { out[__shfl_sync(~0u, threadIdx.x, 0)] = threadIdx.x; }

extern "C" __global__ void larger_of_two(float* out, int n) {
  atomicAdd(out + max((int)threadIdx.x, n) + threadIdx.x, 1.f);
}

extern "C" __global__ void below_zero(float* out, int n) {
  int v = max(min(n, 63), 0) - 64;
  asm volatile("shr.s32 %0, %0, 8;" : "+r"(v));
  atomicAdd(out + v, 1.f);
}

extern "C" __global__ void wrapped_away(float* out) {
  unsigned v;
  asm volatile("shl.b32 %0, %1, 28;" : "=r"(v) : "r"(threadIdx.x));
  out[v] = 1.f;
}

extern "C" __global__ void either_value(float* out, int n) {
  __shared__ int place[64];
  if (n > 5) STORE(place[threadIdx.x], 64);
  else STORE(place[threadIdx.x], 0);
  __syncthreads();
  atomicAdd(out + place[63 - threadIdx.x], 1.f);
}

#define COPY_INT(to, from, bytes) \
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SHARED(to)), "l"(from), "r"(bytes) : "memory")
#define LANDED COMMIT; WAIT(0)

extern "C" __global__ void copied_or_zero(float* out, const int* x) {  // x has 1 to 64
  __shared__ int place[64];
  int t = threadIdx.x;
  COPY_INT(place + t, x + t, t < 63 ? 4 : 0);
  LANDED;
  __syncthreads();
  atomicAdd(out + place[63 - t] - 1, 1.f);
}

extern "C" __global__ void half_copied(float* out, const int* x) {  // x has 100 - 65536
  __shared__ int place[64];
  int t = threadIdx.x;
  COPY_INT(place + t, x + t, 2);
  LANDED;
  __syncthreads();
  atomicAdd(out + place[63 - t] + 65436, 1.f);
}

extern "C" __global__ void copied_twice(float* out, const int* x, const int* y) {  // y has 64
  __shared__ int place[64];
  int t = threadIdx.x;
  COPY_INT(place + t, x + t, 4);
  LANDED;
  COPY_INT(place + t, y + t, 4);
  LANDED;
  __syncthreads();
  atomicAdd(out + place[63 - t], 1.f);
}

extern "C" __global__ void stored_over_a_copy(float* out, const int* x) {
  __shared__ int place[64];
  int t = threadIdx.x;
  COPY_INT(place + t, x + t, 4);
  LANDED;
  STORE(place[t], 64);
  __syncthreads();
  atomicAdd(out + place[63 - t], 1.f);
}

extern "C" __global__ void copied_by_some(float* out, const int* x) {
  __shared__ int place[64];
  int t = threadIdx.x;
  if (t < 32) COPY_INT(place + t, x + t, 4);
  LANDED;
  __syncthreads();
  atomicAdd(out + place[63 - t], 1.f);
}

extern "C" __global__ void beside_a_copy(float* out, const int* x) {
  __shared__ int place[128];
  int t = threadIdx.x;
  COPY_INT(place + 2 * t, x + 2 * t, 4);
  LANDED;
  __syncthreads();
  atomicAdd(out + place[127 - 2 * t], 1.f);
}

extern "C" __global__ void copied_in_rounds_of_some(float* out, const int* x, const int* y, int n) {  // y has 64
  __shared__ int place[64];
  int t = threadIdx.x;
  COPY_INT(place + t, x + t, 4);
  LANDED;
  __syncthreads();
  if (t < 32)
    asm volatile("{.reg .pred p; .reg .b32 k; mov.b32 k, 0; again: setp.ge.s32 p, k, %2; @p bra done;\n"
                 "cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group; cp.async.wait_group 0;\n"
                 "add.s32 k, k, 1; bra again; done: }" ::"r"(SHARED(place + 63 - t)), "l"(y + t), "r"(n) : "memory");
  __syncthreads();
  if (t < 32) atomicAdd(out + place[63 - t], 1.f);
}

extern "C" __global__ void written_while_copied(float* x) {
  __shared__ __align__(16) float stage[64 * 4];
  int t = threadIdx.x;
  COPY(stage + t * 4, x + t * 4);
  COMMIT;
  __syncthreads();
  x[t] = 0.f;
  WAIT(0);
}

extern "C" __global__ void one_place_or_many(float* out, int n) {
  int v = n > 3 ? 0 : threadIdx.x;
  asm volatile("" : "+r"(v));
  out[v] = threadIdx.x;
}

extern "C" __global__ void last_of_a_row(float* out) {
  int t = threadIdx.x;
  for (int i = 0; i < 3; ++i) out[t + 64 * i] = 1.f;
  out[191 - t] = 2.f;
}

extern "C" __global__ void neither_way(float* out, int n) {
  asm volatile("{.reg .pred p; .reg .b32 v; setp.gt.s32 p, %1, 3; selp.b32 v, 5, 0, p; setp.eq.s32 p, v, 0;\n"
               "@p red.global.add.f32 [%0 + 256], 0f00000000;}" ::"l"(out), "r"(n) : "memory");
}

extern "C" __global__ void several_ways(float* out, int n) {
  asm volatile("{.reg .pred p, q, r; setp.gt.s32 p, %1, 3; setp.lt.s32 q, %1, 10; setp.gt.u32 r, %2, 5; or.pred q, q, r;\n"
               "and.pred p, p, q; @p red.global.add.f32 [%0 + 256], 0f00000000;}" ::"l"(out), "r"(n), "r"(threadIdx.x)
               : "memory");
}
