#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(Gemm::MaxThreadsPerBlock)
hopper_gemm(const __grid_constant__ Gemm::Params params) {
  extern __shared__ __align__(1024) char shared[];
  Gemm()(params, shared);
}
