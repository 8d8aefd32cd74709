// Partial sums of all blocks, added up by whichever block comes last: a counter with release and acquire at GPU scope.
__device__ unsigned arrived;

extern "C" __global__ void total(const float* in, float* partial, float* out, int count) {
  __shared__ bool last;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += in[i];
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffff, sum, m);
  if (threadIdx.x == 0) {
    asm volatile("st.global.cg.f32 [%0], %1;" ::"l"(partial + blockIdx.x), "f"(sum) : "memory");
    unsigned before;
#ifdef NO_ORDER
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(&arrived), "r"(gridDim.x - 1) : "memory");
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(&arrived), "r"(gridDim.x - 1) : "memory");
#endif
    last = before == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  float all = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += 32) all += __ldcg(partial + i);
  for (int m = 16; m > 0; m /= 2) all += __shfl_xor_sync(0xffffffff, all, m);
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.f32 [%0], %1;" ::"l"(out), "f"(all) : "memory");
}
