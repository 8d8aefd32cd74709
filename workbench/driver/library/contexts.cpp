// Contexts: each thread has a stack of them; all clients that retain the primary one share it.
#include <algorithm>
#include <utility>

#include "driver.hpp"

namespace workbench::driver {

u64 new_handle() {
  constexpr u64 kFirst = 0x00c0'da00'0000;  // far from any device or host address
  return kFirst + 16 * ++state().next_handle;
}

std::shared_ptr<Context> find_context(CUcontext handle) {
  const auto found = state().contexts.find(reinterpret_cast<u64>(handle));
  if (found == state().contexts.end()) {
    throw Refused{CUDA_ERROR_INVALID_CONTEXT,
                  "no such context: it was never created, or is destroyed"};
  }
  return found->second;
}

const std::shared_ptr<Context>& Call::context() {
  const auto& found = even_failed_context();
  if (found->fault) throw Refused{found->fault, found->fault_text};
  return found;
}

const std::shared_ptr<Context>& Call::even_failed_context() {
  if (context_) return context_;
  const auto& stack = context_stack();
  if (stack.empty()) {
    throw Refused{CUDA_ERROR_INVALID_CONTEXT,
                  "this thread has no current context: create, push or retain one first"};
  }
  const auto found = state().contexts.find(stack.back());
  if (found == state().contexts.end())
    throw Refused{CUDA_ERROR_CONTEXT_IS_DESTROYED, "this thread's context was destroyed"};
  return context_ = found->second;
}

namespace {

std::shared_ptr<Context> create_context(unsigned flags, CUdevice device) {
  auto context = std::make_shared<Context>();
  context->handle = new_handle(), context->flags = flags, context->device = device;
  // The defaults of a GPU.
  context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                     {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                     {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20}};
  state().contexts[context->handle] = context;
  return context;
}

// Destroys a context and everything that belongs to it.
void destroy_context(const std::shared_ptr<Context>& context) {
  State& all = state();
  forget_late(*context);
  std::vector<u64> modules;
  for (const auto& [handle, module] : all.modules)
    if (module->context == context.get()) modules.push_back(handle);
  for (u64 handle : modules) unload_module(handle);
  std::erase_if(all.streams,
                [&](const auto& item) { return item.second->context == context.get(); });
  std::erase_if(all.graphs,
                [&](const auto& item) { return item.second->context == context.get(); });
  std::erase_if(all.executables,
                [&](const auto& item) { return item.second->context == context.get(); });
  std::erase_if(all.captures,
                [&](const auto& one) { return one->graph->context == context.get(); });
  std::erase_if(all.events,
                [&](const auto& item) { return item.second->context == context.get(); });
  std::erase_if(all.conditions,
                [&](const auto& item) { return item.second.number->context == context.get(); });
  free_context_memory(context.get());
  for (const auto& [_, other] : all.contexts) other->peers.erase(context->handle);
  all.snapshots.erase(context.get());
  if (context->heap_is_used) all.unloaded.push_back(context->handle);
  all.contexts.erase(context->handle);
}

void pop_if_current(u64 handle) {
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == handle) stack.pop_back();
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  return entry([&](Call&) {
    check_device(device);
    CUcontext& handle = needed(out, "context");
    const auto context = create_context(flags, device);
    context_stack().push_back(context->handle);
    handle = reinterpret_cast<CUcontext>(context->handle);
  });
}

Primary& primary_of(CUdevice device) {
  check_device(device);
  return state().primaries[static_cast<std::size_t>(device)];
}

bool is_primary(const std::shared_ptr<Context>& context) {
  return primary_of(context->device).context == context;
}

void release(Primary& primary) {
  destroy_context(primary.context);
  primary.context.reset();
  primary.users = 0;
  primary.graph_high = primary.graph_bytes;
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}
CU_API cuCtxCreate_v3(CUcontext* out, void*, int, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}
CU_API cuCtxCreate_v4(CUcontext* out, void*, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}

CU_API cuCtxDestroy_v2(CUcontext handle) {
  return entry([&](Call&) {
    const auto context = find_context(handle);
    if (is_primary(context))
      throw Refused{CUDA_ERROR_INVALID_CONTEXT, "the primary context is released, not destroyed"};
    pop_if_current(context->handle);
    destroy_context(context);
  });
}

CU_API cuCtxAttach(CUcontext* out, unsigned) {
  return entry([&](Call& call) {
    needed(out, "context") = reinterpret_cast<CUcontext>(call.context()->handle),
                ++call.context()->users;
  });
}

CU_API cuCtxDetach(CUcontext handle) {
  return entry([&](Call&) {
    const auto context = find_context(handle);
    // PyCUDA detaches a primary context, too, when it drops it.
    if (is_primary(context)) {
      if (Primary& primary = primary_of(context->device); --primary.users == 0) release(primary);
      return;
    }
    if (--context->users > 0) return;
    pop_if_current(context->handle);
    destroy_context(context);
  });
}

CU_API cuCtxPushCurrent_v2(CUcontext handle) {
  return entry([&](Call&) { context_stack().push_back(find_context(handle)->handle); });
}

CU_API cuCtxPopCurrent_v2(CUcontext* out) {
  return entry([&](Call&) {
    auto& stack = context_stack();
    if (stack.empty())
      throw Refused{CUDA_ERROR_INVALID_CONTEXT, "this thread has no context to pop"};
    if (out) *out = reinterpret_cast<CUcontext>(stack.back());
    stack.pop_back();
  });
}

CU_API cuCtxSetCurrent(CUcontext handle) {
  return entry([&](Call&) {
    auto& stack = context_stack();
    const u64 wanted = handle ? find_context(handle)->handle : 0;
    if (!stack.empty()) stack.pop_back();
    if (wanted) stack.push_back(wanted);
  });
}

CU_API cuCtxGetCurrent(CUcontext* out) {
  return entry([&](Call&) {
    const auto& stack = context_stack();
    needed(out, "context") = reinterpret_cast<CUcontext>(stack.empty() ? 0 : stack.back());
  });
}

CU_API cuCtxGetDevice(CUdevice* device) {
  return entry([&](Call& call) { needed(device, "device") = call.even_failed_context()->device; });
}

CU_API cuCtxGetFlags(unsigned* flags) {
  return entry([&](Call& call) { needed(flags, "flags") = call.even_failed_context()->flags; });
}

CU_API cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return entry([&](Call& call) {
    if (handle)
      find_context(handle);
    else
      call.even_failed_context();
    needed(version, "version") = 3020;
  });
}

