// Modules, functions and launches. PTX is parsed and kernels run behind the hooks, in Python. The
// lock is never held there, because the thread that waits for it may hold the interpreter.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "recording.hpp"

namespace workbench::driver {

const Hooks& hooks() {
  if (state().closed)
    throw Refused{CUDA_ERROR_DEINITIALIZED, "the Python interpreter is shutting down"};
  return state().hooks;
}

namespace {

constexpr u32 kDefaultShared = 48 * 1024;  // more dynamic shared memory needs an opt-in

int attribute(int which) { return state().attributes.at(which); }

u64 load(Call& call, const char* image) {
  outside_captures("loading a module");
  std::string unpacked;
  if (unpack_fat_binary(image, unpacked)) image = unpacked.c_str();
  if (image && is_machine_code(image) && unpack_machine_code(image, unpacked))
    image = unpacked.c_str();
  check_image(image);
  auto module = std::make_shared<Module>(Module{new_handle(), call.context().get()});
  const std::shared_ptr<Context> context = call.context();
  const Hooks& to = hooks();
  state().modules[module->handle] = module;
  const std::vector<u64> gone = std::move(state().unloaded);
  state().unloaded.clear();
  call.lock.unlock();
  for (u64 handle : gone) to.unload(handle);
  call.lock.lock();
  log(Logged::module, {module->handle}, image, std::strlen(image));
  try {
    ask(call, to.load, module->handle, image);
  } catch (...) {
    if (!call.lock.owns_lock()) call.lock.lock();
    unload_module(module->handle);
    throw;
  }
  return module->handle;
}

Module& own_module(Call& call, CUmodule handle) {
  Module& module = *find_handle(state().modules, handle, "module");
  if (module.context != call.context().get())
    throw Refused{CUDA_ERROR_INVALID_HANDLE, "the module belongs to another context"};
  return module;
}

Function& own_function(Call& call, CUfunction handle) {
  Function& function = *find_handle(state().functions, handle, "function");
  own_module(call, reinterpret_cast<CUmodule>(function.module));
  return function;
}

// Refuses a buffer that is too small. NVIDIA's driver accepts it, and the kernel reads the memory
// behind it.
void check_buffer(const Function& function, std::size_t size) {
  const std::size_t wanted = function.facts.buffer_bytes, most = (wanted + 7) / 8 * 8;
  if (size >= wanted && size <= most) return;
  throw Refused{
      size < wanted ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
      function.name + " takes " + std::to_string(wanted) +
          " bytes of parameters, at the offsets of cuFuncGetParamInfo; the launch brings " +
          std::to_string(size)};
}

// Packs the parameters of a launch, from a list of pointers or from a buffer that the client
// packed.
std::vector<u8> packed(const Function& function, void** pointers, void** extra) {
  std::vector<u8> bytes(function.facts.parameter_bytes);
  if (!extra) {
    for (std::size_t i = 0; i < function.offsets.size(); ++i) {
      void** at = &needed(pointers, "the list of parameters") + i;
      std::memcpy(bytes.data() + function.offsets[i],
                  &needed(static_cast<const u8*>(*at), "a parameter"), function.sizes[i]);
    }
    return bytes;
  }
  const u8* from = nullptr;
  std::size_t size = 0;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
      from = static_cast<const u8*>(at[1]);
    else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = needed(static_cast<std::size_t*>(at[1]), "the size of the parameters");
    else
      throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown entry in the launch's extra list"};
  }
  check_buffer(function, size);
  for (std::size_t i = 0; i < function.offsets.size(); ++i) {
    std::memcpy(bytes.data() + function.offsets[i],
                &needed(from, "the parameter buffer") + function.buffer_offsets[i],
                function.sizes[i]);
  }
  return bytes;
}

void check_dimension(const Function& function, const char* what, int axis, u32 given, int most) {
  if (given >= 1 && given <= static_cast<u32>(most)) return;
  throw Refused{CUDA_ERROR_INVALID_VALUE, function.name + ": " + what + " dimension " +
                                              "xyz"[axis] + " is " + std::to_string(given) +
                                              ", allowed are 1 to " + std::to_string(most)};
}

// Returns the number of threads.
u64 check_block(const Function& function, const u32* block) {
  u64 threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    check_dimension(function, "block", axis, block[axis],
                    attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis));
    threads *= block[axis];
  }
  const u64 most = static_cast<u64>(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (threads > most) {
    throw Refused{CUDA_ERROR_INVALID_VALUE, function.name + ": " + std::to_string(threads) +
                                                " threads per block, at most " +
                                                std::to_string(most)};
  }
  return threads;
}

