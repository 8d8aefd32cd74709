// Operations that are put off (late.hpp).
#include "late.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <random>
#include <thread>

#include "driver.hpp"

namespace workbench::driver {

struct LateItem {
  u64 number;
  Operation run;
  std::vector<LatePlace> after;
};

struct LateQueue {
  Context* context;
  u64 stream;  // 0: the default stream
  bool blocking;
  std::deque<LateItem> items = {};
};

namespace {

constexpr u64 kLegacyStream = 1;  // the handle of the default stream that threads share

struct Late {
  std::atomic<bool> on = false;
  std::optional<std::mt19937_64> chooses;  // what to run in between
  u64 numbers = 0;
  std::map<std::pair<const Context*, u64>, std::shared_ptr<LateQueue>> queues;
  // One thread at a time runs what was put off.
  bool busy = false;
  std::thread::id runner;
  std::condition_variable ended;
};

Late& late() {
  static auto* const one = new Late;  // never destroyed: calls may come until the very end
  return *one;
}

bool runs_here() { return late().busy && late().runner == std::this_thread::get_id(); }

// Lets other threads have the interpreter, if this one has it.
class WithoutPython {
 public:
  WithoutPython() {
    static const auto held = of_python<int (*)()>("PyGILState_Check");
    static const auto release = of_python<void* (*)()>("PyEval_SaveThread");
    if (held && release && held()) thread_ = release();
  }
  ~WithoutPython() {
    static const auto take = of_python<void (*)(void*)>("PyEval_RestoreThread");
    if (thread_) take(thread_);
  }
  WithoutPython(const WithoutPython&) = delete;

 private:
  template <class Function>
  static Function of_python(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  }
  void* thread_ = nullptr;
};

// The turn of a thread to run what was put off.
class Turn {
 public:
  explicit Turn(Call& call) : call_(call) {
    Late& all = late();
    if (!all.busy) {
      begin();
      return;
    }
    call.lock.unlock();
    {
      const WithoutPython meanwhile;
      call.lock.lock();
      all.ended.wait(call.lock, [&] { return !all.busy; });
      begin();
      call.lock.unlock();
    }
    call.lock.lock();
  }
  ~Turn() {
    if (!call_.lock.owns_lock()) call_.lock.lock();
    late().busy = false;
    late().ended.notify_all();
  }
  Turn(const Turn&) = delete;

