// The interface between this library and workbench.driver, which parses PTX and runs kernels.
// hooks.py declares the same structs, and tests/driver/test_hooks.py compares the two.
#pragma once
#include "abi.hpp"

// A range of memory that a kernel may touch: device address, bytes, address in this process, and a
// bit for each byte that was written, in words of 32, or null if all bytes count as written.
// `of_host`: the host may change it while a kernel runs.
struct HookBuffer {
  u64 address, size;
  u8* host;
  u32* written;
  u64 of_host;
};

// Facts of a kernel, used by the client and by the checks of a launch. Sizes are in bytes.
struct HookFunction {
  u32 parameter_count, parameter_bytes;
  const u32* parameter_offsets;  // in PTX's layout
  const u32* parameter_sizes;
  const u32* buffer_offsets;  // in a GPU's layout, for the buffer of a launch
  u32 buffer_bytes;
  u32 static_shared, local_bytes, constant_bytes;
  u32 max_threads, required_threads;  // 0: the kernel states none
  u32 registers;                      // 0: unknown
  u32 ptx_version, binary_version;    // 10 * major + minor
  u32 tile[3];  // blocks that work on one tile; zeros: the kernel is not of a tile language
};

struct HookLaunch {
  u64 module;
  const char* name;
  u32 grid[3], block[3];
  u32 dynamic_shared;
  u32 timed;         // the client measures time, so predict it
  u32 cooperative;   // blocks may wait for each other, so all of them must fit on the device
  u32 cluster[3];    // in blocks; zeros: the size that the kernel requires
  u32 programmatic;  // may begin before the previous launch of the stream has ended
  const u8* parameters;
  u64 parameter_bytes;
  const HookBuffer* buffers;  // ascending addresses
  u64 buffer_count;
  u64 generation;           // number of this set of buffers: the same number means the same buffers
  u64 context, heap_bytes;  // context, and the size of the heap for malloc in kernels
  double seconds;           // out: the predicted time, where timed
  u32 heap_is_used;         // out: the context has a heap from here on
  u32 found;                // out: error of a fault that checks reported and let go on
  // If the order of operations is followed: return addresses, of a program that is not Python.
  const u64* frames;
  u32 frame_count;
  // Out, if the order of operations is followed: the launch's number (`deed`), and the ranges that
  // it accessed, in rows of three: begin, end, and the instruction above eight bits of AccessKind.
  u64 deed;
  const u64* accesses;
  u64 access_count;
};

// A tensor map to encode, in the numbers of cuTensorMapEncodeTiled.
struct HookTensorMap {
  u32 type, rank;
  u64 address;
  u64 sizes[5], strides[4];  // innermost first; strides in bytes, of all but the innermost
  u32 box[5], steps[5];
  u32 interleave, swizzle, fill;
  u8* out;  // 128 bytes
};

// A call of a library that computes on the host (host_calls.hpp), and its end: an error code or 0,
// its message, and the address that the message is about.
struct HookCall {
  const char* name;
  const char* shape;
  u32 result;
  const char* why;
  u64 address;
};

// A refused launch: its error, and the requested shape. `frames` are return addresses, innermost
// first. `status_is_kept`: the caller gets the error as a status that it may ignore, and by
// cudaGetLastError.
struct HookRefusal {
  const char* kernel;  // name in PTX; empty: unknown
  u32 grid[3], block[3];
  u64 dynamic_shared;
  u32 code;
  const char* error;  // the name of the code
  const char* why;
  const u64* frames;
  u32 frame_count;
  u32 status_is_kept;
  u64 number;  // out: for `fetched`
};

// Memory that the client allocated. Numbers of workbench.driver stand for the place where it was
// made, the latest launch that had it as an argument, and the latest launch that wrote bytes which
// were unwritten before.
struct HookMemory {
  u64 address, bytes;
  u64 made, used, wrote;
  u32 freed;
  // Its unwritten bytes come from memory that the latest launch had as an argument.
  u32 copied;
  u64 unwritten, first;  // number of unwritten bytes, and the offset of the first
  u64 runs, longest;     // number of runs of unwritten bytes, and the length of the longest
};

// A read by the host of memory that was never written: the number of elements, of `element` bytes
// each, the number of unwritten ones, and the runs of bytes that they form. `address` is that of
// the first.
struct HookRead {
  const char* reader;
  u32 element;
  u64 address, total, unwritten;
  u64 runs, longest;
  const u64* frames;  // return addresses of the client's call
  u32 frame_count;
};

