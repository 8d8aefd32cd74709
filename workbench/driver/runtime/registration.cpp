// Registrations by nvcc's host code when a program starts: its fat binaries, and the host addresses
// that stand for kernels and variables. A fat binary is loaded into a context when something in it
// is first needed there.
#include <mutex>
#include <unordered_map>

#include "runtime.hpp"

namespace workbench::runtime {
namespace {

// nvcc's wrapper around a fat binary. With -rdc=true its second version stands for several fat
// binaries, which are linked when they are loaded.
struct Wrapper {
  u32 magic, version;
  const void* data;
  const void* const* prelinked;  // ends with a null pointer
};
constexpr u32 kSeveral = 2;

struct FatHeader {
  u32 magic;
  u16 version, header_bytes;
  u64 bytes;
};

struct ManagedVariable {
  void** pointer;  // host code accesses the variable through it
  std::string name;
};

struct Binary {
  const void* image;
  std::map<CUcontext, CUmodule> modules;
  std::vector<ManagedVariable> managed;
};

struct Kernel {
  Binary* binary;
  std::string name;
  std::map<CUcontext, CUfunction> functions;
};

struct Shadow {
  Binary* binary;
  std::string name;
};

struct Registry {
  std::recursive_mutex mutex;
  std::unordered_map<const void*, Kernel> kernels;
  std::unordered_map<const void*, Shadow> variables;
};

Registry& registry() {
  static auto* one = new Registry;  // never destroyed: programs unregister after main
  return *one;
}

// Host code accesses a managed variable through a pointer. It is set to the module's bytes in this
// process, and these are registered, so that kernels can use the same address.
void place_managed(Binary& binary, CUmodule module) {
  for (const ManagedVariable& one : binary.managed) {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    must(cuModuleGetGlobal_v2(&address, &bytes, module, one.name.c_str()));
    void* host = reinterpret_cast<void*>(workbench_driver_storage(address));
    must(cuMemHostRegister_v2(host, bytes, 0));
    *one.pointer = host;
  }
}

// While an object of this class lives, loading invalidates no capture of a stream, as it is not the
// program's own work.
class OutsideCaptures {
 public:
  OutsideCaptures() { must(cuThreadExchangeStreamCaptureMode(&mode_)); }
  OutsideCaptures(const OutsideCaptures&) = delete;
  ~OutsideCaptures() { cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  unsigned mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

class Link {
 public:
  Link() { must(cuLinkCreate_v2(0, nullptr, nullptr, &handle_)); }
  Link(const Link&) = delete;
  ~Link() { cuLinkDestroy(handle_); }
  void* operator*() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

CUmodule linked(const void* const* binaries) {
  constexpr int kFatBinary = 3;
  const Link link;
  for (; *binaries; ++binaries) {
    FatHeader header{};
    std::memcpy(&header, *binaries, sizeof header);
    must(cuLinkAddData_v2(*link, kFatBinary, const_cast<void*>(*binaries),
                          header.header_bytes + header.bytes, nullptr, 0, nullptr, nullptr));
  }
  void* image = nullptr;
  CUmodule module = nullptr;
  must(cuLinkComplete(*link, &image, nullptr));
  must(cuModuleLoadFatBinary(&module, image));
  return module;
}

CUmodule loaded(const void* image) {
  Wrapper wrapper{};
  std::memcpy(&wrapper, image, sizeof wrapper);
  if (wrapper.version == kSeveral && wrapper.prelinked) return linked(wrapper.prelinked);
  CUmodule module = nullptr;
  must(cuModuleLoadFatBinary(&module, image));
  return module;
}

CUmodule module_of(Binary& binary) {
  CUmodule& module = binary.modules[current_context()];
  if (!module) {
    const OutsideCaptures relaxed;
    module = loaded(binary.image);
    place_managed(binary, module);
  }
  return module;
}

Binary* binary_of(void** handle) { return reinterpret_cast<Binary*>(handle); }

}  // namespace

CUfunction function_of(const void* symbol) {
  std::unique_lock lock(registry().mutex);
  const auto found = registry().kernels.find(symbol);
  if (found == registry().kernels.end()) {
    lock.unlock();
    const char* name = nullptr;
    CUfunction handle = const_cast<void*>(symbol);
    if (symbol && cuFuncGetName(&name, handle) == CUDA_SUCCESS) return handle;
    throw Failed{cudaErrorInvalidDeviceFunction,
                 "no kernel of this program has this host function or handle"};
  }
  Kernel& kernel = found->second;
  CUfunction& function = kernel.functions[current_context()];
  if (!function) {
    CUfunction made = nullptr;
    must(cuModuleGetFunction(&made, module_of(*kernel.binary), kernel.name.c_str()));
    function = made;
  }
  return function;
}

std::string kernel_name(const void* symbol) {
  std::unique_lock lock(registry().mutex);
  const auto found = registry().kernels.find(symbol);
  if (found != registry().kernels.end()) return found->second.name;
  lock.unlock();
  const char* name = nullptr;
  const bool known = symbol && cuFuncGetName(&name, const_cast<void*>(symbol)) == CUDA_SUCCESS;
  return known ? name : "";
}

const void* symbol_of(CUfunction function) {
  std::lock_guard lock(registry().mutex);
  for (const auto& [symbol, kernel] : registry().kernels)
    for (const auto& [_, known] : kernel.functions)
      if (known == function) return symbol;
  return function;
}

Variable variable_of(const void* symbol) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().variables.find(symbol);
  if (found == registry().variables.end()) {
    throw Failed{cudaErrorInvalidSymbol,
                 "no variable of this program has this host address: pass the __device__ or "
                 "__constant__ variable itself"};
  }
  Variable variable{};
  must(cuModuleGetGlobal_v2(&variable.address, &variable.bytes, module_of(*found->second.binary),
                            found->second.name.c_str()));
  return variable;
}

}  // namespace workbench::runtime

using namespace workbench::runtime;

// NOLINTBEGIN(bugprone-reserved-identifier): the names are nvcc's.
#define REGISTRATION extern "C" __attribute__((visibility("default")))

REGISTRATION void** __cudaRegisterFatBinary(void* image) {
  return reinterpret_cast<void**>(new Binary{image, {}, {}});
}

REGISTRATION void __cudaRegisterFatBinaryEnd(void**) {}

REGISTRATION void __cudaUnregisterFatBinary(void** handle) {
  std::lock_guard lock(registry().mutex);
  Binary* const binary = binary_of(handle);
  std::erase_if(registry().kernels, [&](const auto& item) { return item.second.binary == binary; });
  std::erase_if(registry().variables,
                [&](const auto& item) { return item.second.binary == binary; });
  delete binary;  // its modules end with their contexts
}

REGISTRATION void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name,
                                         int, void*, void*, void*, void*, int*) {
  std::lock_guard lock(registry().mutex);
  registry().kernels[host] = Kernel{binary_of(handle), name, {}};
}

REGISTRATION void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int,
                                    std::size_t, int, int) {
  std::lock_guard lock(registry().mutex);
  registry().variables[host] = Shadow{binary_of(handle), name};
}