// Refuses a launch that a GPU of this model would refuse.
void check_shape(const Function& function, const HookLaunch& launch) {
  const auto refuse = [&](CUresult code, const std::string& what) {
    throw Refused{code, function.name + ": " + what};
  };
  const u64 threads = check_block(function, launch.block);
  for (int axis = 0; axis < 3; ++axis)
    check_dimension(function, "grid", axis, launch.grid[axis],
                    attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis));
  const HookFunction& facts = function.facts;
  if (facts.required_threads && threads != facts.required_threads) {
    refuse(CUDA_ERROR_INVALID_VALUE,
           "compiled for blocks of exactly " + std::to_string(facts.required_threads) + " threads");
  }
  if (facts.max_threads && threads > facts.max_threads) {
    refuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
           std::to_string(threads) + " threads per block, its __launch_bounds__ allow " +
               std::to_string(facts.max_threads));
  }
  // A warp's registers are allocated in units of 256.
  const u64 registers = (threads + 31) / 32 * ((u64{facts.registers} * 32 + 255) / 256 * 256);
  if (registers > static_cast<u64>(attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK))) {
    refuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, std::to_string(threads) + " threads of " +
                                                   std::to_string(facts.registers) +
                                                   " registers do not fit");
  }
  if (launch.dynamic_shared > function.most_dynamic_shared) {
    refuse(CUDA_ERROR_INVALID_VALUE,
           std::to_string(launch.dynamic_shared) + " bytes of dynamic shared memory, allowed are " +
               std::to_string(function.most_dynamic_shared) +
               "; more must be asked for with MAX_DYNAMIC_SHARED_SIZE_BYTES");
  }
}

// Runs a validated launch on a stream.
void run(Call& call, const KernelNode& node, CUstream stream) {
  const std::shared_ptr<Function>& function = node.function;
  HookLaunch launch = node.launch;
  const std::shared_ptr<Context> context = call.context();
  settle(call, *context, stream);
  const std::shared_ptr<Snapshot> memory = snapshot(context.get());
  const Hooks& to = hooks();
  launch.module = function->module, launch.name = function->name.c_str(),
  launch.timed = is_timed(*context);
  launch.context = context->handle;
  launch.heap_bytes = context->limits.at(CU_LIMIT_MALLOC_HEAP_SIZE);
  launch.parameters = node.bytes.data(), launch.parameter_bytes = node.bytes.size();
  launch.buffers = memory->rows.data(), launch.buffer_count = memory->rows.size(),
  launch.generation = memory->generation;
  const std::vector<u64> frames = native_frames(call);
  launch.frames = frames.data(), launch.frame_count = static_cast<u32>(frames.size());
  log_launch(node);
  char why[kWhySize] = "";
  CUresult result = kInterrupted;
  call.lock.unlock();
  to.launch(&launch, &result, why, sizeof why);
  call.lock.lock();
  if (launch.heap_is_used) context->heap_is_used = true;
  if (launch.found) needed_thread_state().found = static_cast<CUresult>(launch.found);
  const std::vector<u64> accesses(launch.accesses, launch.accesses + 3 * launch.access_count);
  if (result == kInterrupted) {
    to.interrupt();
    throw Interrupted{};
  }
  if (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result != CUDA_ERROR_NOT_SUPPORTED &&
      result != CUDA_ERROR_UNKNOWN) {
    // On a GPU the launch has already returned when the kernel fails, so the next call reports the
    // fault, and so does every later one.
    context->fault = result, context->fault_text = why;
    return;
  }
  if (result) throw Refused{result, why};
  if (find_handle(state().contexts, reinterpret_cast<void*>(context->handle), "context") != context)
    return;
  Step step(call, *context, stream, static_cast<u32>(launch.deed));
  for (std::size_t i = 0; i < accesses.size(); i += 3)
    step.access({accesses[i], accesses[i + 1], static_cast<int>(accesses[i + 2] >> 8),
                 static_cast<u8>(accesses[i + 2])});
  step.end();
  advance(*context, stream, launch.seconds);
  tell_activity(*context, stream, launch.name, launch.seconds, &launch, &function->facts);
}