// One of two operations that nothing orders: its number, how it accesses the memory, its stream,
// and the instruction, or -1.
struct HookSide {
  u32 what;
  u32 writes;
  u64 stream;
  s64 pc;
};

// Two operations on the same bytes. `freed`: an allocator took them back in between.
struct HookUnordered {
  HookSide earlier, later;
  u64 address, bytes;
  u32 freed;
};

// An access of the host to memory that an operation may still use, of an allocation of `bytes`.
struct HookHostAccess {
  HookSide side;
  u64 address, offset, bytes;
  u32 managed, writes;
  const u64* frames;  // the host's instruction, then return addresses
  u32 frame_count;
};

// The answer of a hook that Ctrl-C ended before it could answer.
inline constexpr CUresult kInterrupted = -1;

// Each hook writes a CUresult to `answer`, which holds kInterrupted before, and for an error a
// message to `why` (NUL-terminated, `why_size` at most). `launch` answers 700 or more for a fault
// inside the kernel.
struct Hooks {
  void (*load)(u64 module, const char* ptx, CUresult* answer, char* why, u64 why_size);
  void (*function)(u64 module, const char* name, HookFunction* out, CUresult* answer, char* why,
                   u64 why_size);
  void (*launch)(HookLaunch* launch, CUresult* answer, char* why, u64 why_size);
  // The number of blocks of a kernel that fit on one multiprocessor.
  void (*occupancy)(u64 module, const char* name, u32 threads, u32 dynamic_shared, u32* blocks,
                    CUresult* answer, char* why, u64 why_size);
  // Links several PTX modules into one, with CUDA's own device functions if `device_runtime`. `put`
  // receives the result, and returns 0 if it has no memory for it.
  void (*link)(const char* const* modules, u32 count, u32 device_runtime, void* taker,
               int (*put)(void* taker, const char* text, u64 size), CUresult* answer, char* why,
               u64 why_size);
  void (*variable)(u64 module, const char* name, u64* address, CUresult* answer, char* why,
                   u64 why_size);
  // `put` receives the name of each kernel, in the order of the module.
  void (*kernels)(u64 module, void* taker, int (*put)(void* taker, const char* text, u64 size),
                  CUresult* answer, char* why, u64 why_size);
  void (*encode)(const HookTensorMap* map, CUresult* answer, char* why, u64 why_size);
  // Reports the end of a library's call on the host.
  void (*host_call)(const HookCall* call, CUresult* answer, char* why, u64 why_size);
  // Reports a launch that the driver, or the runtime, refused.
  void (*refused)(HookRefusal* refusal, CUresult* answer, char* why, u64 why_size);
  // Returns a number for the place that allocates, from the given frames or Python's own. `tensor`
  // is the dtype and shape that torch allocates, in elements of `element` bytes, or null.
  void (*origin)(const char* tensor, u32 element, const u64* frames, u32 frame_count, u64* number,
                 CUresult* answer, char* why, u64 why_size);
  void (*host_read)(const HookRead* read, CUresult* answer, char* why, u64 why_size);
  // Returns a number for an operation's name and the line that enqueues it: Python's own, or that
  // of the given frames; 0 if there is neither.
  void (*deed)(const char* name, const u64* frames, u32 frame_count, u64* number, CUresult* answer,
               char* why, u64 why_size);
  void (*unordered)(const HookUnordered* found, CUresult* answer, char* why, u64 why_size);
  void (*host_access)(const HookHostAccess* access, CUresult* answer, char* why, u64 why_size);
  // Writes the line of Python that makes the current call, or "".
  void (*place)(char* text, u64 size, CUresult* answer, char* why, u64 why_size);
  // Reports an operation of a graph, by its number and that of the graph's launch, whose memory is
  // gone.
  void (*gone)(u32 recorded, u32 launch, const char* what, CUresult* answer, char* why,
               u64 why_size);
  void (*unload)(u64 module);
  void (*fetched)(u64 number);  // the program has read the error of a refused launch
  // Python's main thread raises KeyboardInterrupt as soon as it has returned from the client's
  // call.
  void (*interrupt)();
};

struct HookDevice {
  const char* name;
  u64 memory_bytes;       // of one device, for all its clients
  const int* attributes;  // pairs: attribute, value
  u32 attribute_count;
  double device_bytes_per_second;  // of the device's memory
  double host_bytes_per_second;    // between the device and the host
  double operation_seconds;        // start and end of any operation on the device
  u32 count;                       // devices, all alike
  const char* host_blas;           // path of the host's BLAS library; empty without one
};
