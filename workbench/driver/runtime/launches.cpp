// Launches, which the driver checks. In CUDA 13 the error of <<<>>> with wrong numbers is the
// driver's "invalid argument" (measured on an H100), no longer "invalid configuration argument".
#include "runtime.hpp"

namespace workbench::runtime {
namespace {

CUlaunchConfig driver_config(const LaunchConfig& config) {
  if (config.dynamic_shared > 0xffffffffu)
    throw Failed{cudaErrorInvalidValue, "more dynamic shared memory than any device has"};
  return {config.grid.x,
          config.grid.y,
          config.grid.z,
          config.block.x,
          config.block.y,
          config.block.z,
          static_cast<unsigned>(config.dynamic_shared),
          config.stream,
          config.attributes,
          config.attribute_count};
}

// While an object of this class lives, the driver does not report this thread's refused launches.
class RefusalsByRuntime {
 public:
  RefusalsByRuntime() { workbench_driver_refusals_by_runtime(1); }
  RefusalsByRuntime(const RefusalsByRuntime&) = delete;
  ~RefusalsByRuntime() { workbench_driver_refusals_by_runtime(0); }
};

// Keeps a refused launch until the program reads its error.
void refused(const void* kernel, const LaunchConfig& config, cudaError_t code) {
  const auto said = thread().told.find(code);
  const std::string why = said == thread().told.end() ? "" : said->second;
  const Dim3 &grid = config.grid, &block = config.block;
  const std::size_t most = ~0u;
  const CUlaunchConfig given{grid.x,
                             grid.y,
                             grid.z,
                             block.x,
                             block.y,
                             block.z,
                             static_cast<unsigned>(std::min(config.dynamic_shared, most)),
                             config.stream,
                             nullptr,
                             0};
  const u64 number = workbench_driver_refused_launch(kernel_name(kernel).c_str(), &given, code,
                                                     cudaGetErrorName(code), why.c_str());
  const std::pair<u64, cudaError_t> one{number, code};
  auto& waiting = thread().refused;
  if (number && std::ranges::find(waiting, one) == waiting.end()) waiting.push_back(one);
}

cudaError_t launch(const void* kernel, const LaunchConfig& config, void** parameters) {
  cudaError_t result = cudaSuccess;
  {
    const RefusalsByRuntime ours;
    result = call([&] {
      const CUlaunchConfig given = driver_config(config);
      return cuLaunchKernelEx(&given, function_of(kernel), parameters, nullptr);
    });
  }
  try {
    if (result) refused(kernel, config, result);
  } catch (const std::bad_alloc&) {
    // Without memory the report lacks this launch.
  }
  return result;
}

}  // namespace

CUDA_KERNEL_NODE_PARAMS_v2 driver_kernel(const KernelNodeParams& given) {
  CUDA_KERNEL_NODE_PARAMS_v2 made{};
  made.func = function_of(given.function);
  made.gridDimX = given.grid.x;
  made.gridDimY = given.grid.y;
  made.gridDimZ = given.grid.z;
  made.blockDimX = given.block.x;
  made.blockDimY = given.block.y;
  made.blockDimZ = given.block.z;
  made.sharedMemBytes = given.dynamic_shared;
  made.kernelParams = given.parameters;
  made.extra = given.extra;
  return made;
}

}  // namespace workbench::runtime

using namespace workbench::runtime;

CUDA_API cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** parameters,
                          std::size_t dynamic_shared, CUstream stream) {
  return launch(kernel, {grid, block, dynamic_shared, stream, nullptr, 0}, parameters);
}

// <<<>>> calls this since CUDA 12.4, with the handle of __cudaGetKernel.
// NOLINTBEGIN(bugprone-reserved-identifier): the name is nvcc's.
CUDA_API __cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** parameters,
                            std::size_t dynamic_shared, CUstream stream) {
  return launch(kernel, {grid, block, dynamic_shared, stream, nullptr, 0}, parameters);
}
// NOLINTEND(bugprone-reserved-identifier)

CUDA_API cudaLaunchKernelExC(const LaunchConfig* config, const void* kernel, void** parameters) {
  if (!config) return failed(cudaErrorInvalidValue, "config is a null pointer");
  return launch(kernel, *config, parameters);
}

CUDA_API cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                        const LaunchConfig* config) {
  if (!config) return failed(cudaErrorInvalidValue, "config is a null pointer");
  return call([&] {
    const CUlaunchConfig given = driver_config(*config);
    return cuOccupancyMaxActiveClusters(clusters, function_of(kernel), &given);
  });
}

CUDA_API cudaLaunchCooperativeKernel(const void* kernel, Dim3 grid, Dim3 block, void** parameters,
                                     std::size_t dynamic_shared, CUstream stream) {
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.number = 1;
  return launch(kernel, {grid, block, dynamic_shared, stream, &cooperative, 1}, parameters);
}

CUDA_API cudaLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return call([&] { return cuLaunchHostFunc(stream, function, data); });
}

PER_THREAD(cudaLaunchKernel, _ptsz,
           (const void* kernel, Dim3 grid, Dim3 block, void** parameters,
            std::size_t dynamic_shared, CUstream stream),
           (kernel, grid, block, parameters, dynamic_shared, stream))
PER_THREAD(__cudaLaunchKernel, _ptsz,
           (const void* kernel, Dim3 grid, Dim3 block, void** parameters,
            std::size_t dynamic_shared, CUstream stream),
           (kernel, grid, block, parameters, dynamic_shared,
            stream))  // NOLINT(bugprone-reserved-identifier)
PER_THREAD(cudaLaunchKernelExC, _ptsz,
           (const LaunchConfig* config, const void* kernel, void** parameters),
           (config, kernel, parameters))
PER_THREAD(cudaLaunchCooperativeKernel, _ptsz,
           (const void* kernel, Dim3 grid, Dim3 block, void** parameters,
            std::size_t dynamic_shared, CUstream stream),
           (kernel, grid, block, parameters, dynamic_shared, stream))
PER_THREAD(cudaLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void* data),
           (stream, function, data))
