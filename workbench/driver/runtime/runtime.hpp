// The runtime's own state, and the frame in which each of its calls runs. Everything else is the
// driver's.
#pragma once
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "abi.hpp"
#include "driver_api.hpp"

namespace workbench::runtime {

// Thrown by what the runtime itself refuses; `call` makes it the call's result.
struct Failed {
  cudaError_t code;
  std::string why;
};

// A launch that was configured by <<<>>> and is about to be made.
struct Configuration {
  Dim3 grid, block;
  std::size_t dynamic_shared;
  CUstream stream;
};

struct Thread {
  bool initialised = false;
  cudaError_t last = cudaSuccess;
  unsigned last_reset = 0;  // how many cudaDeviceReset there were before it
  int device = 0;           // cudaSetDevice's, until a context is current
  unsigned resets_seen =
      0;  // how many cudaDeviceReset there were when the current context was made current
  std::vector<Configuration> configured;
  std::map<cudaError_t, std::string> told;  // what cudaGetErrorString says of a code
};
Thread& thread();

// Keeps an error for cudaGetLastError and its words for cudaGetErrorString; returns the code.
cudaError_t failed(cudaError_t code, const std::string& why) noexcept;
// The result of a call of the driver, whose codes are the runtime's.
cudaError_t done(CUresult result) noexcept;
// The same where the rest of a call needs it to have succeeded.
void must(CUresult result);

// Makes the device's primary context current where the thread has none.
void need_context();
unsigned reset_count();
int current_device();
CUcontext current_context();

// The frame of every call: `body` returns a result of the driver, or throws. Contexts are made when
// one is needed first.
template <class Body>
cudaError_t without_context(Body&& body) noexcept {
  try {
    return done(body());
  } catch (const Failed& error) {
    return failed(error.code, error.why);
  } catch (const std::bad_alloc&) {
    return failed(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  }
}

// The same after a kernel's fault, too: for what frees, which a program does to the end whatever
// happened, and does not want to hear of it again.
template <class Body>
cudaError_t freeing(Body&& body) noexcept {
  return without_context([&] {
    need_context();
    return body();
  });
}

// Where a kernel failed every call reports that until cudaDeviceReset.
template <class Body>
cudaError_t call(Body&& body) noexcept {
  return freeing([&] {
    must(workbench_driver_fault());
    return body();
  });
}

// While it is there null stands for the thread's own stream.
class PerThreadStream {
 public:
  PerThreadStream() : before_(workbench_driver_null_stream(1)) {}
  PerThreadStream(const PerThreadStream&) = delete;
  ~PerThreadStream() { workbench_driver_null_stream(before_); }

 private:
  int before_;
};

// The function that a program calls that was compiled with --default-stream per-thread.
#define PER_THREAD(name, suffix, parameters, arguments) \
  CUDA_API name##suffix parameters {                    \
    const PerThreadStream own;                          \
    return name arguments;                              \
  }

template <class T>
T& needed(T* pointer, const char* name) {
  if (!pointer) throw Failed{cudaErrorInvalidValue, std::string(name) + " is a null pointer"};
  return *pointer;
}

inline CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

// ---- what nvcc registers (registration.cpp) ----

// The driver's function of a kernel: by the address of its host function, or a handle of the
// driver's itself.
CUfunction function_of(const void* symbol);
// The host function of a kernel that nvcc registered; any other stands for itself.
const void* symbol_of(CUfunction function);
struct Variable {
  CUdeviceptr address;
  std::size_t bytes;
};
// A __device__, __constant__ or __managed__ variable, by the address of its host shadow.
Variable variable_of(const void* symbol);

// ---- copies.cpp, launches.cpp: for nodes of graphs ----

CUDA_MEMCPY3D driver_copy(const Copy3D& given);
CUDA_MEMCPY3D driver_copy(void* to, const void* from, std::size_t bytes, CopyKind kind);
CUDA_KERNEL_NODE_PARAMS_v2 driver_kernel(const KernelNodeParams& given);
// Part of a variable, which a copy must not leave.
void* part_of(const void* symbol, std::size_t offset, std::size_t bytes);

}  // namespace workbench::runtime
