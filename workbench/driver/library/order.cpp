// The order of operations (order.hpp): clocks, and the latest accesses to each byte.
#include "order.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstring>
#include <set>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr std::size_t kMostReports = 1000;
constexpr int kMostFrames = 32;
constexpr const char* kTorchsAllocator = "libc10_cuda";
constexpr const char* kTorchsHostAllocator = "libtorch_cuda";

// Bytes with the same latest accesses.
struct Segment {
  u64 end;
  Deed write = {};
  std::vector<Deed> reads = {};
  bool freed = false;  // its allocator has taken them back since
};

struct Order {
  u32 agents = 0;
  OrderClock host;       // what the host has waited for
  OrderClock allocator;  // what torch's caching allocator has seen to end
  std::map<u64, Segment> segments;
  std::set<std::pair<u32, u32>> reported;
  std::vector<HookUnordered> found;
};

Order& order() {
  static auto* const one = new Order;  // never destroyed: calls may come until the very end
  return *one;
}

bool includes(const OrderClock& clock, const Deed& deed) {
  return !deed.agent || deed.time <= clock.at(deed.agent);
}

u32 number_of(Agent& agent) {
  return agent.number ? agent.number : agent.number = ++order().agents;
}

Stream* stream_at(Context& context, CUstream handle) {
  const u64 number = stream_number(context, handle);
  return number ? find_handle(state().streams, reinterpret_cast<void*>(number), "stream").get()
                : nullptr;
}

Agent& agent_of(Context& context, Stream* stream) {
  if (Agent* const branch = needed_thread_state().branch) return *branch;
  return stream ? stream->order : context.legacy;
}

// What an operation that is enqueued now comes after.
OrderClock before(Context& context, Stream* stream) {
  OrderClock clock = agent_of(context, stream).clock;
  clock.join(host_clock());
  if (needed_thread_state().branch) return clock;
  if (!stream)
    clock.join(context.blocking);
  else if (!(stream->flags & CU_STREAM_NON_BLOCKING))
    clock.join(context.legacy.clock);
  return clock;
}

HookSide side_of(const Deed& deed) {
  return {.what = deed.what,
          .writes = (deed.kind & kWrites) != 0,
          .stream = deed.stream,
          .pc = deed.pc};
}

void clash(const Deed& earlier, const Deed& later, u64 begin, u64 end, bool freed) {
  Order& all = order();
  if (all.reported.size() >= kMostReports || !all.reported.emplace(earlier.what, later.what).second)
    return;
  all.found.push_back({side_of(earlier), side_of(later), begin, end - begin, freed});
}

bool both_choose(const Deed& a, const Deed& b) { return a.kind & b.kind & kChosen; }

// Makes an address the beginning of a segment, if it is inside of one.
void split(std::map<u64, Segment>& segments, u64 at) {
  auto next = segments.upper_bound(at);
  if (next == segments.begin()) return;
  auto& [begin, segment] = *std::prev(next);
  if (begin == at || segment.end <= at) return;
  Segment rest = segment;
  segment.end = at;
  segments.emplace_hint(next, at, std::move(rest));
}

template <class Visit>
void for_each_segment(u64 begin, u64 end, Visit&& visit) {
  auto& segments = order().segments;
  split(segments, begin);
  split(segments, end);
  for (auto at = segments.lower_bound(begin); at != segments.end() && at->first < end;)
    at = visit(at) ? std::next(at) : segments.erase(at);
}

void write(const AccessedRange& range, const Deed& deed, const OrderClock& before) {
  for_each_segment(range.begin, range.end, [&](auto at) {
    const auto& [begin, segment] = *at;
    const bool may_meet = segment.write.kind & deed.kind & (kStrong | kChosen);
    if (!includes(before, segment.write) && !may_meet)
      clash(segment.write, deed, begin, segment.end, segment.freed);
    for (const Deed& read : segment.reads)
      if (!includes(before, read) && !both_choose(read, deed))
        clash(read, deed, begin, segment.end, segment.freed);
    return false;
  });
  order().segments.emplace(range.begin, Segment{.end = range.end, .write = deed});
}

void read(const AccessedRange& range, const Deed& deed, const OrderClock& before) {
  u64 from = range.begin;
  std::vector<std::pair<u64, u64>> gaps;
  for_each_segment(range.begin, range.end, [&](auto at) {
    auto& [begin, segment] = *at;
    if (begin > from) gaps.emplace_back(from, begin);
    from = segment.end;
    if (!includes(before, segment.write) && !both_choose(segment.write, deed))
      clash(segment.write, deed, begin, segment.end, segment.freed);
    std::erase_if(segment.reads, [&](const Deed& one) { return includes(before, one); });
    segment.reads.push_back(deed);
    return true;
  });
  if (from < range.end) gaps.emplace_back(from, range.end);
  for (const auto& [begin, end] : gaps)
    order().segments.emplace(begin, Segment{.end = end, .reads = {deed}});
}

