// For libraries of ours that compute on the host what NVIDIA's compute on the device (cuBLAS,
// cuRAND): their calls take a place in a stream, are captured into graphs, and touch no byte that
// is in no allocation.
#pragma once
#include "abi.hpp"

// The bytes that a call touches through one of its arguments: `rows` pieces of `row_bytes`, which
// begin `stride` bytes apart.
struct HostRange {
  const char* argument;
  u64 address, row_bytes, rows, stride;
  bool reads, writes;
};

// A call while it runs.
struct HostFrame;

// What a call does, with the data that it was enqueued with. It must not throw.
using HostBody = void (*)(void* data, HostFrame* frame);

extern "C" {
// Runs a call in the order of the stream, or with every launch of the graph that the stream is
// captured into. `name` and `shape` tell of it in reports; `release` frees `data` with the last
// use, and also where the call is refused.
CUresult workbench_driver_host_call(CUstream stream, const char* name, const char* shape,
                                    HostBody body, void* data, void (*release)(void*));
// For a body: where this process holds a range, which stays there until the call has ended. Null
// where part of it is in no allocation: then the call is to end, and the driver tells of it.
void* workbench_driver_host_range(HostFrame* frame, const HostRange* range);
// For a body: ends the call with a result and its words.
void workbench_driver_host_fail(HostFrame* frame, CUresult result, const char* why);
// Whether an address is one of device memory, which the host cannot read.
int workbench_driver_on_device_alone(u64 address);
// The host's BLAS library, as workbench.driver found it; empty where there is none.
const char* workbench_driver_host_blas();
// Keeps what is wrong about a call for who asks for the latest error.
void workbench_driver_remember(CUresult result, const char* why);
}
