// Stream capture: operations on a captured stream become nodes of a graph instead of running.
#include <algorithm>

#include "graphs.hpp"

namespace workbench::driver {
namespace {

unsigned& thread_mode() { return needed_thread_state().capture_mode; }

Stream& stream_of(Call& call, CUstream handle) {
  check_stream(*call.context(), handle);
  const auto found = state().streams.find(stream_number(*call.context(), handle));
  if (found == state().streams.end())
    throw Refused{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream cannot be captured"};
  return *found->second;
}

void leave(const std::shared_ptr<Capture>& capture) {
  for (const auto& [_, stream] : state().streams)
    if (stream->capture == capture)
      stream->capture.reset(), stream->seen.clear(), stream->last.clear();
  std::erase(state().captures, capture);
}

// Refuses a capture whose streams have not all joined the one where it began.
void check_joined(const Capture& capture, const Seen& seen) {
  for (const auto& [stream, count] : capture.enqueued) {
    const auto found = seen.find(stream);
    if (found != seen.end() && found->second == count) continue;
    throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                  "a stream that took part in the capture has work for which the stream where it "
                  "began does not wait: record an event after it and wait for that"};
  }
}

}  // namespace

bool captured(Call& call, CUstream handle, CUgraphNodeType type, NodeWork work) {
  const std::shared_ptr<Capture> capture = capture_of(*call.context(), handle);
  if (!capture) return false;
  const u64 number = stream_number(*call.context(), handle);
  const u64 node = new_handle();
  Stream& stream = *state().streams.at(number);
  capture->graph->nodes.emplace(node, GraphNode{type, std::move(work), stream.last});
  stream.last = {node}, stream.seen[number] = ++capture->enqueued[number];
  return true;
}

void outside_captures(const char* what) {
  if (thread_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  bool spoilt = false;
  for (const auto& capture : state().captures)
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) capture->invalid = what, spoilt = true;
  if (spoilt)
    throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  std::string(what) + " is not permitted while a stream is captured"};
}

}  // namespace workbench::driver

using namespace workbench::driver;

namespace {

// Begins a capture, into an existing graph if one is given; its nodes then follow `after`.
void begin_capture(Call& call, CUstream handle, unsigned mode, CUgraph into,
                   std::vector<u64> after) {
  Stream& stream = stream_of(call, handle);
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown capture mode"};
  if (stream.capture)
    throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is captured already"};
  auto capture = std::make_shared<Capture>();
  capture->id = new_handle(), capture->origin = stream_number(*call.context(), handle),
  capture->mode = mode;
  capture->owned = !into;
  if (into) {
    capture->handle = number_of(into);
    capture->graph = find_handle(state().graphs, into, "graph");
  } else {
    capture->handle = new_handle();
    capture->graph = std::make_shared<Graph>(Graph{stream.context});
    state().graphs[capture->handle] = capture->graph;
  }
  stream.capture = capture;
  stream.seen.clear();
  stream.last = std::move(after);
  state().captures.push_back(capture);
}

}  // namespace

CU_API cuStreamBeginCapture_v2(CUstream handle, unsigned mode) {
  return entry([&](Call& call) { begin_capture(call, handle, mode, nullptr, {}); });
}

CU_API cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode* after,
                                   const CUgraphEdgeData* edges, std::size_t count, unsigned mode) {
  return entry([&](Call& call) {
    check_edges(edges, count);
    begin_capture(call, handle, mode, graph, nodes_of(graph_of(graph), after, count));
  });
}

CU_API cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return entry([&](Call& call) {
    Stream& stream = stream_of(call, handle);
    const std::shared_ptr<Capture> capture = stream.capture;
    // A client that captures into its own graph knows it already.
    CUgraph known = nullptr;
    CUgraph& graph = capture && !capture->owned && !out ? known : needed(out, "graph");
    graph = nullptr;
    if (!capture) throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the stream is not captured"};
    if (capture->origin != stream_number(*call.context(), handle))
      throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream"};
    const Seen seen = stream.seen;
    leave(capture);
    try {
      if (!capture->invalid.empty())
        throw Refused{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                      "the capture of this stream ended at " + capture->invalid};
      check_joined(*capture, seen);
    } catch (const Refused&) {
      if (capture->owned) state().graphs.erase(capture->handle);
      throw;
    }
    graph = reinterpret_cast<CUgraph>(capture->handle);
  });
}

namespace {

unsigned status_of(Call& call, CUstream handle, std::shared_ptr<Capture>& capture,
                   const Stream*& stream) {
  check_stream(*call.context(), handle);
  const auto found = state().streams.find(stream_number(*call.context(), handle));
  if (found == state().streams.end() || !found->second->capture)
    return CU_STREAM_CAPTURE_STATUS_NONE;
  stream = found->second.get(), capture = stream->capture;
  return capture->invalid.empty() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                  : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult capture_info(CUstream handle, unsigned* status, u64* id, CUgraph* graph,
                      const CUgraphNode** last, std::size_t* count) {
  return entry([&](Call& call) {
    std::shared_ptr<Capture> capture;
    const Stream* stream = nullptr;
    needed(status, "status") = status_of(call, handle, capture, stream);
    if (!capture) return;
    if (id) *id = capture->id;
    if (graph) *graph = reinterpret_cast<CUgraph>(capture->handle);
    // Handles are numbers behind pointer types, so the list itself is returned; it is valid until
    // the next operation on the stream.
    if (last) *last = reinterpret_cast<const CUgraphNode*>(stream->last.data());
    if (count) *count = stream->last.size();
  });
}

}  // namespace

CU_API cuStreamIsCapturing(CUstream handle, unsigned* status) {
  return capture_info(handle, status, nullptr, nullptr, nullptr, nullptr);
}

CU_API cuStreamGetCaptureInfo_v2(CUstream handle, unsigned* status, u64* id, CUgraph* graph,
                                 const CUgraphNode** last, std::size_t* count) {
  return capture_info(handle, status, id, graph, last, count);
}

CU_API cuStreamGetCaptureInfo_v3(CUstream handle, unsigned* status, u64* id, CUgraph* graph,
                                 const CUgraphNode** last, const void** edges, std::size_t* count) {
  if (edges) *edges = nullptr;
  return capture_info(handle, status, id, graph, last, count);
}

CU_API cuStreamUpdateCaptureDependencies_v2(CUstream handle, const CUgraphNode* nodes, const void*,
                                            std::size_t count, unsigned flags) {
  constexpr unsigned kSet = 1;
  return entry([&](Call& call) {
    Stream& stream = stream_of(call, handle);
    if (!stream.capture)
      throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the stream is not captured"};
    if (flags & kSet) stream.last.clear();
    const std::vector<u64> more = nodes_of(*stream.capture->graph, nodes, count);
    stream.last.insert(stream.last.end(), more.begin(), more.end());
  });
}

CU_API cuThreadExchangeStreamCaptureMode(unsigned* mode) {
  return entry([&](Call&) {
    if (needed(mode, "mode") > CU_STREAM_CAPTURE_MODE_RELAXED)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown capture mode"};
    std::swap(*mode, thread_mode());
  });
}