CU_API cuCtxGetId(CUcontext handle, u64* id) {
  return entry([&](Call& call) {
    needed(id, "id") = (handle ? find_context(handle) : call.even_failed_context())->handle;
  });
}

CU_API cuCtxResetPersistingL2Cache() {
  return entry([](Call& call) { call.context(); });
}

CU_API cuCtxSynchronize() {
  return entry([&](Call& call) {
    outside_captures("cuCtxSynchronize");
    const std::shared_ptr<Context> context = call.context();
    catch_up(call, *context);
    settle_all(call, *context);
    synchronise(*context);
    order_synchronise(*context);
  });
}

CU_API cuCtxGetLimit(std::size_t* value, int limit) {
  return entry([&](Call& call) {
    const auto found = call.context()->limits.find(limit);
    if (found == call.context()->limits.end())
      throw Refused{CUDA_ERROR_UNSUPPORTED_LIMIT, "limit " + std::to_string(limit)};
    needed(value, "value") = found->second;
  });
}

CU_API cuCtxSetLimit(int limit, std::size_t value) {
  return entry([&](Call& call) {
    const auto found = call.context()->limits.find(limit);
    if (found == call.context()->limits.end())
      throw Refused{CUDA_ERROR_UNSUPPORTED_LIMIT, "limit " + std::to_string(limit)};
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) {
      if (call.context()->heap_is_used)
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "a kernel has used the device heap already: set its size before"};
      if (value > state().device.memory_bytes)
        throw Refused{CUDA_ERROR_OUT_OF_MEMORY, "more than the device's memory"};
    }
    found->second = value;
  });
}

