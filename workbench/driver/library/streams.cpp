// Streams and events. Work runs when it is enqueued; its predicted time advances the streams'
// clocks.
#include <algorithm>
#include <cstring>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr int kGreatestPriority = -5;
// A program may wait until its allocator hands out memory again.
constexpr int kMostRefusedQueries = 100;

// Handles of default streams, in addition to null.
enum : u64 { kLegacy = 1, kPerThread = 2 };

bool is_default(const Context& context, CUstream stream) { return !stream_number(context, stream); }

Stream& own_stream(const Context& context, CUstream handle) {
  const u64 number = stream_number(context, handle);
  Stream& stream = *find_handle(state().streams, reinterpret_cast<void*>(number), "stream");
  if (stream.context == &context) return stream;
  const std::string own = std::to_string(stream.context->device);
  const std::string here = std::to_string(context.device);
  throw Refused{CUDA_ERROR_INVALID_HANDLE,
                own == here ? "the stream belongs to another context"
                            : "the stream is one of device " + own + ", and device " + here +
                                  " is current: make device " + own +
                                  " current first (torch.cuda.device, cudaSetDevice)"};
}

Event& own_event(const Context& context, CUevent handle) {
  Event& event = *find_handle(state().events, handle, "event");
  if (event.context == &context) return event;
  const std::string own = std::to_string(event.context->device);
  const std::string there = std::to_string(context.device);
  throw Refused{CUDA_ERROR_INVALID_HANDLE,
                own == there ? "the event belongs to another context"
                             : "the event is one of device " + own + ", and the stream of device " +
                                   there + ": record an event on streams of its own device"};
}

void not_captured(const Event& event) {
  if (event.capture)
    throw Refused{CUDA_ERROR_CAPTURED_EVENT,
                  "the event was recorded in a captured stream: nothing has run"};
}

// The time at which the stream can begin an operation enqueued now. The default stream and blocking
// streams wait for each other.
double ready(const Context& context, CUstream handle) {
  double from = context.host_clock;
  if (is_default(context, handle)) {
    from = std::max(from, context.default_clock);
    for (const auto& [_, stream] : state().streams)
      if (stream->context == &context && !(stream->flags & CU_STREAM_NON_BLOCKING))
        from = std::max(from, stream->clock);
    return from;
  }
  const Stream& stream = own_stream(context, handle);
  if (!(stream.flags & CU_STREAM_NON_BLOCKING)) from = std::max(from, context.default_clock);
  return std::max(from, stream.clock);
}

double& clock_of(Context& context, CUstream handle) {
  return is_default(context, handle) ? context.default_clock : own_stream(context, handle).clock;
}

void record(Context& context, Event& event, CUstream stream) {
  event.capture = nullptr;
  event.time = ready(context, stream);
  event.recorded = true;
  event.pending = pending_before(context, stream);
  order_record(context, event.order, stream);
}

// Records an event now, or when the stream comes to it.
void give_record(Call& call, const std::shared_ptr<Event>& event, CUstream stream) {
  const std::shared_ptr<Context> held = context_of(call, stream);
  Context& context = *held;
  // From here on times may be queried; before that no launch pays for the statistics.
  if (!(event->flags & CU_EVENT_DISABLE_TIMING)) context.timed = true;
  const Operation run = [event](Call& inner, CUstream on) {
    event->time = ready(*inner.context(), on);
    event->pending = pending_before(*inner.context(), on);
  };
  if (!put_off(call, stream, run)) return record(context, *event, stream);
  event->capture = nullptr;
  event->recorded = true;
  event->pending.clear();
  event->late = late_place(context, stream);
  event->refused_queries = 0;
}

void wait(Context& context, const Event& event, CUstream stream) {
  double& clock = clock_of(context, stream);
  if (!event.recorded) return;
  clock = std::max(clock, event.time);
  for (const auto& one : event.pending) add_pending(context, stream, one);
  order_wait(context, event.order, stream);
}

