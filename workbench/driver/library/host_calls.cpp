// Calls of libraries that compute on the host: see host_calls.hpp.
#include "host_calls.hpp"

#include <dlfcn.h>

#include "pending.hpp"
#include "recording.hpp"

#define HOST_API extern "C" __attribute__((visibility("default")))

using namespace workbench::driver;

struct HostFrame {
  const Context* context;
  std::vector<std::shared_ptr<Allocation>> held = {};
  CUresult result = CUDA_SUCCESS;
  std::string why = {};
  u64 address = 0;
  std::vector<AccessedRange> accesses = {};
  std::shared_ptr<Pending> later = nullptr;
};

namespace {

struct HostCall {
  std::string name, shape;
  HostBody body;
  std::shared_ptr<void> data;
};

// The bytes from a range's begin to its end; a range that wraps around exceeds any allocation.
u64 extent(const HostRange& range) {
  if (!range.rows || !range.row_bytes) return 0;
  u64 before_last = 0;
  u64 bytes = 0;
  if (__builtin_mul_overflow(range.rows - 1, range.stride, &before_last) ||
      __builtin_add_overflow(before_last, range.row_bytes, &bytes))
    return ~u64{0};
  return bytes;
}

std::string described(const HostRange& range, u64 bytes) {
  const char* does = !range.writes ? "reads" : range.reads ? "reads and writes" : "writes";
  const auto begin = find_allocation(range.address, 1);
  std::string text = std::string("out-of-bounds: ") + does + " " + std::to_string(bytes) +
                     " bytes of " + range.argument;
  if (!begin) return text + ": " + describe_address(range.address, bytes);
  const u64 offset = range.address - begin->address;
  const u64 room = begin->size - offset;
  text += offset ? " from byte " + std::to_string(offset) + " of" : " in";
  return text + " an allocation of " + std::to_string(begin->size) +
         " bytes: " + std::to_string(bytes - room) + " bytes past its end";
}

// Reports unwritten bytes that the call reads, and marks the bytes that it writes.
void follow(HostFrame& frame, const HostRange& range, Allocation& held) {
  const u64 begin = range.address - held.address;
  for (u64 row = 0; row < range.rows; ++row) {
    const u64 at = begin + row * range.stride;
    const u64 unwritten = range.reads ? first_unwritten(held, at, range.row_bytes) : kNone;
    if (unwritten != kNone && frame.why.empty()) {
      frame.why = std::string("uninitialised global read: byte ") +
                  std::to_string(unwritten - begin) + " of " + range.argument +
                  ", which nobody wrote";
      frame.address = held.address + unwritten;
    }
    if (range.writes) mark_written(held, at, range.row_bytes);
    if (follows_order())
      frame.accesses.push_back({held.address + at, held.address + at + range.row_bytes, -1,
                                range.writes ? kWrites : kReads});
  }
}

// Runs a call. As after a launch, a fault shows at the next call of the context.
void run(Call& call, const HostCall& what, CUstream stream) {
  const std::shared_ptr<Context> context = call.context();
  settle(call, *context, stream);
  advance(*context, stream, state().device.operation_seconds);
  log(Logged::beyond, {}, what.name.data(), what.name.size());
  HostFrame frame{context.get()};
  Step step(call, *context, stream, what.name.c_str());
  call.lock.unlock();
  what.body(what.data.get(), &frame);
  call.lock.lock();
  const HookCall told{what.name.c_str(), what.shape.c_str(), static_cast<u32>(frame.result),
                      frame.why.c_str(), frame.address};
  for (const AccessedRange& range : frame.accesses) step.access(range);
  step.end();
  if (frame.later && !frame.result) {
    hold(*frame.later, std::move(frame.held));
    add_pending(*context, stream, frame.later);
  }
  ask(call, hooks().host_call, &told);
  if (frame.result == CUDA_ERROR_ILLEGAL_ADDRESS) {
    context->fault = frame.result;
    context->fault_text = what.name + ": " + frame.why;
  } else if (frame.result) {
    throw Refused{frame.result, what.name + ": " + frame.why};
  }
  if (!frame.result)
    tell_activity(*context, stream, what.name.c_str(), state().device.operation_seconds);
}

}  // namespace

HOST_API CUresult workbench_driver_host_call(CUstream stream, const char* name, const char* shape,
                                             HostBody body, void* data, void (*release)(void*)) {
  std::unique_ptr<void, void (*)(void*)> until_taken{data, release};
  return entry([&](Call& call) {
    check_stream(*call.context(), stream);
    auto what = std::make_shared<HostCall>(HostCall{name, shape, body, nullptr});
    what->data = std::shared_ptr<void>(std::move(until_taken));
    const Operation operation = [what](Call& made, CUstream on) { run(made, *what, on); };
    if (!captured(call, stream, CU_GRAPH_NODE_TYPE_HOST, {operation}) &&
        !put_off(call, stream, operation))
      operation(call, stream);
  });
}

HOST_API void* workbench_driver_host_range(HostFrame* frame, const HostRange* range) {
  try {
    std::lock_guard lock(state().mutex);
    const u64 bytes = extent(*range);
    const auto found = bytes ? find_allocation(range->address, bytes) : nullptr;
    if (found && may_access(*frame->context, *found)) {
      frame->held.push_back(found);
      follow(*frame, *range, *found);
      return found->host + (range->address - found->address);
    }
    if (frame->result) return nullptr;
    frame->result = CUDA_ERROR_ILLEGAL_ADDRESS;
    frame->address = range->address;
    frame->why = found ? std::string("out-of-bounds: ") + range->argument + " is " +
                             describe_foreign(*frame->context, *found)
                       : described(*range, bytes);
  } catch (const std::bad_alloc&) {
    frame->result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return nullptr;
}

HOST_API void workbench_driver_host_later(HostFrame* frame, HostEnd end, void* data,
                                          void (*release)(void*)) {
  frame->later = make_pending(end, {data, release});
}

HOST_API void workbench_driver_host_fail(HostFrame* frame, CUresult result, const char* why) {
  if (frame->result) return;
  frame->result = result;
  try {
    frame->why = why;
  } catch (const std::bad_alloc&) {
    // Without memory for the message only the code is returned.
  }
}

HOST_API int workbench_driver_on_device_alone(u64 address) {
  return answer_or(0, [&] {
    const auto found = find_allocation(address, 1);
    return found && !found->on_host() ? 1 : 0;
  });
}

HOST_API void workbench_driver_caller(char* text, u64 size) {
  CUresult answer = kInterrupted;
  char why[kWhySize] = "";
  text[0] = 0;
  if (!state().closed) state().hooks.place(text, size, &answer, why, sizeof why);
}

// Signals are looked for by Python's own function: a hook in Python would print the exception.
HOST_API int workbench_driver_interrupted() {
  const auto function = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
  static const auto enter = reinterpret_cast<int (*)()>(function("PyGILState_Ensure"));
  static const auto leave = reinterpret_cast<void (*)(int)>(function("PyGILState_Release"));
  static const auto check = reinterpret_cast<int (*)()>(function("PyErr_CheckSignals"));
  static const auto clear = reinterpret_cast<void (*)()>(function("PyErr_Clear"));
  if (state().closed || !enter || !leave || !check || !clear) return 0;
  const int held = enter();
  const bool interrupted = check() != 0;
  if (interrupted) clear();
  leave(held);
  if (interrupted) state().hooks.interrupt();
  return interrupted;
}

HOST_API const char* workbench_driver_host_blas() { return state().host_blas.c_str(); }

HOST_API void workbench_driver_remember(CUresult result, const char* why) { remember(result, why); }
