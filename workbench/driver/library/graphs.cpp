// Stream capture and graphs: what a captured stream is given becomes the nodes of a graph, which run when it is launched.
#include <algorithm>

#include "driver.hpp"

namespace workbench::driver {
namespace {

unsigned& thread_mode() {
  thread_local unsigned mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

Stream& stream_of(Call& call, CUstream handle) {
  check_stream(*call.context(), handle);
  const auto found = state().streams.find(reinterpret_cast<u64>(handle));
  if (found == state().streams.end()) throw Refused{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream cannot be captured"};
  return *found->second;
}

void leave(const std::shared_ptr<Capture>& capture) {
  for (const auto& [_, stream] : state().streams)
    if (stream->capture == capture) stream->capture.reset(), stream->seen.clear();
  std::erase(state().captures, capture);
}

// Its streams, which must all have come back to the one where it began.
void check_joined(const Capture& capture, const Seen& seen) {
  for (const auto& [stream, count] : capture.enqueued) {
    const auto found = seen.find(stream);
    if (found != seen.end() && found->second == count) continue;
    throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                  "a stream that took part in the capture has work for which the stream where it began does not wait: record an event after it and wait for that"};
  }
}

}  // namespace

bool captured(Call& call, CUstream handle, Node node) {
  const std::shared_ptr<Capture> capture = capture_of(*call.context(), handle);
  if (!capture) return false;
  const u64 number = reinterpret_cast<u64>(handle);
  capture->graph.nodes.push_back(std::move(node));
  state().streams.at(number)->seen[number] = ++capture->enqueued[number];
  return true;
}

void outside_captures(const char* what) {
  if (thread_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  bool spoilt = false;
  for (const auto& capture : state().captures)
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) capture->invalid = what, spoilt = true;
  if (spoilt) throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, std::string(what) + " is not permitted while a stream is captured"};
}

}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuStreamBeginCapture_v2(CUstream handle, unsigned mode) {
  return entry([&](Call& call) {
    Stream& stream = stream_of(call, handle);
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown capture mode"};
    if (stream.capture) throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is captured already"};
    auto capture = std::make_shared<Capture>();
    capture->id = new_handle(), capture->origin = reinterpret_cast<u64>(handle), capture->mode = mode;
    capture->graph.context = stream.context;
    stream.capture = capture, stream.seen.clear();
    state().captures.push_back(capture);
  });
}

CU_API cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return entry([&](Call& call) {
    Stream& stream = stream_of(call, handle);
    CUgraph& graph = needed(out, "graph");
    graph = nullptr;
    const std::shared_ptr<Capture> capture = stream.capture;
    if (!capture) throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the stream is not captured"};
    if (capture->origin != reinterpret_cast<u64>(handle)) throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream"};
    const Seen seen = stream.seen;
    leave(capture);
    if (!capture->invalid.empty()) throw Refused{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture of this stream ended at " + capture->invalid};
    check_joined(*capture, seen);
    const u64 number = new_handle();
    state().graphs[number] = std::make_shared<Graph>(std::move(capture->graph));
    graph = reinterpret_cast<CUgraph>(number);
  });
}

CU_API cuStreamIsCapturing(CUstream handle, unsigned* status) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle);
    const auto found = state().streams.find(reinterpret_cast<u64>(handle));
    const auto capture = found == state().streams.end() ? nullptr : found->second->capture;
    needed(status, "status") = !capture ? CU_STREAM_CAPTURE_STATUS_NONE
                               : capture->invalid.empty() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  });
}

CU_API cuThreadExchangeStreamCaptureMode(unsigned* mode) {
  return entry([&](Call&) {
    if (needed(mode, "mode") > CU_STREAM_CAPTURE_MODE_RELAXED) throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown capture mode"};
    std::swap(*mode, thread_mode());
  });
}

CU_API cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return entry([&](Call&) {
    if (nodes) throw Refused{CUDA_ERROR_NOT_SUPPORTED, "the nodes of a graph cannot be looked at one by one, only counted"};
    needed(count, "count") = find_handle(state().graphs, handle, "graph")->nodes.size();
  });
}

CU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long) {
  return entry([&](Call&) {
    CUgraphExec& executable = needed(out, "executable");
    const u64 number = new_handle();
    state().executables[number] = find_handle(state().graphs, handle, "graph");
    executable = reinterpret_cast<CUgraphExec>(number);
  });
}

CU_API cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> context = call.context();
    const std::shared_ptr<Graph> graph = find_handle(state().executables, handle, "executable graph");
    if (graph->context != context.get()) throw Refused{CUDA_ERROR_INVALID_CONTEXT, "the graph was captured in another context"};
    const Node all = [graph](Call& inner, CUstream to) {
      for (const Node& node : graph->nodes) {
        if (!inner.lock.owns_lock()) inner.lock.lock();
        if (graph->context->fault) return;
        node(inner, to);
      }
    };
    if (!captured(call, stream, all)) all(call, stream);
  });
}

CU_API cuGraphDestroy(CUgraph handle) {
  return entry([&](Call&) {
    find_handle(state().graphs, handle, "graph");
    state().graphs.erase(reinterpret_cast<u64>(handle));
  });
}

CU_API cuGraphExecDestroy(CUgraphExec handle) {
  return entry([&](Call&) {
    find_handle(state().executables, handle, "executable graph");
    state().executables.erase(reinterpret_cast<u64>(handle));
  });
}

CU_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return entry([&](Call& call) {
    if (!function) throw Refused{CUDA_ERROR_INVALID_VALUE, "the function is a null pointer"};
    check_stream(*call.context(), stream);
    const Node node = [function, data](Call& inner, CUstream on) {
      advance(*inner.context(), on, state().device.operation_seconds);
      inner.lock.unlock();
      function(data);
    };
    if (!captured(call, stream, node)) node(call, stream);
  });
}
