// Initialisation and the devices, all alike, with the attributes that workbench.driver gave it.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "driver.hpp"

namespace workbench::driver {

State& state() {
  // Never destroyed: clients clean up late, in their own destructors.
  static State* one = new State;
  return *one;
}

namespace {

constexpr int kCudaVersion = 13000;

std::string bus_id(CUdevice device) {
  char text[24];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(device));
  return text;
}

int attribute(int which) {
  const auto found = state().attributes.find(which);
  if (found == state().attributes.end()) {
    throw Refused{CUDA_ERROR_INVALID_VALUE,
                  "no device attribute has the number " + std::to_string(which)};
  }
  return found->second;
}

}  // namespace

void check_device(CUdevice device) {
  const std::size_t count = state().primaries.size();
  if (device >= 0 && static_cast<std::size_t>(device) < count) return;
  const std::string there = count == 1 ? "there is one device, number 0"
                                       : "there are devices 0 to " + std::to_string(count - 1);
  throw Refused{CUDA_ERROR_INVALID_DEVICE, there + ", not " + std::to_string(device)};
}

}  // namespace workbench::driver

using namespace workbench::driver;

#define HOOK extern "C" __attribute__((visibility("default")))

// Called once by workbench.driver, before any client. Everything is copied. Returns 0 if there is
// no memory.
HOOK int workbench_driver_start(const HookDevice* device, const Hooks* hooks) {
  return answer_or(0, [&] {
    State& all = state();
    all.device = *device, all.hooks = *hooks, all.name = device->name;
    all.host_blas = device->host_blas;
    for (u32 i = 0; i < device->attribute_count; ++i)
      all.attributes[device->attributes[2 * i]] = device->attributes[2 * i + 1];
    all.primaries.resize(device->count);
    all.started = true;
    return 1;
  });
}

// Called when Python ends: from now on nothing is loaded or launched, but calls that only free
// still work.
HOOK void workbench_driver_close() {
  std::lock_guard lock(state().mutex);
  state().closed = true;
}

CU_API cuInit(unsigned flags) {
  return entry(Needs::nothing, [&](Call& call) {
    if (flags) throw Refused{CUDA_ERROR_INVALID_VALUE, "the flags of cuInit must be 0"};
    if (!state().started) {
      call.lock.unlock();
      start_interpreter();
      call.lock.lock();
    }
    if (!state().started)
      throw Refused{CUDA_ERROR_NOT_INITIALIZED, "call workbench.simulated_driver() first"};
    watch_forks();
    state().initialised = true;
  });
}

CU_API cuDriverGetVersion(int* version) {
  return entry(Needs::nothing, [&](Call&) { needed(version, "version") = kCudaVersion; });
}

CU_API cuDeviceGetCount(int* count) {
  return entry(Needs::facts,
               [&](Call&) { needed(count, "count") = static_cast<int>(state().primaries.size()); });
}

CU_API cuDeviceGet(CUdevice* device, int ordinal) {
  return entry(Needs::facts,
               [&](Call&) { check_device(ordinal), needed(device, "device") = ordinal; });
}

CU_API cuDeviceGetName(char* name, int length, CUdevice device) {
  return entry(Needs::facts, [&](Call&) {
    check_device(device);
    if (length < 1) throw Refused{CUDA_ERROR_INVALID_VALUE, "no room for the name"};
    std::snprintf(&needed(name, "name"), static_cast<std::size_t>(length), "%s",
                  state().name.c_str());
  });
}

CU_API cuDeviceGetUuid_v2(unsigned char* uuid, CUdevice device) {
  return entry(Needs::facts, [&](Call&) {
    check_device(device);
    std::memcpy(&needed(uuid, "uuid"), "workbench sim  ", 16);
    uuid[14] = static_cast<unsigned char>('0' + device);
  });
}

CU_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return entry(Needs::facts, [&](Call&) {
    check_device(device), needed(bytes, "bytes") = state().device.memory_bytes;
  });
}

CU_API cuDeviceGetAttribute(int* value, int which, CUdevice device) {
  return entry(Needs::facts,
               [&](Call&) { check_device(device), needed(value, "value") = attribute(which); });
}

CU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return entry(Needs::facts, [&](Call&) {
    check_device(device);
    needed(major, "major") = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    needed(minor, "minor") = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  });
}