// Refuses a cooperative launch whose blocks, which wait for each other, do not all fit on the
// device at once.
void check_all_fit(Call& call, const Function& function, const HookLaunch& launch) {
  const u64 threads = u64{launch.block[0]} * launch.block[1] * launch.block[2];
  const u64 blocks = u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const u64 fit = u64{blocks_per_multiprocessor(call, function, threads, launch.dynamic_shared)} *
                  static_cast<u64>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  if (blocks > fit) {
    throw Refused{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                  function.name + ": " + std::to_string(blocks) + " blocks, of which " +
                      std::to_string(fit) + " fit on the device at once"};
  }
}

// A kernel of a tile language is launched on a grid of tiles, in blocks of one thread. This
// converts to the threads, and the blocks for each tile, that its compiler chose.
HookLaunch in_threads(const HookFunction& facts, HookLaunch launch) {
  const auto is_one = [](u32 length) { return length == 1; };
  if (!facts.tile[0] || !std::all_of(launch.block, launch.block + 3, is_one)) return launch;
  launch.block[0] = facts.required_threads;
  for (int axis = 0; axis < 3; ++axis) launch.grid[axis] *= facts.tile[axis];
  return launch;
}

std::shared_ptr<KernelNode> node_of(Call& call, CUfunction handle, const HookLaunch& given,
                                    void** pointers, void** extra) {
  own_function(call, handle);
  const auto function = find_handle(state().functions, handle, "function");
  const HookLaunch launch = in_threads(function->facts, given);
  check_shape(*function, launch);
  auto made = std::make_shared<KernelNode>(
      KernelNode{function, handle, launch, packed(*function, pointers, extra), {}});
  for (const u32 offset : function->offsets) made->pointers.push_back(made->bytes.data() + offset);
  return made;
}

HookLaunch shape(const u32 (&grid)[3], const u32 (&block)[3], u32 dynamic_shared,
                 bool cooperative = false) {
  HookLaunch launch{};
  std::copy_n(grid, 3, launch.grid), std::copy_n(block, 3, launch.block);
  launch.dynamic_shared = dynamic_shared, launch.cooperative = cooperative;
  return launch;
}

CUresult launch_kernel(CUfunction function, const HookLaunch& launch, CUstream stream,
                       void** pointers, void** extra) {
  const CUresult result = entry([&](Call& call) {
    check_stream(*call.context(), stream);
    const auto node = node_of(call, function, launch, pointers, extra);
    if (launch.cooperative) check_all_fit(call, *node->function, launch);
    if (capture_of(*call.context(), stream))
      captured(call, stream, CU_GRAPH_NODE_TYPE_KERNEL, kernel_work(node));
    else if (!put_off(call, stream, kernel_work(node).run))
      run(call, *node, stream);
  });
  const u32(&grid)[3] = launch.grid, (&block)[3] = launch.block;
  return told_of_refusal(function,
                         {grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          launch.dynamic_shared, stream, nullptr, 0},
                         result);
}

u32 room_for_dynamic(const HookFunction& facts, int which) {
  const u32 all = static_cast<u32>(attribute(which));
  return all > facts.static_shared ? all - facts.static_shared : 0;
}

}  // namespace

