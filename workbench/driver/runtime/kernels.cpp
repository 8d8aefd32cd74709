// Kernels: attributes, occupancy, and libraries that a program loads itself.
#include "runtime.hpp"

using namespace workbench::runtime;

namespace {

int attribute_of(CUfunction function, int which) {
  int value = 0;
  must(cuFuncGetAttribute(&value, which, function));
  return value;
}

std::size_t bytes_of(CUfunction function, int which) {
  return static_cast<std::size_t>(attribute_of(function, which));
}

}  // namespace

CUDA_API cudaFuncGetAttributes(FunctionAttributes* out, const void* kernel) {
  return call([&] {
    FunctionAttributes& a = needed(out, "attr");
    const CUfunction f = function_of(kernel);
    a = {};
    a.sharedSizeBytes = bytes_of(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    a.constSizeBytes = bytes_of(f, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
    a.localSizeBytes = bytes_of(f, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    a.maxThreadsPerBlock = attribute_of(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    a.numRegs = attribute_of(f, CU_FUNC_ATTRIBUTE_NUM_REGS);
    a.ptxVersion = attribute_of(f, CU_FUNC_ATTRIBUTE_PTX_VERSION);
    a.binaryVersion = attribute_of(f, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    a.cacheModeCA = attribute_of(f, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
    a.maxDynamicSharedSizeBytes = attribute_of(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    a.preferredShmemCarveout = attribute_of(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaFuncSetAttribute(const void* kernel, int which, int value) {
  return call([&] { return cuFuncSetAttribute(function_of(kernel), which, value); });
}

CUDA_API cudaFuncSetCacheConfig(const void* kernel, int config) {
  return call([&] { return cuFuncSetCacheConfig(function_of(kernel), config); });
}

// A hint for cards before sm_70, which had two sizes of banks.
CUDA_API cudaFuncSetSharedMemConfig(const void* kernel, int) {
  return call([&] {
    function_of(kernel);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaFuncGetName(const char** name, const void* kernel) {
  return call([&] { return cuFuncGetName(name, function_of(kernel)); });
}

CUDA_API cudaFuncGetParamInfo(const void* kernel, std::size_t index, std::size_t* offset,
                              std::size_t* bytes) {
  return call([&] { return cuFuncGetParamInfo(function_of(kernel), index, offset, bytes); });
}

CUDA_API cudaGetFuncBySymbol(CUfunction* function, const void* kernel) {
  return call([&] {
    needed(function, "function") = function_of(kernel);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaGetKernel(CUfunction* handle, const void* kernel) {
  return cudaGetFuncBySymbol(handle, kernel);
}

CUDA_API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                int threads,
                                                                std::size_t dynamic_shared,
                                                                unsigned flags) {
  return call([&] {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function_of(kernel),
                                                                threads, dynamic_shared, flags);
  });
}

CUDA_API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                       std::size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads,
                                                                dynamic_shared, 0);
}

CUDA_API cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void* kernel,
                                                   int blocks, int threads) {
  return call([&] {
    return cuOccupancyAvailableDynamicSMemPerBlock(bytes, function_of(kernel), blocks, threads);
  });
}

CUDA_API cudaLibraryLoadData(void** library, const void* code, int* options, void** values,
                             unsigned count, int* library_options, void** library_values,
                             unsigned library_count) {
  return call([&] {
    return cuLibraryLoadData(library, code, options, values, count, library_options, library_values,
                             library_count);
  });
}

CUDA_API cudaLibraryLoadFromFile(void** library, const char* path, int* options, void** values,
                                 unsigned count, int* library_options, void** library_values,
                                 unsigned library_count) {
  return call([&] {
    return cuLibraryLoadFromFile(library, path, options, values, count, library_options,
                                 library_values, library_count);
  });
}

CUDA_API cudaLibraryUnload(void* library) {
  return freeing([&] { return cuLibraryUnload(library); });
}

CUDA_API cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
  return call([&] { return cuLibraryGetKernel(kernel, library, name); });
}

CUDA_API cudaLibraryGetKernelCount(unsigned* count, void* library) {
  return call([&] { return cuLibraryGetKernelCount(count, library); });
}

CUDA_API cudaLibraryEnumerateKernels(void** kernels, unsigned count, void* library) {
  return call([&] { return cuLibraryEnumerateKernels(kernels, count, library); });
}

CUDA_API cudaLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, void* library,
                              const char* name) {
  return call([&] { return cuLibraryGetGlobal(address, bytes, library, name); });
}

CUDA_API cudaKernelSetAttributeForDevice(const void* kernel, int which, int value, int device) {
  return call([&] { return cuKernelSetAttribute(which, value, function_of(kernel), device); });
}
