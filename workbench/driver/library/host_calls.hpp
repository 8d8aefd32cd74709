// For this package's cuBLAS, cuRAND and NCCL, which compute on the host: their calls run in the
// order of a stream, are captured into graphs, and touch no byte outside an allocation.
#pragma once
#include "abi.hpp"

// The bytes that a call touches through one of its arguments: `rows` rows of `row_bytes`, which
// begin `stride` bytes apart.
struct HostRange {
  const char* argument;
  u64 address, row_bytes, rows, stride;
  bool reads, writes;
};

// A running call.
struct HostFrame;

// The function of a call, with the data it was enqueued with. It must not throw.
using HostBody = void (*)(void* data, HostFrame* frame);

// Ends a call that waits for others (pending.cpp). Returns CUDA_ERROR_NOT_READY if it would have to
// wait and `waits` is 0; writes a message for an error.
using HostEnd = CUresult (*)(void* data, int waits, char* why, u64 size);

extern "C" {
// Runs a call in the order of the stream, or with every launch of the graph that the stream is
// captured into. `name` and `shape` are for reports. `release` frees `data` after the last use,
// also if the call is refused.
CUresult workbench_driver_host_call(CUstream stream, const char* name, const char* shape,
                                    HostBody body, void* data, void (*release)(void*));
// For a body: the address of a range in this process, valid until the call ends. Null if part of it
// is in no allocation: the call then has to end, and the driver reports the fault.
void* workbench_driver_host_range(HostFrame* frame, const HostRange* range);
// For a body: the rest of the call, which waits for other processes. It runs when something needs
// the call's end; the addresses of ranges stay valid until then.
void workbench_driver_host_later(HostFrame* frame, HostEnd end, void* data, void (*release)(void*));
// Writes the line of Python that makes the call, or "".
void workbench_driver_caller(char* text, u64 size);
// Whether Ctrl-C has been pressed. Python raises its exception when the client's call has returned.
int workbench_driver_interrupted();
// For a body: ends the call with a result and a message.
void workbench_driver_host_fail(HostFrame* frame, CUresult result, const char* why);
// Whether an address is device memory, which the host cannot read.
int workbench_driver_on_device_alone(u64 address);
// The path of the host's BLAS library that workbench.driver found, or "".
const char* workbench_driver_host_blas();
// Keeps the message of a failed call as the thread's latest one.
void workbench_driver_remember(CUresult result, const char* why);
}