NodeWork kernel_work(std::shared_ptr<const KernelNode> node) {
  const Operation all = [node](Call& inner, CUstream stream) {
    if (!state().modules.contains(node->function->module))
      throw Refused{CUDA_ERROR_INVALID_HANDLE, node->function->name + ": its module was unloaded"};
    if (node->launch.cooperative) check_all_fit(inner, *node->function, node->launch);
    run(inner, *node, stream);
  };
  return {all, std::move(node)};
}

NodeWork kernel_work(Call& call, const CUDA_KERNEL_NODE_PARAMS& p) {
  const HookLaunch launch = shape({p.gridDimX, p.gridDimY, p.gridDimZ},
                                  {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes);
  return kernel_work(node_of(call, p.func, launch, p.kernelParams, p.extra));
}

void check_image(const char* image) {
  if (!image) throw Refused{CUDA_ERROR_INVALID_VALUE, "the image is a null pointer"};
  constexpr const char* remedy =
      ": the simulated driver runs PTX. Compile with -ptx (nvcc), or with -lineinfo, which keeps "
      "the "
      "PTX inside, or let SourceModule use the nvcc that comes with workbench";
  if (is_machine_code(image))
    throw Refused{CUDA_ERROR_NO_BINARY_FOR_GPU,
                  std::string("this is machine code (a cubin)") + remedy};
}

void unload_module(u64 handle) {
  State& all = state();
  all.modules.erase(handle);
  std::erase_if(all.functions, [&](const auto& item) { return item.second->module == handle; });
  std::vector<u64> variables;
  for (const auto& [address, allocation] : all.allocations)
    if (allocation->module == handle) variables.push_back(address);
  for (u64 address : variables) drop_allocation(address);
  // The hook is called later: a client unloads in destructors, which may run while a Python
  // exception propagates.
  all.unloaded.push_back(handle);
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Called by the load hook: reserves addresses for a module's variables, then adds each of them.
// Both return 0 on failure.
extern "C" __attribute__((visibility("default"))) u64 workbench_driver_reserve(u64 bytes) {
  return answer_or(u64{0}, [&] {
    const u64 address = reserve_addresses(bytes);
    log(Logged::reserved, {address});
    return address;
  });
}

extern "C" __attribute__((visibility("default"))) int workbench_driver_variable(u64 module,
                                                                                u64 address,
                                                                                u64 size,
                                                                                void* host) {
  return answer_or(0, [&] {
    const auto found = state().modules.find(module);
    if (found == state().modules.end()) return 1;
    auto made = std::make_shared<Allocation>();
    made->address = address, made->size = size, made->host = static_cast<u8*>(host);
    made->where = Where::variable, made->flags = 0, made->context = found->second->context,
    made->module = module;
    add_allocation(made);
    return 1;
  });
}

CU_API cuModuleLoadData(CUmodule* out, const void* image) {
  return entry([&](Call& call) {
    CUmodule& module = needed(out, "module");
    module = reinterpret_cast<CUmodule>(load(call, static_cast<const char*>(image)));
  });
}

CU_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, int* options,
                          void** values) {
  const Logs logs(count, options, values);
  return logs.written(cuModuleLoadData(out, image));
}

CU_API cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return cuModuleLoadData(out, image);
}

CU_API cuModuleLoad(CUmodule* out, const char* path) {
  std::string text;
  const CUresult result = entry([&](Call&) {
    std::ifstream file(&needed(path, "path"), std::ios::binary);
    if (!file) throw Refused{CUDA_ERROR_FILE_NOT_FOUND, path};
    std::ostringstream all;
    all << file.rdbuf(), text = all.str();
    text.resize(text.size() + 64);  // check_image reads an image's first bytes
  });
  return result ? result : cuModuleLoadData(out, text.data());
}