CU_API cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  return entry([&](Call&) {
    check_device(device);
    if (length < 13) throw Refused{CUDA_ERROR_INVALID_VALUE, "a PCI bus id takes 13 characters"};
    std::snprintf(&needed(id, "id"), static_cast<std::size_t>(length), "%s",
                  bus_id(device).c_str());
  });
}

CU_API cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  return entry([&](Call&) {
    const std::string wanted = &needed(id, "id");
    int count = static_cast<int>(state().primaries.size()), at = 0;
    while (at < count && bus_id(at) != wanted) ++at;
    if (at == count)
      throw Refused{CUDA_ERROR_INVALID_DEVICE,
                    "no device is at " + wanted + "; the first is at " + bus_id(0)};
    needed(device, "device") = at;
  });
}

namespace {

// Symbols with a suffix, which a later CUDA added because a function's parameters changed, and the
// version that added them. Suffixes that are not listed came with CUDA 4 or before.
struct Since {
  const char* symbol;
  int version;
};

constexpr Since kSince[] = {
    {"cuCtxCreate_v3", 11040},
    {"cuCtxGetDevice_v2", 13000},
    {"cuCtxSynchronize_v2", 13000},
    {"cuMemcpy3DBatchAsync_v2", 13000},
    {"cuMemcpyBatchAsync_v2", 13000},
    {"cuCtxCreate_v4", 12050},
    {"cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags_v2", 11000},
    {"cuDeviceGetUuid_v2", 11040},
    {"cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress_v2", 12000},
    {"cuGraphAddDependencies_v2", 12030},
    {"cuGraphAddKernelNode_v2", 12000},
    {"cuGraphAddNode_v2", 12030},
    {"cuGraphGetEdges_v2", 12030},
    {"cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphNodeGetDependencies_v2", 12030},
    {"cuGraphNodeGetDependentNodes_v2", 12030},
    {"cuGraphRemoveDependencies_v2", 12030},
    {"cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecUpdate_v2", 12000},
    {"cuGraphInstantiate_v2", 11000},
    {"cuGraphInstantiateWithFlags", 11040},
    {"cuGraphKernelNodeSetParams_v2", 12000},
    {"cuIpcOpenMemHandle_v2", 11000},
    {"cuLinkAddData_v2", 6050},
    {"cuLinkAddFile_v2", 6050},
    {"cuLinkCreate_v2", 6050},
    {"cuMemAdvise_v2", 12020},
    {"cuMemHostRegister_v2", 6050},
    {"cuMemPrefetchAsync_v2", 12020},
    {"cuStreamBeginCapture_v2", 10010},
    {"cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamUpdateCaptureDependencies_v2", 12030},
};

int since(const std::string& symbol) {
  for (const Since& known : kSince)
    if (symbol == known.symbol) return known.version;
  return 0;
}

// The latest of a function's symbols that a client of this version knows.
void* symbol_for(void* library, const std::string& name, int version, bool& newer) {
  if (name == "cuGraphInstantiate" && version >= 12000)
    return dlsym(library, "cuGraphInstantiateWithFlags");
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    void* found = dlsym(library, (name + suffix).c_str());
    if (found && version >= since(name + suffix)) return found;
    newer |= found != nullptr;
  }
  return nullptr;
}

}  // namespace

// For clients that look up every function by name; a missing one is "symbol not found".
CU_API cuGetProcAddress_v2(const char* symbol, void** function, int version, u64, int* status) {
  return entry(Needs::nothing, [&](Call&) {
    const std::string name = &needed(symbol, "symbol");
    needed(function, "function") = nullptr;
    Dl_info self{};
    dladdr(reinterpret_cast<void*>(&workbench_driver_close), &self);
    void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    bool newer = false;
    *function = library ? symbol_for(library, name, version, newer) : nullptr;
    if (library) dlclose(library);
    if (status) *status = *function ? 0 : newer ? 2 : 1;
    if (!*function && newer)
      throw Refused{CUDA_ERROR_NOT_FOUND, name + " came after CUDA " + std::to_string(version)};
    if (!*function)
      throw Refused{CUDA_ERROR_NOT_FOUND, name + " is not part of the simulated driver"};
  });
}

CU_API cuGetProcAddress(const char* symbol, void** function, int version, u64 flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