REGISTRATION void __cudaRegisterManagedVar(void** handle, void** pointer, char*, const char* name,
                                           int, std::size_t, int, int) {
  std::lock_guard lock(registry().mutex);
  registry().variables[pointer] = Shadow{binary_of(handle), name};
  binary_of(handle)->managed.push_back({pointer, name});
}

// Host variables that device code uses, and tables of functions for both sides, are ignored: no PTX
// that runs here refers to them.
REGISTRATION void __cudaRegisterHostVar(void**, const char*, char*, std::size_t) {}
REGISTRATION void __cudaRegisterUnifiedTable(void**, void*) {}

// Called by host code before it touches a managed variable for the first time.
REGISTRATION char __cudaInitModule(void** handle) {
  const cudaError_t result = call([&] {
    std::lock_guard lock(registry().mutex);
    module_of(*binary_of(handle));
    return CUDA_SUCCESS;
  });
  return result == cudaSuccess;
}

// ---- <<<>>> ----

REGISTRATION unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t dynamic_shared,
                                                  CUstream stream) {
  thread().configured.push_back({grid, block, dynamic_shared, stream});
  return 0;
}

CUDA_API __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* dynamic_shared,
                                    CUstream* stream) {
  auto& configured = thread().configured;
  if (configured.empty())
    return failed(cudaErrorMissingConfiguration, "a kernel is called without <<<>>>");
  const Configuration& last = configured.back();
  *grid = last.grid;
  *block = last.block;
  *dynamic_shared = last.dynamic_shared;
  *stream = last.stream;
  configured.pop_back();
  return cudaSuccess;
}

// The host function serves as the handle, on every device.
CUDA_API __cudaGetKernel(const void** handle, const void* host) {
  return without_context([&] {
    std::lock_guard lock(registry().mutex);
    if (!registry().kernels.contains(host))
      throw Failed{cudaErrorInvalidDeviceFunction, "the kernel was never registered"};
    needed(handle, "kernel") = host;
    return CUDA_SUCCESS;
  });
}

// NOLINTEND(bugprone-reserved-identifier)

CUDA_API cudaGetSymbolAddress(void** address, const void* symbol) {
  return call([&] {
    needed(address, "address") = reinterpret_cast<void*>(variable_of(symbol).address);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  return call([&] {
    needed(bytes, "size") = variable_of(symbol).bytes;
    return CUDA_SUCCESS;
  });
}
