// A launch of the kernel in gemm.cu, made by CUTLASS' own host code, which an ordinary compiler takes too.
#include <cuda.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <cutlass/arch/wmma.h>  // before the compiler seems to be nvcc, which alone has wmma

// Named in device code, which nothing here calls.
namespace cutlass::arch { int SmId(); }
void __syncthreads();
void __syncwarp(unsigned = ~0u);

// For the CUDA runtime: a GPU of two multiprocessors, so that a persistent block has several tiles.
extern "C" cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 2, cudaSuccess; }

// NVRTC aligns a tensor map by 64 bytes (cute/arch/copy_sm90_desc.hpp), cuda.h of CUDA 13 by 128.
struct alignas(64) Map { char bytes[128]; };
template <class... Rest> CUresult encode(Map* map, Rest... rest) {
  CUtensorMap made;
  CUresult result = cuTensorMapEncodeTiled(&made, rest...);
  __builtin_memcpy(map, &made, sizeof made);
  return result;
}
#define CUtensorMap Map
#define cuTensorMapEncodeTiled encode
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#include "gemm.cuh"

struct Launch { int params_bytes, shared_bytes, threads, grid[3]; };

#if SPARSE_A
using Config = Mainloop::SparseConfig;

// Metadata as the kernel wants it: `fours` has four bits for each four elements of a row of A. Returns its bytes; with
// `e` null it writes none.
extern "C" int place_metadata(unsigned char* e, const unsigned char* fours, int m, int n, int k) {
  const auto layout = Config::fill_layoutE(cute::make_tuple(m, n, k, 1));
  for (int row = 0; e && row < m; ++row)
    for (int chunk = 0; chunk < k / 4; ++chunk) {
      const auto bit = layout(row, 4 * chunk, 0);
      e[bit / 8] |= fours[row * (k / 4) + chunk] << bit % 8;
    }
  return cute::cosize(layout) / 8;
}
#endif

extern "C" void make_launch(
    Launch* launch, void* params, int m, int n, int k, const void* a, const void* b, float* d, const void* e) {
#if SPARSE_A
  const auto shape = cute::make_tuple(m, n, k, 1);
  Mainloop::Arguments factors{(const Half*)a, Config::fill_layoutA(shape), (const Half*)b, Gemm::StrideB{k, {}, 0},
                              (const Mainloop::ElementE*)e, Config::fill_layoutE(shape)};
#else
  Mainloop::Arguments factors{(const Half*)a, Gemm::StrideA{k, {}, 0}, (const Half*)b, Gemm::StrideB{k, {}, 0}};
#endif
  Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k, 1}, factors,
                            {{1.f, 0.f}, nullptr, {}, d, Gemm::StrideD{n, {}, 0}}, {0, 2}};
  Gemm::Params made = Gemm::to_underlying_arguments(arguments, nullptr);
  dim3 grid = Gemm::get_grid_shape(made);
  *launch = {sizeof made, Gemm::SharedStorageSize, Gemm::MaxThreadsPerBlock, {(int)grid.x, (int)grid.y, (int)grid.z}};
  __builtin_memcpy(params, &made, sizeof made);
}
