// The functions of the CUDA runtime that CuTe DSL's compiled host code calls: its own library has
// them under a name with an underscore before NVIDIA's, over the static runtime, which runs on
// NVIDIA's driver alone. This library stands before that one (driver/cute_dsl.py) and leads them to
// the runtime over the simulated driver.
#include "abi.hpp"

#ifdef __x86_64__
#define JUMP "jmp "
#else
#define JUMP "b "
#endif

// A jump leaves the arguments as they are, whatever they are.
#define FORWARD(name, to) \
  __asm__(".globl _" #name "\n.type _" #name ", %function\n_" #name ":\n  " JUMP #to "@PLT\n");

FORWARD(cudaDeviceGetAttribute, cudaDeviceGetAttribute)
FORWARD(cudaDeviceSynchronize, cudaDeviceSynchronize)
FORWARD(cudaEventCreate, cudaEventCreate)
FORWARD(cudaEventDestroy, cudaEventDestroy)
FORWARD(cudaEventElapsedTime, cudaEventElapsedTime)
FORWARD(cudaEventRecord, cudaEventRecord)
FORWARD(cudaFree, cudaFree)
FORWARD(cudaFreeAsync, cudaFreeAsync)
FORWARD(cudaFreeHost, cudaFreeHost)
FORWARD(cudaFuncSetAttribute, cudaFuncSetAttribute)
FORWARD(cudaGetDevice, cudaGetDevice)
FORWARD(cudaGetDeviceCount, cudaGetDeviceCount)
FORWARD(cudaGetDeviceProperties, cudaGetDeviceProperties)
FORWARD(cudaGraphDestroy, cudaGraphDestroy)
FORWARD(cudaGraphExecDestroy, cudaGraphExecDestroy)
FORWARD(cudaGraphInstantiate, cudaGraphInstantiate)
FORWARD(cudaGraphLaunch, cudaGraphLaunch)
FORWARD(cudaKernelSetAttributeForDevice, cudaKernelSetAttributeForDevice)
FORWARD(cudaLaunchKernel, cudaLaunchKernel)
FORWARD(cudaLibraryGetGlobal, cudaLibraryGetGlobal)
FORWARD(cudaLibraryGetKernel, cudaLibraryGetKernel)
FORWARD(cudaLibraryGetKernelCount, cudaLibraryGetKernelCount)
FORWARD(cudaLibraryGetManaged, cudaLibraryGetManaged)
FORWARD(cudaLibraryGetUnifiedFunction, cudaLibraryGetUnifiedFunction)
FORWARD(cudaLibraryLoadData, cudaLibraryLoadData)
FORWARD(cudaLibraryLoadFromFile, cudaLibraryLoadFromFile)
FORWARD(cudaLibraryUnload, cudaLibraryUnload)
FORWARD(cudaMalloc, cudaMalloc)
FORWARD(cudaMallocAsync, cudaMallocAsync)
FORWARD(cudaMallocHost, cudaMallocHost)
FORWARD(cudaMallocManaged, cudaMallocManaged)
FORWARD(cudaMemcpy, cudaMemcpy)
FORWARD(cudaMemcpyAsync, cudaMemcpyAsync)
FORWARD(cudaMemset, cudaMemset)
FORWARD(cudaMemsetAsync, cudaMemsetAsync)
FORWARD(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
        cudaOccupancyMaxActiveBlocksPerMultiprocessor)
FORWARD(cudaProfilerStart, cudaProfilerStart)
FORWARD(cudaProfilerStop, cudaProfilerStop)
FORWARD(cudaSetDevice, cudaSetDevice)
FORWARD(cudaStreamAddCallback, cudaStreamAddCallback)
FORWARD(cudaStreamBeginCapture, cudaStreamBeginCapture)
FORWARD(cudaStreamCreate, cudaStreamCreate)
FORWARD(cudaStreamDestroy, cudaStreamDestroy)
FORWARD(cudaStreamEndCapture, cudaStreamEndCapture)
FORWARD(cudaStreamSynchronize, cudaStreamSynchronize)
FORWARD(cudaStreamWaitEvent, cudaStreamWaitEvent)
FORWARD(cudaLaunchKernelEx, cudaLaunchKernelExC)
FORWARD(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled)

extern "C" {

int cudaGetDeviceCount(int* count);
const char* cudaGetErrorName(int error);
const char* cudaGetErrorString(int error);

// Loads the library of a module once, and prepares its kernels on each device.
__attribute__((visibility("default"))) int cuda_dialect_init_library_once(
    void** library, int (*load)(void**), int (*prepare)(void**, int),
    void (*report)(const char*, const char*)) {
  if (*library) return 0;
  void* made = nullptr;
  int error = load(&made);
  int devices = 0;
  if (!error && prepare) error = cudaGetDeviceCount(&devices);
  for (int device = 0; !error && device < devices; ++device) error = prepare(&made, device);
  if (error) {
    report(cudaGetErrorName(error), cudaGetErrorString(error));
    return -1;
  }
  *library = made;
  return 0;
}
}