void create_stream(Call& call, CUstream* out, unsigned flags) {
  if (flags & ~CU_STREAM_NON_BLOCKING)
    throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown flags of a stream"};
  CUstream& handle = needed(out, "stream");
  const u64 number = new_handle();
  state().streams[number] = std::make_shared<Stream>(
      Stream{.context = call.context().get(), .flags = flags, .clock = call.context()->host_clock});
  handle = reinterpret_cast<CUstream>(number);
}

}  // namespace

// Each thread has a stream of its own in each context, created at its first use.
u64 stream_number(const Context& context, CUstream handle) {
  ThreadState& thread = needed_thread_state();
  u64 number = reinterpret_cast<u64>(handle);
  if (!number && thread.null_is_per_thread) number = kPerThread;
  if (number <= kLegacy) return 0;
  if (number != kPerThread) return number;
  u64& own = thread.streams[context.handle];
  if (!own) {
    const auto here = find_context(reinterpret_cast<CUcontext>(context.handle));
    const u64 made = new_handle();
    state().streams[made] = std::make_shared<Stream>(
        Stream{.context = here.get(), .flags = 0, .clock = context.host_clock});
    own = made;
  }
  return own;
}

std::shared_ptr<Context> context_of(Call& call, CUstream handle) {
  const u64 number = reinterpret_cast<u64>(handle);
  if (number <= kPerThread) return call.context();
  Context* const own = find_handle(state().streams, handle, "stream")->context;
  const auto found = find_context(reinterpret_cast<CUcontext>(own->handle));
  if (found->fault) throw Refused{found->fault, found->fault_text};
  return found;
}

std::shared_ptr<Capture> capture_of(const Context& context, CUstream stream) {
  const auto found = is_default(context, stream) ? nullptr : own_stream(context, stream).capture;
  if (found && !found->invalid.empty())
    throw Refused{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                  "the capture of this stream ended at " + found->invalid};
  return found;
}

void check_stream(const Context& context, CUstream stream) {
  if (!is_default(context, stream)) own_stream(context, stream);
}

void advance(Context& context, CUstream stream, double seconds) {
  const double from = ready(context, stream);
  clock_of(context, stream) = from + seconds;
}

// Graphs hold the events of their nodes: a destroyed event is still recorded.
NodeWork record_work(CUevent handle) {
  const EventNode node{reinterpret_cast<u64>(handle), find_handle(state().events, handle, "event")};
  const Operation run = [node](Call& call, CUstream stream) {
    Context& context = *call.context();
    if (!(node.event->flags & CU_EVENT_DISABLE_TIMING)) context.timed = true;
    record(context, *node.event, stream);
  };
  return {run, node};
}

NodeWork wait_work(CUevent handle) {
  const EventNode node{reinterpret_cast<u64>(handle), find_handle(state().events, handle, "event")};
  const Operation run = [node](Call& call, CUstream stream) {
    wait(*call.context(), *node.event, stream);
  };
  return {run, node};
}

void synchronise(Context& context) {
  context.host_clock = std::max(context.host_clock, context.default_clock);
  for (const auto& [_, stream] : state().streams)
    if (stream->context == &context)
      context.host_clock = std::max(context.host_clock, stream->clock);
}

}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuStreamCreate(CUstream* out, unsigned flags) {
  return entry([&](Call& call) { create_stream(call, out, flags); });
}

CU_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return entry([&](Call& call) {
    create_stream(call, out, flags);
    state().streams.at(reinterpret_cast<u64>(*out))->priority =
        std::clamp(priority, kGreatestPriority, 0);
  });
}

// The range of a GPU. A priority has no effect, because work runs when it is enqueued.
CU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return entry([&](Call& call) {
    call.context();
    if (least) *least = 0;
    if (greatest) *greatest = kGreatestPriority;
  });
}

CU_API cuStreamGetPriority(CUstream handle, int* priority) {
  return entry([&](Call& call) {
    const Context& context = *call.context();
    needed(priority, "priority") =
        is_default(context, handle) ? 0 : own_stream(context, handle).priority;
  });
}

