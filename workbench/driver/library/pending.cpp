// Calls that wait for other processes, such as collectives. The first half of such a call runs when
// it is enqueued, as all work does. The second one waits, so that it runs when the host needs it:
// before the next operation of its stream, or of a stream that waits for it, and at a
// synchronisation. A program that enqueues a collective and goes on thus goes on here, too.
#include "pending.hpp"

#include <algorithm>
#include <mutex>

namespace workbench::driver {

struct Pending {
  HostEnd end = nullptr;
  std::shared_ptr<void> data = nullptr;
  std::vector<std::shared_ptr<Allocation>> held = {};
  std::mutex mutex = {};  // of the thread that ends it
  bool ended = false;
  CUresult result = CUDA_SUCCESS;
  std::string why = {};
};

namespace {

std::atomic<u64> count{0};

void erase_ended(Pendings& all) {
  std::erase_if(all, [](const auto& one) { return one->ended; });
}

void erase_ended() {
  for (const auto& [_, context] : state().contexts) erase_ended(context->pending);
  for (const auto& [_, stream] : state().streams) erase_ended(stream->pending);
  for (const auto& [_, event] : state().events) erase_ended(event->pending);
}

void run(Pending& one, bool waits) {
  char why[kWhySize] = "";
  one.result = one.end(one.data.get(), waits, why, sizeof why);
  if (one.result == CUDA_ERROR_NOT_READY) return;
  one.why = why;
  one.ended = true;
  one.held.clear();
  one.data.reset();
  --count;
}

// Ends a call, if that is possible without waiting or if `waits`. Unlocks meanwhile.
bool ended(Call& call, Pending& one, bool waits) {
  call.lock.unlock();
  {
    std::unique_lock own(one.mutex, std::defer_lock);
    if (waits)
      own.lock();
    else if (!own.try_lock()) {
      call.lock.lock();
      return false;
    }
    if (!one.ended) run(one, waits);
  }
  call.lock.lock();
  return one.ended;
}

void add(Pendings& to, const Pendings& more) {
  for (const auto& one : more)
    if (std::ranges::find(to, one) == to.end()) to.push_back(one);
}

Stream* stream_at(const Context& context, CUstream handle) {
  const auto found = state().streams.find(stream_number(context, handle));
  return found == state().streams.end() ? nullptr : found->second.get();
}

bool is_blocking(const Context& context, const Stream& stream) {
  return stream.context == &context && !(stream.flags & CU_STREAM_NON_BLOCKING);
}

}  // namespace

std::shared_ptr<Pending> make_pending(HostEnd end, std::shared_ptr<void> data) {
  auto made = std::make_shared<Pending>();
  made->end = end;
  made->data = std::move(data);
  ++count;
  return made;
}

void hold(Pending& pending, std::vector<std::shared_ptr<Allocation>> memory) {
  pending.held = std::move(memory);
}

bool any_pending() noexcept { return count.load(std::memory_order_relaxed) != 0; }

void add_pending(Context& context, CUstream handle, const std::shared_ptr<Pending>& made) {
  Stream* const stream = stream_at(context, handle);
  add(stream ? stream->pending : context.pending, {made});
}

// The default stream and blocking streams wait for each other.
Pendings pending_before(const Context& context, CUstream handle) {
  Pendings found;
  if (!any_pending()) return found;
  const Stream* const stream = stream_at(context, handle);
  if (stream) found = stream->pending;
  if (!stream || is_blocking(context, *stream)) add(found, context.pending);
  if (!stream)
    for (const auto& [_, other] : state().streams)
      if (is_blocking(context, *other)) add(found, other->pending);
  return found;
}

void settle(Call& call, const Pendings& all) {
  for (const auto& one : all) {
    ended(call, *one, true);
    erase_ended();
    if (one->result) throw Refused{one->result, one->why};
  }
}

void settle(Call& call, const Context& context, CUstream handle) {
  check_stream(context, handle);
  if (!any_pending()) return;
  const Stream* const stream = stream_at(context, handle);
  if (!stream || !stream->capture) settle(call, pending_before(context, handle));
}

void settle_all(Call& call, const Context& context) {
  if (!any_pending()) return;
  Pendings found = context.pending;
  for (const auto& [_, stream] : state().streams)
    if (stream->context == &context) add(found, stream->pending);
  settle(call, found);
}

void need_ended(Call& call, const Pendings& all) {
  for (const auto& one : all)
    if (!ended(call, *one, false))
      throw Refused{CUDA_ERROR_NOT_READY, "a collective waits for other processes"};
}

}  // namespace workbench::driver
