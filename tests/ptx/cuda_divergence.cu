// Control flow that makes lanes part and meet again; each kernel leaves one number per thread.
extern "C" __global__ void nested_loops(int* out, const int* in, int n) {
  int t = threadIdx.x, total = 0;
  for (int i = 0; i < t % 7 + 1; i++) {
    if ((t + i) % 3 == 0) continue;
    if (total > 50) break;
    if (t & 1) total += in[(t + i) % n];
    else for (int j = 0; j < (t & 3); j++) total += in[j] * 2;
  }
  unsigned ballot = __ballot_sync(~0u, total > 10);
  total += __shfl_down_sync(~0u, total, 1) + __popc(ballot);
  out[t] = total;
}

extern "C" __global__ void early_return(int* out, const int* in, int n) {
  int t = threadIdx.x;
  if (in[t] % 5 == 0) return;
  int total = 0;
  while (total < in[t]) {
    total += t % 4 + 1;
    if (total % 11 == 7) { out[t] = -total; return; }
  }
  out[t] = total;
}

__device__ int collatz(int x) {
  int steps = 0;
  while (x != 1) { x = x % 2 ? 3 * x + 1 : x / 2; steps++; if (steps > 200) return -1; }
  return steps;
}

extern "C" __global__ void call_and_switch(int* out, const int* in, int n) {
  int t = threadIdx.x, kind = in[t] % 6, value = 0;
  switch (kind) {
    case 0: value = collatz(t + 1); break;
    case 1: value = t * t;
    case 2: value += 3; break;
    case 3: for (int i = 0; i < t; i++) { if (i == 9) break; value += i; } break;
    case 4: { int i = t; do { value ^= i; i /= 2; } while (i); break; }
    default: value = in[t];
  }
  __syncwarp();
  out[t] = __shfl_xor_sync(~0u, value, 5);
}

extern "C" __global__ void exit_before_loop(float* out, const float* in, int n) {
  // Every thread leaves the loop at another trip; the store after it must run once for the whole warp.
  int t = threadIdx.x;
  float total = 0;
  for (int i = 0; i <= t; i++) total += in[i];
  out[t] = total;
}

extern "C" __global__ void lanes_wait_for_each_other(int* out, int* lock, int n) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)out = *(volatile int*)out + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

extern "C" __global__ void spin_until_set(int* out, int* flag, int n) {
  // Lanes of the lower branch spin for a lane of the other.
  if (threadIdx.x % 32 != 31) { while (*(volatile int*)flag == 0) {} out[threadIdx.x] = 1; }
  else { out[threadIdx.x] = 2; __threadfence(); *(volatile int*)flag = 1; }
}