 private:
  void begin() {
    late().busy = true;
    late().runner = std::this_thread::get_id();
  }
  Call& call_;
};

std::shared_ptr<LateQueue> queue_of(Context& context, CUstream handle) {
  const u64 number = stream_number(context, handle);
  auto& found = late().queues[{&context, number}];
  if (found) return found;
  const auto& streams = state().streams;
  const auto stream = streams.find(number);
  const bool blocking =
      stream == streams.end() || !(stream->second->flags & CU_STREAM_NON_BLOCKING);
  return found = std::make_shared<LateQueue>(LateQueue{&context, number, blocking});
}

// The context of a stream, also one that has failed.
std::shared_ptr<Context> even_failed_context_of(Call& call, CUstream handle) {
  const auto found = state().streams.find(reinterpret_cast<u64>(handle));
  if (found == state().streams.end()) return call.even_failed_context();
  return find_context(reinterpret_cast<CUcontext>(found->second->context->handle));
}

LatePlace end_of(const std::shared_ptr<LateQueue>& queue) {
  return {queue, queue->items.empty() ? 0 : queue->items.back().number};
}

// The places in other queues that an operation given to this one comes after.
std::vector<LatePlace> waited_for(const LateQueue& queue) {
  std::vector<LatePlace> found;
  for (const auto& [key, other] : late().queues) {
    const bool waits = queue.stream ? queue.blocking && !other->stream : other->blocking;
    if (waits && other->context == queue.context && other.get() != &queue && !other->items.empty())
      found.push_back(end_of(other));
  }
  return found;
}

void add(Call& call, CUstream stream, const Operation& run, std::vector<LatePlace> after) {
  const auto queue = queue_of(*context_of(call, stream), stream);
  for (LatePlace& one : waited_for(*queue)) after.push_back(std::move(one));
  queue->items.push_back({++late().numbers, run, std::move(after)});
}

void run(std::unique_lock<std::mutex>& lock, Context& context, CUstream stream,
         const Operation& operation) {
  if (context.fault) return;
  const u64 handle = context.handle;
  context_stack().push_back(handle);
  try {
    Call call(lock);
    settle(call, context, stream);  // collectives that are before it
    operation(call, stream);
  } catch (const Refused& refused) {
    // The call that enqueued it has returned, so a later one reports the failure.
    if (!lock.owns_lock()) lock.lock();
    if (!context.fault) {
      context.fault = refused.code;
      context.fault_text = refused.why;
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    context_stack().pop_back();
    throw;
  }
  if (!lock.owns_lock()) lock.lock();
  context_stack().pop_back();
}

void run_until(Call& call, const LatePlace& place);

void run_first(Call& call, LateQueue& queue) {
  const std::vector<LatePlace> after = queue.items.front().after;
  for (const LatePlace& one : after) run_until(call, one);
  const LateItem item = std::move(queue.items.front());
  queue.items.pop_front();
  // Null could be this thread's own stream.
  const u64 stream = queue.stream ? queue.stream : kLegacyStream;
  run(call.lock, *queue.context, reinterpret_cast<CUstream>(stream), item.run);
}

void run_until(Call& call, const LatePlace& place) {
  while (is_pending(place)) run_first(call, *place.queue);
}

std::vector<std::shared_ptr<LateQueue>> pending(const Context& context) {
  std::vector<std::shared_ptr<LateQueue>> found;
  for (const auto& [key, queue] : late().queues)
    if (queue->context == &context && !queue->items.empty()) found.push_back(queue);
  return found;
}

// Runs the operation that was enqueued last of those that may be next; with a seed, any of them.
void run_some(Call& call, const std::vector<std::shared_ptr<LateQueue>>& queues) {
  const auto first = [](const auto& queue) { return queue->items.front().number; };
  auto chosen = std::ranges::max_element(queues, {}, first);
  if (auto& chooses = late().chooses)
    chosen = queues.begin() + static_cast<std::ptrdiff_t>((*chooses)() % queues.size());
  run_first(call, **chosen);
}

void refuse_fault(const Context& context) {
  if (context.fault) throw Refused{context.fault, context.fault_text};
}

}  // namespace

bool late_is_on() { return late().on; }

bool is_late() { return late().on && !runs_here(); }

bool put_off(Call& call, CUstream stream, const Operation& operation) {
  if (!is_late()) return false;
  add(call, stream, operation, {});
  if (!late().chooses) return true;
  const Turn turn(call);
  const std::shared_ptr<Context> context = context_of(call, stream);
  for (auto queues = pending(*context); !queues.empty() && (*late().chooses)() % 2;
       queues = pending(*context))
    run_some(call, queues);
  return true;
}

LatePlace late_place(const Context& context, CUstream stream) {
  return end_of(queue_of(const_cast<Context&>(context), stream));
}

void follow_late(Call& call, CUstream stream, const LatePlace& place) {
  if (is_late() && is_pending(place)) add(call, stream, [](Call&, CUstream) {}, {place});
}

bool is_pending(const LatePlace& place) {
  return place.queue && !place.queue->items.empty() &&
         place.queue->items.front().number <= place.number;
}

void catch_up(Call& call, LatePlace place) {
  if (!is_late() || !place.queue) return;
  {
    const Turn turn(call);
    run_until(call, place);
  }
  refuse_fault(*place.queue->context);
}

void catch_up(Call& call, CUstream stream) {
  if (!is_late()) return;
  const std::shared_ptr<Context> context = even_failed_context_of(call, stream);
  const auto queue = queue_of(*context, stream);
  {
    const Turn turn(call);
    for (const LatePlace& one : waited_for(*queue)) run_until(call, one);
    run_until(call, end_of(queue));
  }
  refuse_fault(*context);
}

void catch_up(Call& call, Context& context) {
  run_late(call, context);
  if (is_late()) refuse_fault(context);
}

void run_late(Call& call, Context& context) {
  if (!is_late()) return;
  const Turn turn(call);
  for (auto queues = pending(context); !queues.empty(); queues = pending(context))
    run_some(call, queues);
}

void forget_late(const Context& context) {
  for (const auto& queue : pending(context)) queue->items.clear();
  std::erase_if(late().queues, [&](const auto& item) { return item.first.first == &context; });
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Called for workbench.driver: operations run late from here on; with a seed other than 0, some of
// them earlier.
extern "C" __attribute__((visibility("default"))) void workbench_driver_run_late(u64 seed) {
  answer_or(0, [&] {
    late().on = true;
    late().chooses.reset();
    if (seed) late().chooses.emplace(seed);
    return 0;
  });
}

// Whether an operator should be put off; otherwise it runs now.
extern "C" __attribute__((visibility("default"))) int workbench_driver_is_late() {
  return late_is_on() ? answer_or(0, [] { return is_late() ? 1 : 0; }) : 0;
}
