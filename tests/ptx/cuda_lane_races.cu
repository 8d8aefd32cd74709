// Global memory between the lanes of one warp, and stores of what is there already; each kernel with its fault.
#include "cuda_fault.cuh"

extern "C" __global__ void neighbours(int* out, const int* in) {
  int t = threadIdx.x;
  out[t] = in[t];  // side
  ORDER(__syncwarp();)
  out[256 + t] = out[t ^ 1];
}
extern "C" __global__ void read_before(int* out, const int* in) {
  int t = threadIdx.x;
  int value = out[t ^ 1];
  ORDER(__syncwarp();)
  out[t] = value + in[t];  // side
}
extern "C" __global__ void all_read(int* out, const int* in) {
  int t = threadIdx.x;
  int value = out[300 + t / 32];
  ORDER(__syncwarp();)
  if (t % 32 == 0) out[300 + t / 32] = value + 1;  // side
  out[t] = value;
}
extern "C" __global__ void own_elements(int* out, const int* in) {
  int t = threadIdx.x;
  for (int i = 0; i < 4; i++) out[4 * t + i] = in[t] + i;  // side
  for (int i = 0; i < 4; i++) out[4 * VALUE(t, (t + 1) % 32) + i] += 1;
}
extern "C" __global__ void one_place(int* out, const int* in) {
  out[0] = VALUE(7, threadIdx.x);  // side
}
extern "C" __global__ void same_value(int* out, const int* in) {
  // All store the same, and each may read what it stored itself.
  int t = threadIdx.x;
  out[0] = VALUE(7, 7 + (t == 40));  // side
  out[1 + t] = out[0];
}
extern "C" __global__ void permuted(int* out, const int* in) {
  int t = threadIdx.x, to = 32 * (t / 32) + 5 * t % 32;
  out[to] = in[t];  // side
  out[256 + t] = out[VALUE(to, 32 * (t / 32) + t % 32)];
}
extern "C" __global__ void stores_what_is_there(int* out, const int* in) {
  // Warp 1 stores zeros where there are zeros; warp 0 something else, or reads.
  int t = threadIdx.x;
  if (t >= 32) out[t - 32] = 0;  // side
  ORDER(__syncthreads();)
  if (t < 32) out[t] = in[t] + 1;
}
extern "C" __global__ void reads_what_was_there(int* out, const int* in) {
  int t = threadIdx.x;
  if (t >= 32) out[t - 32] = 0;  // side
  ORDER(__syncthreads();)
  if (t < 32) out[64 + t] = out[t];
}
extern "C" __global__ void two_scopes(int* out, const int* in) {
  // Within a block and between blocks, by the same two lines.
  int t = threadIdx.x;
  out[t] = in[t];  // side
  ORDER(out += 512 * (1 + blockIdx.x); out[t] = in[t]; __syncthreads();)
  out[256 + 64 * blockIdx.x + t] = out[t ^ 32];
}
