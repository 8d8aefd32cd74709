// The functions of the CUDA runtime and driver that CuTe DSL's compiled host code calls. Its own
// library defines them, with an underscore before NVIDIA's name, over the static runtime, which
// only works with NVIDIA's driver. This library is loaded before that one
// (driver/clients/cute_dsl.py) and forwards the calls to the runtime over the simulated driver.
#include "abi.hpp"

#ifdef __x86_64__
#define JUMP "jmp "
#else
#define JUMP "b "
#endif

// A jump leaves all arguments as they are.
#define FORWARD_TO(name, to) \
  __asm__(".globl _" #name "\n.type _" #name ", %function\n_" #name ":\n  " JUMP #to "@PLT\n");
#define FORWARD(name) FORWARD_TO(name, name)

FORWARD(cudaDeviceGetAttribute)
FORWARD(cudaDeviceSynchronize)
FORWARD(cudaEventCreate)
FORWARD(cudaEventDestroy)
FORWARD(cudaEventElapsedTime)
FORWARD(cudaEventRecord)
FORWARD(cudaFree)
FORWARD(cudaFreeAsync)
FORWARD(cudaFreeHost)
FORWARD(cudaFuncSetAttribute)
FORWARD(cudaGetDevice)
FORWARD(cudaGetDeviceCount)
FORWARD(cudaGetDeviceProperties)
FORWARD(cudaGraphDestroy)
FORWARD(cudaGraphExecDestroy)
FORWARD(cudaGraphInstantiate)
FORWARD(cudaGraphLaunch)
FORWARD(cudaKernelSetAttributeForDevice)
FORWARD(cudaLaunchKernel)
FORWARD(cudaLibraryGetGlobal)
FORWARD(cudaLibraryGetKernel)
FORWARD(cudaLibraryGetKernelCount)
FORWARD(cudaLibraryGetManaged)
FORWARD(cudaLibraryGetUnifiedFunction)
FORWARD(cudaLibraryLoadData)
FORWARD(cudaLibraryLoadFromFile)
FORWARD(cudaLibraryUnload)
FORWARD(cudaMalloc)
FORWARD(cudaMallocAsync)
FORWARD(cudaMallocHost)
FORWARD(cudaMallocManaged)
FORWARD(cudaMemcpy)
FORWARD(cudaMemcpyAsync)
FORWARD(cudaMemset)
FORWARD(cudaMemsetAsync)
FORWARD(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
FORWARD(cudaProfilerStart)
FORWARD(cudaProfilerStop)
FORWARD(cudaSetDevice)
FORWARD(cudaStreamAddCallback)
FORWARD(cudaStreamBeginCapture)
FORWARD(cudaStreamCreate)
FORWARD(cudaStreamDestroy)
FORWARD(cudaStreamEndCapture)
FORWARD(cudaStreamSynchronize)
FORWARD(cudaStreamWaitEvent)
FORWARD_TO(cudaLaunchKernelEx, cudaLaunchKernelExC)
FORWARD(cuDeviceGet)
FORWARD(cuKernelGetAttribute)
FORWARD(cuLibraryGetGlobal)
FORWARD(cuLibraryGetKernel)
FORWARD(cuLibraryGetKernelCount)
FORWARD(cuLibraryGetManaged)
FORWARD(cuLibraryGetModule)
FORWARD(cuLibraryGetUnifiedFunction)
FORWARD(cuLibraryLoadData)
FORWARD(cuLibraryLoadFromFile)
FORWARD(cuLibraryUnload)
FORWARD(cuTensorMapEncodeTiled)

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