std::vector<u64> return_addresses() {
  void* addresses[kMostFrames];
  const int count = backtrace(addresses, kMostFrames);
  std::vector<u64> frames;
  for (int i = 0; i < count; ++i) frames.push_back(reinterpret_cast<u64>(addresses[i]));
  return frames;
}

// The number of an operation's name and of the line that enqueues it.
u32 described(Call& call, const char* name) {
  ThreadState& thread = needed_thread_state();
  u64 number = 0;
  const auto ask_with = [&](const u64* frames, u32 count) {
    if (state().closed) return;
    try {
      ask(call, state().hooks.deed, name, frames, count, &number);
    } catch (const Refused&) {
      if (!call.lock.owns_lock()) call.lock.lock();
    }
  };
  if (thread.caller != Caller::native) ask_with(nullptr, 0);
  thread.caller = number ? Caller::python : Caller::native;
  if (number) return static_cast<u32>(number);
  const std::vector<u64> frames = return_addresses();
  ask_with(frames.data(), static_cast<u32>(frames.size()));
  return static_cast<u32>(number);
}

bool is_of(const void* address, const char* library) {
  Dl_info of{};
  return address && dladdr(address, &of) && of.dli_fname && std::strstr(of.dli_fname, library);
}

// Whether torch's caching allocator asks. `torch.Event` asks from the same library, but from
// outside of it, while the allocator's functions call each other.
bool allocator_asks(const void* caller) {
  if (!is_of(caller, kTorchsAllocator)) return false;
  void* addresses[kMostFrames];
  const int count = backtrace(addresses, kMostFrames);
  void** const end = addresses + count;
  void** const at = std::find(addresses, end, caller);
  return end - at < 2 || is_of(at[1], kTorchsAllocator);
}

}  // namespace

bool follows_order() { return state().follows_writes; }

u32 order_recorded(Call& call, const char* name) {
  return follows_order() ? described(call, name) : 0;
}

void tell_gone(Call& call, u32 recorded, const char* what) {
  if (!recorded || !follows_order() || state().closed) return;
  const u32 launch = described(call, "a launch of the graph");
  if (!order().reported.emplace(recorded, launch).second) return;
  try {
    ask(call, state().hooks.gone, recorded, launch, what);
  } catch (const Refused&) {
    if (!call.lock.owns_lock()) call.lock.lock();
  }
}

std::vector<u64> native_frames(Call& call) {
  if (!follows_order()) return {};
  if (needed_thread_state().caller == Caller::unknown) described(call, "");
  return needed_thread_state().caller == Caller::native ? return_addresses() : std::vector<u64>{};
}

const OrderClock& host_clock() {
  const HostFunction* const inner = needed_thread_state().host_function;
  return inner ? inner->clock() : order().host;
}

// ---- operations ----

Step::Step(Call& call, Context& context, CUstream stream, const char* name)
    : call_(call), on_(follows_order()) {
  if (!on_) return;
  deed_.what = described(call, name);
  begin(context, stream);
}

Step::Step(Call& call, Context& context, CUstream stream, u32 what)
    : call_(call), on_(follows_order() && what) {
  deed_.what = what;
  if (on_) begin(context, stream);
}

void Step::begin(Context& context, CUstream handle) {
  Stream* const stream = stream_at(context, handle);
  Agent& agent = agent_of(context, stream);
  before_ = before(context, stream);
  deed_.agent = number_of(agent);
  deed_.stream = stream_number(context, handle);
  if (!stream) deed_.stream = static_cast<u64>(context.device);  // of its default stream
  deed_.time = before_.at(deed_.agent) + 1;
  after_ = before_;
  after_.set(deed_.agent, deed_.time);
  agent.clock = after_;
  context.all.join(after_);
  if (stream && !(stream->flags & CU_STREAM_NON_BLOCKING)) context.blocking.join(after_);
}

void Step::access(const AccessedRange& range) {
  if (!on_ || range.begin >= range.end) return;
  Deed deed = deed_;
  deed.pc = range.pc, deed.kind = range.kind;
  // The operation's own accesses are no reason: one in place reads what it writes.
  if (range.kind & kWrites)
    write(range, deed, after_);
  else
    read(range, deed, after_);
  const auto held = find_allocation(range.begin, 1);
  if (held && held->of_client) watch_host(*held, range, deed);
}

void Step::wait() {
  if (on_) order_host(after_);
}

void Step::wait_for_earlier() {
  if (on_) order_host(before_);
}

