// Between this library and workbench.driver, which reads PTX and runs kernels. The structs are mirrored in hooks.py.
#pragma once
#include "abi.hpp"

// A range of memory that a kernel may touch: device address, bytes, address in this process.
struct HookBuffer {
  u64 address, size;
  u8* host;
};

// What the client learns about a kernel, and what a launch is checked against. Sizes in bytes.
struct HookFunction {
  u32 parameter_count, parameter_bytes;
  const u32* parameter_offsets;
  const u32* parameter_sizes;
  u32 static_shared, local_bytes, constant_bytes;
  u32 max_threads, required_threads;  // 0: no bound of the kernel's own
  u32 registers;                      // 0: unknown
  u32 ptx_version, binary_version;    // 10 * major + minor
};

struct HookLaunch {
  u64 module;
  const char* name;
  u32 grid[3], block[3];
  u32 dynamic_shared;
  u32 timed;  // somebody measures: predict the time
  const u8* parameters;
  u64 parameter_bytes;
  const HookBuffer* buffers;  // ascending addresses
  u64 buffer_count;
  u64 generation;  // of the buffers: the same number means the same buffers
  double seconds;  // out: the predicted time, where timed
};

// Each returns a CUresult; with an error it writes what is wrong to `why` (NUL-terminated, `why_size` at most).
// `launch` returns 700 or more for a fault inside the kernel.
struct Hooks {
  CUresult (*load)(u64 module, const char* ptx, char* why, u64 why_size);
  CUresult (*function)(u64 module, const char* name, HookFunction* out, char* why, u64 why_size);
  CUresult (*launch)(HookLaunch* launch, char* why, u64 why_size);
  CUresult (*variable)(u64 module, const char* name, u64* address);
  CUresult (*unload)(u64 module);
};

struct HookDevice {
  const char* name;
  u64 memory_bytes;                  // of one device: what clients may allocate together
  const int* attributes;             // pairs: attribute, value
  u32 attribute_count;
  double device_bytes_per_second;    // memory of the device
  double host_bytes_per_second;      // between the device and the host
  double operation_seconds;          // start and end of any operation on the device
  u32 count;                         // devices, all alike
};
