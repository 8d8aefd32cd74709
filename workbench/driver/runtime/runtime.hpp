// The runtime's own state, and the frame in which each of its calls runs. All other state is the
// driver's.
#pragma once
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "abi.hpp"
#include "driver_api.hpp"

// Defined in errors.cpp.
extern "C" const char* cudaGetErrorName(cudaError_t code);

namespace workbench::runtime {

// Thrown for calls that the runtime itself refuses; `call` turns it into the call's result.
struct Failed {
  cudaError_t code;
  std::string why;
};

// A launch that <<<>>> has configured and not yet started.
struct Configuration {
  Dim3 grid, block;
  std::size_t dynamic_shared;
  CUstream stream;
};

struct Thread {
  bool initialised = false;
  cudaError_t last = cudaSuccess;
  unsigned last_reset = 0;   // number of earlier calls of cudaDeviceReset
  int device = 0;            // set by cudaSetDevice, until a context is current
  unsigned resets_seen = 0;  // the same number when the current context was made current
  std::vector<Configuration> configured;
  // Refused launches whose error the program has not read: number and error.
  std::vector<std::pair<u64, cudaError_t>> refused;
  std::map<cudaError_t, std::string> told;  // messages of cudaGetErrorString, by code
};
Thread& thread();

// Keeps an error for cudaGetLastError and its message for cudaGetErrorString; returns the code.
cudaError_t failed(cudaError_t code, const std::string& why) noexcept;
// Turns the result of a driver call, whose codes are the runtime's, into that of the runtime.
cudaError_t done(CUresult result) noexcept;
// Throws the error of a driver call that has to succeed.
void must(CUresult result);

// Makes the device's primary context current if the thread has no context.
void need_context();
unsigned reset_count();
int current_device();
CUcontext current_context();
// The primary context of a device; refuses a device that is not there.
CUcontext primary_context(int device);

// The frame of every call: `body` returns a result of the driver, or throws. Contexts are created
// when they are first needed.
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

// The frame of calls that free: they succeed after a kernel's fault, too, because programs free to
// the end and expect no further error.
template <class Body>
cudaError_t freeing(Body&& body) noexcept {
  return without_context([&] {
    need_context();
    return body();
  });
}

// After a kernel's fault every call reports it until cudaDeviceReset.
template <class Body>
cudaError_t call(Body&& body) noexcept {
  return freeing([&] {
    must(workbench_driver_fault());
    return body();
  });
}

// While an object of this class lives, null stands for the thread's own stream.
class PerThreadStream {
 public:
  PerThreadStream() : before_(workbench_driver_null_stream(1)) {}
  PerThreadStream(const PerThreadStream&) = delete;
  ~PerThreadStream() { workbench_driver_null_stream(before_); }

 private:
  int before_;
};

// The variant of a function for programs compiled with --default-stream per-thread.
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

// ---- nvcc's registrations (registration.cpp) ----

// The driver's function of a kernel, given by the address of its host function or by a driver
// handle.
CUfunction function_of(const void* symbol);
// The host function of a kernel that nvcc registered; for any other kernel the driver's handle.
const void* symbol_of(CUfunction function);
// The name of a kernel that nvcc registered, or that has a driver handle; empty for any other.
std::string kernel_name(const void* symbol);
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
// The address of a part of a variable; refuses a part beyond its end.
void* part_of(const void* symbol, std::size_t offset, std::size_t bytes);

}  // namespace workbench::runtime