void Step::end() {
  if (!on_ || order().found.empty() || state().closed) return;
  const std::vector<HookUnordered> found = std::move(order().found);
  order().found.clear();
  for (const HookUnordered& one : found) {
    try {
      ask(call_, state().hooks.unordered, &one);
    } catch (const Refused&) {
      if (!call_.lock.owns_lock()) call_.lock.lock();
    }
  }
}

// ---- events, and the host ----

void order_record(Context& context, OrderClock& event, CUstream handle) {
  if (follows_order()) event = before(context, stream_at(context, handle));
}

void order_wait(Context& context, const OrderClock& event, CUstream handle) {
  if (!follows_order()) return;
  Stream* const stream = stream_at(context, handle);
  agent_of(context, stream).clock.join(event);
}

void order_across(Context& earlier, Context& later) {
  if (follows_order()) later.legacy.clock.join(earlier.all);
}

void order_host(const OrderClock& clock) {
  if (!follows_order()) return;
  order().host.join(clock);
  unwatch_host(order().host);
}

// torch's allocator of page-locked memory asks about copies from blocks that the program has given
// up: the host may use these again, which says nothing about other memory.
void order_query(const OrderClock& clock, const void* caller) {
  if (!follows_order()) return;
  if (allocator_asks(caller))
    order().allocator.join(clock);
  else if (is_of(caller, kTorchsHostAllocator))
    unwatch_host(clock);
  else
    order_host(clock);
}

bool an_allocator_asks(const void* caller) {
  return allocator_asks(caller) || is_of(caller, kTorchsHostAllocator);
}

void order_synchronise(Context& context) { order_host(context.all); }

void order_synchronise(Context& context, CUstream handle) {
  if (follows_order()) order_host(before(context, stream_at(context, handle)));
}

// ---- memory ----

void order_forget(u64 address, u64 bytes) {
  if (order().segments.empty()) return;
  unwatch_host(address);
  for_each_segment(address, address + bytes, [](auto) { return false; });
}

void order_freed(u64 address, u64 bytes) {
  if (!follows_order()) return;
  for_each_segment(address, address + bytes, [](auto at) { return at->second.freed = true; });
}

void order_free_again(u64 address, u64 bytes) {
  if (!follows_order()) return;
  const OrderClock& known = order().allocator;
  for_each_segment(address, address + bytes, [&](auto at) {
    Segment& segment = at->second;
    if (includes(known, segment.write)) segment.write = {};
    std::erase_if(segment.reads, [&](const Deed& one) { return includes(known, one); });
    return segment.write.agent || !segment.reads.empty();
  });
}

HostFunction::HostFunction(Context& of, CUstream on)
    : context(of), stream(on), on_(follows_order()) {
  if (!on_) return;
  ThreadState& thread = needed_thread_state();
  outer_ = thread.host_function;
  clock_ = before(context, stream_at(context, stream));
  thread.host_function = this;
  unwatch_host(clock_);
}

HostFunction::~HostFunction() {
  if (on_) needed_thread_state().host_function = outer_;
}

// ---- graphs ----

GraphOrder::GraphOrder(Context& context, CUstream handle, const Executable& graph)
    : graph_(graph), on_(follows_order() && !needed_thread_state().branch) {
  if (!on_) return;
  Stream* const stream = stream_at(context, handle);
  stream_ = &agent_of(context, stream);
  start_ = before(context, stream);
  done_.resize(graph.steps.size());
}

GraphOrder::~GraphOrder() {
  if (!on_) return;
  needed_thread_state().branch = nullptr;
  stream_->clock.join(start_);
  for (const Done& one : done_) stream_->clock.join(one.clock);
}

void GraphOrder::begin(std::size_t step) {
  if (!on_) return;
  branch_ = {};
  bool waits = false;
  for (u64 handle : graph_.steps[step].after) {
    const auto found = graph_.step_of.find(handle);
    if (found == graph_.step_of.end()) continue;
    Done& earlier = done_[found->second];
    branch_.clock.join(earlier.clock);
    waits = true;
    if (branch_.number || earlier.continued) continue;
    branch_.number = earlier.branch;
    earlier.continued = true;
  }
  if (!waits) branch_.clock = start_;
  if (!branch_.number && !started_) {
    branch_.number = number_of(*stream_);
  } else if (!branch_.number) {
    if (branches_ == stream_->branches.size()) stream_->branches.push_back(++order().agents);
    branch_.number = stream_->branches[branches_++];
  }
  started_ = true;
  needed_thread_state().branch = &branch_;
}

void GraphOrder::end(std::size_t step) {
  if (!on_) return;
  done_[step].clock = branch_.clock;
  done_[step].branch = branch_.number;
  needed_thread_state().branch = nullptr;
}

}  // namespace workbench::driver