CU_API cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context>& context = call.context();
    needed(flags, "flags") = is_default(*context, handle) ? 0 : own_stream(*context, handle).flags;
  });
}

CU_API cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle);
    needed(out, "context") = reinterpret_cast<CUcontext>(call.context()->handle);
  });
}

CU_API cuStreamGetId(CUstream handle, u64* id) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle);
    const u64 number = stream_number(*call.context(), handle);
    needed(id, "id") = number ? number : u64{kLegacy};
  });
}

CU_API cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle), needed(device, "device") = call.context()->device;
  });
}

// What the stream was given still runs.
CU_API cuStreamDestroy_v2(CUstream handle) {
  return entry([&](Call& call) {
    const auto found = find_handle(state().streams, handle, "stream");
    if (is_late()) catch_up(call, late_place(*found->context, handle));
    settle(call, Pendings(found->pending));
    std::erase_if(found->context->stream_attributes, [&](const auto& item) {
      return item.first.first == reinterpret_cast<u64>(handle);
    });
    state().streams.erase(reinterpret_cast<u64>(handle));
  });
}

CU_API cuStreamSynchronize(CUstream handle) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> held = context_of(call, handle);
    Context& context = *held;
    if (capture_of(context, handle)) outside_captures("cuStreamSynchronize");
    catch_up(call, handle);
    settle(call, context, handle);
    context.host_clock = ready(context, handle);
    order_synchronise(context, handle);
  });
}

CU_API cuStreamQuery(CUstream handle) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> context = context_of(call, handle);
    if (capture_of(*context, handle)) outside_captures("cuStreamQuery");
    catch_up(call, handle);
    need_ended(call, pending_before(*context, handle));
    order_synchronise(*context, handle);
  });
}

CU_API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> held = context_of(call, handle);
    Context& context = *held;
    check_stream(context, handle);
    const Event& event = *find_handle(state().events, event_handle, "event");
    const std::shared_ptr<Capture> capture = capture_of(context, handle);
    if (capture && flags & CU_EVENT_WAIT_EXTERNAL) {
      captured(call, handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait_work(event_handle));
      return;
    }
    if (event.capture) {
      if (is_default(context, handle))
        throw Refused{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                      "the default stream cannot wait for a captured event"};
      if (std::ranges::find(state().captures, event.capture) == state().captures.end())
        not_captured(event);
      if (capture && capture != event.capture)
        throw Refused{CUDA_ERROR_STREAM_CAPTURE_MERGE,
                      "stream and event belong to different captures"};
      Stream& stream = own_stream(context, handle);
      stream.capture = event.capture;  // a stream that waits for a captured event joins the capture
      for (const auto& [which, count] : event.seen)
        stream.seen[which] = std::max(stream.seen[which], count);
      for (u64 node : event.last)
        if (std::ranges::find(stream.last, node) == stream.last.end()) stream.last.push_back(node);
      return;
    }
    if (capture)
      throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "a captured stream cannot wait for work outside of the capture"};
    follow_late(call, handle, event.late);
    wait(context, event, handle);
  });
}

CU_API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, std::size_t, unsigned) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle);
    if (need_allocation(address, 1)->where != Where::managed)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "not managed memory"};
  });
}

CU_API cuEventCreate(CUevent* out, unsigned flags) {
  return entry([&](Call& call) {
    CUevent& handle = needed(out, "event");
    const u64 number = new_handle();
    state().events[number] =
        std::make_shared<Event>(Event{.context = call.context().get(), .flags = flags});
    handle = reinterpret_cast<CUevent>(number);
  });
}

CU_API cuEventDestroy_v2(CUevent handle) {
  return entry([&](Call&) {
    find_handle(state().events, handle, "event");
    state().events.erase(reinterpret_cast<u64>(handle));
  });
}

