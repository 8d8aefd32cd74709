// Streams, events and stream capture.
#include "runtime.hpp"

using namespace workbench::runtime;

CUDA_API cudaStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call([&] { return cuStreamCreateWithPriority(stream, flags, priority); });
}

CUDA_API cudaStreamCreateWithFlags(CUstream* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
CUDA_API cudaStreamCreate(CUstream* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
CUDA_API cudaStreamDestroy(CUstream stream) {
  return freeing([&] { return cuStreamDestroy_v2(stream); });
}
CUDA_API cudaStreamGetPriority(CUstream stream, int* priority) {
  return call([&] { return cuStreamGetPriority(stream, priority); });
}
CUDA_API cudaStreamGetFlags(CUstream stream, unsigned* flags) {
  return call([&] { return cuStreamGetFlags(stream, flags); });
}
CUDA_API cudaStreamGetId(CUstream stream, u64* id) {
  return call([&] { return cuStreamGetId(stream, id); });
}
CUDA_API cudaStreamGetDevice(CUstream stream, int* device) {
  return call([&] { return cuStreamGetDevice(stream, device); });
}
CUDA_API cudaStreamSynchronize(CUstream stream) {
  return call([&] { return cuStreamSynchronize(stream); });
}
CUDA_API cudaStreamQuery(CUstream stream) {
  return call([&] { return cuStreamQuery(stream); });
}

CUDA_API cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call([&] { return cuStreamWaitEvent(stream, event, flags); });
}

CUDA_API cudaStreamAddCallback(CUstream stream, CUstreamCallback function, void* data,
                               unsigned flags) {
  return call([&] { return cuStreamAddCallback(stream, function, data, flags); });
}

CUDA_API cudaStreamAttachMemAsync(CUstream stream, void* pointer, std::size_t bytes,
                                  unsigned flags) {
  return call([&] { return cuStreamAttachMemAsync(stream, address_of(pointer), bytes, flags); });
}

CUDA_API cudaStreamSetAttribute(CUstream stream, int which, const void* value) {
  return call([&] { return cuStreamSetAttribute(stream, which, value); });
}
CUDA_API cudaStreamGetAttribute(CUstream stream, int which, void* value) {
  return call([&] { return cuStreamGetAttribute(stream, which, value); });
}
CUDA_API cudaStreamCopyAttributes(CUstream to, CUstream from) {
  return call([&] { return cuStreamCopyAttributes(to, from); });
}

// ---- capture ----

CUDA_API cudaStreamBeginCapture(CUstream stream, unsigned mode) {
  return call([&] { return cuStreamBeginCapture_v2(stream, mode); });
}

CUDA_API cudaStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* after,
                                       const CUgraphEdgeData* edges, std::size_t count,
                                       unsigned mode) {
  return call(
      [&] { return cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode); });
}

CUDA_API cudaStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call([&] { return cuStreamEndCapture(stream, graph); });
}
CUDA_API cudaStreamIsCapturing(CUstream stream, unsigned* status) {
  return call([&] { return cuStreamIsCapturing(stream, status); });
}

CUDA_API cudaStreamGetCaptureInfo(CUstream stream, unsigned* status, u64* id, CUgraph* graph,
                                  const CUgraphNode** nodes, const void** edges,
                                  std::size_t* count) {
  return call(
      [&] { return cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count); });
}

CUDA_API cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, const void* edges,
                                             std::size_t count, unsigned flags) {
  return call(
      [&] { return cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags); });
}

CUDA_API cudaThreadExchangeStreamCaptureMode(unsigned* mode) {
  return freeing([&] { return cuThreadExchangeStreamCaptureMode(mode); });
}

// ---- events ----

CUDA_API cudaEventCreateWithFlags(CUevent* event, unsigned flags) {
  return call([&] { return cuEventCreate(event, flags); });
}
CUDA_API cudaEventCreate(CUevent* event) { return cudaEventCreateWithFlags(event, 0); }
CUDA_API cudaEventDestroy(CUevent event) {
  return freeing([&] { return cuEventDestroy_v2(event); });
}
CUDA_API cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return call([&] { return cuEventRecordWithFlags(event, stream, flags); });
}
CUDA_API cudaEventRecord(CUevent event, CUstream stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
CUDA_API cudaEventSynchronize(CUevent event) {
  return call([&] { return cuEventSynchronize(event); });
}
CUDA_API cudaEventQuery(CUevent event) {
  const void* const caller = __builtin_return_address(0);
  return call([&] { return workbench_driver_query_event(event, caller); });
}

CUDA_API cudaEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return call([&] { return cuEventElapsedTime_v2(milliseconds, start, end); });
}

PER_THREAD(cudaStreamGetPriority, _ptsz, (CUstream stream, int* priority), (stream, priority))
PER_THREAD(cudaStreamGetFlags, _ptsz, (CUstream stream, unsigned* flags), (stream, flags))
PER_THREAD(cudaStreamGetId, _ptsz, (CUstream stream, u64* id), (stream, id))
PER_THREAD(cudaStreamGetDevice, _ptsz, (CUstream stream, int* device), (stream, device))
PER_THREAD(cudaStreamSynchronize, _ptsz, (CUstream stream), (stream))
PER_THREAD(cudaStreamQuery, _ptsz, (CUstream stream), (stream))
PER_THREAD(cudaStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
           (stream, event, flags))
PER_THREAD(cudaStreamAddCallback, _ptsz,
           (CUstream stream, CUstreamCallback function, void* data, unsigned flags),
           (stream, function, data, flags))
PER_THREAD(cudaStreamAttachMemAsync, _ptsz,
           (CUstream stream, void* pointer, std::size_t bytes, unsigned flags),
           (stream, pointer, bytes, flags))
PER_THREAD(cudaStreamSetAttribute, _ptsz, (CUstream stream, int which, const void* value),
           (stream, which, value))
PER_THREAD(cudaStreamGetAttribute, _ptsz, (CUstream stream, int which, void* value),
           (stream, which, value))
PER_THREAD(cudaStreamCopyAttributes, _ptsz, (CUstream to, CUstream from), (to, from))
PER_THREAD(cudaStreamBeginCapture, _ptsz, (CUstream stream, unsigned mode), (stream, mode))
PER_THREAD(cudaStreamBeginCaptureToGraph, _ptsz,
           (CUstream stream, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges,
            std::size_t count, unsigned mode),
           (stream, graph, after, edges, count, mode))
PER_THREAD(cudaStreamEndCapture, _ptsz, (CUstream stream, CUgraph* graph), (stream, graph))
PER_THREAD(cudaStreamIsCapturing, _ptsz, (CUstream stream, unsigned* status), (stream, status))
PER_THREAD(cudaStreamGetCaptureInfo, _ptsz,
           (CUstream stream, unsigned* status, u64* id, CUgraph* graph, const CUgraphNode** nodes,
            const void** edges, std::size_t* count),
           (stream, status, id, graph, nodes, edges, count))
PER_THREAD(cudaStreamUpdateCaptureDependencies, _ptsz,
           (CUstream stream, CUgraphNode* nodes, const void* edges, std::size_t count,
            unsigned flags),
           (stream, nodes, edges, count, flags))
PER_THREAD(cudaEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream))
PER_THREAD(cudaEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags),
           (event, stream, flags))