CU_API cuModuleUnload(CUmodule handle) {
  return entry([&](Call& call) {
    const auto module = find_handle(state().modules, handle, "module");
    catch_up(call, *module->context);
    unload_module(reinterpret_cast<u64>(handle));
  });
}

CU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return entry([&](Call& call) {
    CUfunction& function = needed(out, "function");
    const std::string wanted = &needed(name, "name");
    const Module module = own_module(call, handle);
    const Hooks& to = hooks();
    for (const auto& [known, one] : state().functions) {
      if (one->module == module.handle && one->name == wanted) {
        function = reinterpret_cast<CUfunction>(known);
        return;
      }
    }
    HookFunction facts{};
    ask(call, to.function, module.handle, wanted.c_str(), &facts);
    auto made = std::make_shared<Function>(Function{module.handle, wanted, {}, {}, {}, facts, 0});
    made->offsets.assign(facts.parameter_offsets, facts.parameter_offsets + facts.parameter_count);
    made->sizes.assign(facts.parameter_sizes, facts.parameter_sizes + facts.parameter_count);
    made->buffer_offsets.assign(facts.buffer_offsets, facts.buffer_offsets + facts.parameter_count);
    made->facts.parameter_offsets = made->facts.parameter_sizes = nullptr;
    made->facts.buffer_offsets = nullptr;
    made->most_dynamic_shared = std::min(
        kDefaultShared, room_for_dynamic(facts, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
    const u64 number = new_handle();
    state().functions[number] = std::move(made);
    function = reinterpret_cast<CUfunction>(number);
  });
}

CU_API cuModuleGetGlobal_v2(CUdeviceptr* out, std::size_t* bytes, CUmodule handle,
                            const char* name) {
  return entry([&](Call& call) {
    const Module module = own_module(call, handle);
    const std::string wanted = &needed(name, "name");
    u64 address = 0;
    ask(call, hooks().variable, module.handle, wanted.c_str(), &address);
    const auto found = need_allocation(address, 0);
    if (out) *out = address;
    if (bytes) *bytes = found->size;
  });
}

CU_API cuFuncGetAttribute(int* value, int which, CUfunction handle) {
  return entry([&](Call& call) {
    const Function& function = own_function(call, handle);
    const HookFunction& facts = function.facts;
    int& out = needed(value, "value");
    const auto most = static_cast<u32>(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    switch (which) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        out = static_cast<int>(facts.max_threads ? std::min(facts.max_threads, most) : most);
        break;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: out = static_cast<int>(facts.static_shared); break;
      case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: out = static_cast<int>(facts.constant_bytes); break;
      case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: out = static_cast<int>(facts.local_bytes); break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS: out = static_cast<int>(facts.registers); break;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION: out = static_cast<int>(facts.ptx_version); break;
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION: out = static_cast<int>(facts.binary_version); break;
      case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: out = 0; break;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        out = static_cast<int>(function.most_dynamic_shared);
        break;
      case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: out = -1; break;
      default:
        if (which >= CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET &&
            which <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) {
          // The kernel states the cluster that it requires.
          out = 0;
          break;
        }
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "unknown function attribute " + std::to_string(which)};
    }
  });
}

CU_API cuFuncSetAttribute(CUfunction handle, int which, int value) {
  return entry([&](Call& call) {
    Function& function = own_function(call, handle);
    if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
      return;  // a hint, and there is no cache to divide
    // The launch gives the size of its clusters.
    if (which == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) return;
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "function attribute " + std::to_string(which) + " cannot be set"};
    }
    const u32 most =
        room_for_dynamic(function.facts, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (value < 0 || static_cast<u32>(value) > most) {
      throw Refused{CUDA_ERROR_INVALID_VALUE, "dynamic shared memory of at most " +
                                                  std::to_string(most) + " bytes, not " +
                                                  std::to_string(value)};
    }
    function.most_dynamic_shared = static_cast<u32>(value);
  });
}