// The preferences below are stored and have no effect: the machine has no cache to divide.
CU_API cuCtxGetCacheConfig(int* config) {
  return entry([&](Call& call) { needed(config, "config") = call.context()->cache_config; });
}

CU_API cuCtxSetCacheConfig(int config) {
  return entry([&](Call& call) { call.context()->cache_config = config; });
}

CU_API cuCtxGetSharedMemConfig(int* config) {
  return entry([&](Call& call) { needed(config, "config") = call.context()->shared_config; });
}

CU_API cuCtxSetSharedMemConfig(int config) {
  return entry([&](Call& call) { call.context()->shared_config = config; });
}

CU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return entry([&](Call&) {
    Primary& primary = primary_of(device);
    CUcontext& handle = needed(out, "context");
    if (!primary.context) primary.context = create_context(primary.flags, device);
    ++primary.users;
    handle = reinterpret_cast<CUcontext>(primary.context->handle);
  });
}

CU_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return entry([&](Call&) {
    Primary& primary = primary_of(device);
    if (!primary.context)
      throw Refused{CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained"};
    if (--primary.users == 0) release(primary);
  });
}

CU_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return entry([&](Call&) {
    if (Primary& primary = primary_of(device); primary.context) release(primary);
  });
}

CU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return entry([&](Call&) {
    const Primary& primary = primary_of(device);
    needed(flags, "flags") = primary.flags, needed(active, "active") = primary.context != nullptr;
  });
}

CU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return entry([&](Call&) { primary_of(device).flags = flags; });
}

// Beyond cuda.h, for the runtime: whether an earlier kernel failed in the calling thread's context.
extern "C" __attribute__((visibility("default"))) int workbench_driver_has_fault() {
  return answer_or(0, [] {
    const std::vector<u64>& stack = context_stack();
    const auto found = stack.empty() ? state().contexts.end() : state().contexts.find(stack.back());
    return found != state().contexts.end() && found->second->fault ? 1 : 0;
  });
}

// Beyond cuda.h, for the runtime: the error that a GPU would have reported for this thread's latest
// launches, which checks let go on. Each error is returned once.
CU_API workbench_driver_take_found() {
  ThreadState* const thread = thread_state();
  return thread ? std::exchange(thread->found, CUDA_SUCCESS) : CUDA_SUCCESS;
}

// Beyond cuda.h, for the runtime: the fault of an earlier kernel in the calling thread's context.
CU_API workbench_driver_fault() {
  return entry([](Call& call) { call.context(); });
}

// ---- CUDA 13: calls for a context that need not be current ----

namespace {

const std::shared_ptr<Context>& context_or_current(Call& call, CUcontext handle,
                                                   std::shared_ptr<Context>& found) {
  if (!handle) return call.context();
  found = find_context(handle);
  if (found->fault) throw Refused{found->fault, found->fault_text};
  return found;
}

}  // namespace

CU_API cuCtxSynchronize_v2(CUcontext handle) {
  return entry([&](Call& call) {
    std::shared_ptr<Context> found;
    outside_captures("cuCtxSynchronize");
    const std::shared_ptr<Context> context = context_or_current(call, handle, found);
    catch_up(call, *context);
    settle_all(call, *context);
    synchronise(*context);
    order_synchronise(*context);
  });
}

CU_API cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  return entry([&](Call& call) {
    needed(device, "device") =
        handle ? find_context(handle)->device : call.even_failed_context()->device;
  });
}