CU_API cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> held = context_of(call, stream);
    Context& context = *held;
    Event& event = own_event(context, handle);
    const auto capture = capture_of(context, stream);
    if (capture && flags & CU_EVENT_RECORD_EXTERNAL) {
      captured(call, stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, record_work(handle));
      return;
    }
    if (capture) {
      event.capture = capture;
      event.seen = own_stream(context, stream).seen, event.last = own_stream(context, stream).last;
      return;
    }
    give_record(call, find_handle(state().events, handle, "event"), stream);
  });
}

CU_API cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, 0);
}

CU_API cuEventSynchronize(CUevent handle) {
  return entry([&](Call& call) {
    call.context();
    const auto event = find_handle(state().events, handle, "event");
    not_captured(*event);
    if (!event->recorded) return;
    catch_up(call, event->late);
    settle(call, Pendings(event->pending));
    event->context->host_clock = std::max(event->context->host_clock, event->time);
    order_host(event->order);
  });
}

// Beyond cuda.h, for the runtime: `caller` is the address to which the client's query returns.
extern "C" __attribute__((visibility("default"))) CUresult
workbench_driver_query_event(CUevent handle, const void* caller) {
  return entry([&](Call& call) {
    call.context();
    const auto event = find_handle(state().events, handle, "event");
    not_captured(*event);
    if (!event->recorded) return;
    if (is_late() && is_pending(event->late) && an_allocator_asks(caller) &&
        ++event->refused_queries < kMostRefusedQueries)
      throw Refused{CUDA_ERROR_NOT_READY, "what is before the event has not run"};
    catch_up(call, event->late);
    need_ended(call, Pendings(event->pending));
    order_query(event->order, caller);
  });
}

CU_API cuEventQuery(CUevent handle) {
  return workbench_driver_query_event(handle, __builtin_return_address(0));
}

CU_API cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return entry([&](Call& call) {
    call.context();
    const Event& first = *find_handle(state().events, start, "event");
    const Event& last = own_event(*first.context, end);
    for (const Event* event : {&first, &last}) {
      not_captured(*event);
      if (event->flags & CU_EVENT_DISABLE_TIMING)
        throw Refused{CUDA_ERROR_INVALID_HANDLE, "the event was made without timing"};
      if (!event->recorded)
        throw Refused{CUDA_ERROR_INVALID_HANDLE, "the event was never recorded"};
      catch_up(call, event->late);
    }
    needed(milliseconds, "milliseconds") = static_cast<float>(1e3 * (last.time - first.time));
  });
}

CU_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

// ---- attributes: hints for caches and scheduling, which are only stored and read back ----

CU_API cuStreamSetAttribute(CUstream handle, int which, const void* value) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle);
    auto& kept = call.context()->stream_attributes[{stream_number(*call.context(), handle), which}];
    std::memcpy(&kept, &needed(static_cast<const u8*>(value), "value"), sizeof kept);
  });
}

CU_API cuStreamGetAttribute(CUstream handle, int which, void* value) {
  return entry([&](Call& call) {
    check_stream(*call.context(), handle);
    const auto& kept =
        call.context()->stream_attributes[{stream_number(*call.context(), handle), which}];
    std::memcpy(&needed(static_cast<u8*>(value), "value"), &kept, sizeof kept);
  });
}

CU_API cuStreamCopyAttributes(CUstream to, CUstream from) {
  return entry([&](Call& call) {
    check_stream(*call.context(), to);
    check_stream(*call.context(), from);
    auto& all = call.context()->stream_attributes;
    const u64 first = stream_number(*call.context(), from);
    const u64 second = stream_number(*call.context(), to);
    const auto known = all;
    for (const auto& [key, value] : known)
      if (key.first == first) all[{second, key.second}] = value;
  });
}

// Beyond cuda.h, for the runtime: sets whether null is the calling thread's own stream or the one
// that all threads share. Returns the previous setting.
extern "C" __attribute__((visibility("default"))) int workbench_driver_null_stream(int per_thread) {
  ThreadState* const thread = thread_state();
  if (!thread) return 0;
  const int before = thread->null_is_per_thread;
  thread->null_is_per_thread = per_thread != 0;
  return before;
}