// PyCUDA sets the shape before every launch, and the launch passes it again, so this only checks
// it.
CU_API cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  return entry([&](Call& call) {
    const u32 block[3] = {static_cast<u32>(x), static_cast<u32>(y), static_cast<u32>(z)};
    check_block(own_function(call, handle), block);
  });
}

CU_API cuFuncSetCacheConfig(CUfunction handle, int) {
  return entry([&](Call& call) { own_function(call, handle); });
}

// A hint for cards before sm_70, which had two sizes of banks.
CU_API cuFuncSetSharedMemConfig(CUfunction handle, int) {
  return entry([&](Call& call) { own_function(call, handle); });
}

CU_API cuFuncGetName(const char** name, CUfunction handle) {
  return entry([&](Call&) {
    needed(name, "name") = find_handle(state().functions, handle, "function")->name.c_str();
  });
}

CU_API cuFuncGetModule(CUmodule* module, CUfunction handle) {
  return entry([&](Call& call) {
    needed(module, "module") = reinterpret_cast<CUmodule>(own_function(call, handle).module);
  });
}

// The offset of parameter `index` in the buffer; a client finds their number by the first refused
// index.
CU_API cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset,
                          std::size_t* size) {
  return entry([&](Call&) {
    const Function& function = *find_handle(state().functions, handle, "function");
    if (index >= function.offsets.size()) {
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    function.name + " has " + std::to_string(function.offsets.size()) +
                        " parameters, no number " + std::to_string(index)};
    }
    needed(offset, "offset") = function.buffer_offsets[index];
    if (size) *size = function.sizes[index];
  });
}

CU_API cuFuncGetParamCount(CUfunction handle, std::size_t* count) {
  return entry([&](Call&) {
    needed(count, "count") = find_handle(state().functions, handle, "function")->offsets.size();
  });
}

// A module is loaded as a whole, so its functions already are.
CU_API cuFuncLoad(CUfunction handle) {
  return entry([&](Call& call) { own_function(call, handle); });
}

CU_API cuFuncIsLoaded(int* loaded, CUfunction handle) {
  return entry([&](Call& call) { own_function(call, handle), needed(loaded, "loaded") = 1; });
}

CU_API cuModuleGetLoadingMode(int* mode) {
  constexpr int kEager = 1;
  return entry([&](Call&) { needed(mode, "mode") = kEager; });
}

// ---- launches ----

CU_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                        void** extra) {
  bool cooperative = false;
  u32 cluster[3] = {};
  bool programmatic = false;
  const CUresult result = entry([&](Call&) {
    const CUlaunchConfig& c = needed(config, "config");
    for (unsigned i = 0; i < c.numAttrs; ++i) {
      const CUlaunchAttribute& given = (&needed(c.attrs, "attributes"))[i];
      const unsigned* size = given.value.dimensions;
      switch (given.id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: cooperative = given.value.number != 0; break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: std::copy_n(size, 3, cluster); break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
          programmatic = given.value.number != 0;
          break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
          throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                        "launch attribute " + std::to_string(given.id) +
                            ": a launch is over when its call returns; record an event after it"};
        default:
          break;  // hints for caches, priorities and the order of launches: they
                  // have no effect here
      }
    }
  });
  if (result) return config ? told_of_refusal(function, *config, result) : result;
  const CUlaunchConfig& c = *config;
  HookLaunch launch = shape({c.gridDimX, c.gridDimY, c.gridDimZ},
                            {c.blockDimX, c.blockDimY, c.blockDimZ}, c.sharedMemBytes, cooperative);
  std::copy_n(cluster, 3, launch.cluster);
  launch.programmatic = programmatic;
  return launch_kernel(function, launch, c.hStream, parameters, extra);
}

CU_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      CUstream stream, void** parameters, void** extra) {
  return launch_kernel(function,
                       shape({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes),
                       stream, parameters, extra);
}

CU_API cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, CUstream stream,
                                 void** parameters) {
  return launch_kernel(
      function, shape({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true),
      stream, parameters, nullptr);
}
