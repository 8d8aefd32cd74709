// Devices and their primary contexts, which the runtime makes current in a thread without a context
// of its own.
#include <atomic>

#include "runtime.hpp"

namespace workbench::runtime {
namespace {

constexpr int kRuntimeVersion = 13000;
std::atomic<unsigned> resets{0};

// Called at every thread's first call, because the driver may have been started meanwhile.
void initialise() {
  if (thread().initialised) return;
  must(cuInit(0));
  thread().initialised = true;
}

void check_device(int device) {
  int count = 0;
  initialise();
  must(cuDeviceGetCount(&count));
  if (device < 0 || device >= count) {
    throw Failed{cudaErrorInvalidDevice, "there are devices 0 to " + std::to_string(count - 1) +
                                             ", not " + std::to_string(device)};
  }
}

void make_current(int device) {
  CUcontext primary = nullptr;
  // The context lives until cudaDeviceReset or the end of the process.
  must(cuDevicePrimaryCtxRetain(&primary, device));
  must(cuCtxSetCurrent(primary));
  thread().resets_seen = resets;
}

bool context_is_there() {
  initialise();
  CUcontext current = nullptr;
  return cuCtxGetCurrent(&current) == CUDA_SUCCESS && current && thread().resets_seen == resets;
}

int attribute(int which, int device) {
  int value = 0;
  must(cuDeviceGetAttribute(&value, which, device));
  return value;
}

DeviceProperties properties_of(int device) {
  DeviceProperties p{};
  const auto number = [&](int which) { return attribute(which, device); };
  const auto bytes = [&](int which) { return static_cast<std::size_t>(number(which)); };
  must(cuDeviceGetName(p.name, sizeof p.name, device));
  must(cuDeviceGetUuid_v2(p.uuid, device));
  must(cuDeviceTotalMem_v2(&p.totalGlobalMem, device));
  p.sharedMemPerBlock = bytes(8);
  p.regsPerBlock = number(12);
  p.warpSize = number(10);
  p.memPitch = bytes(11);
  p.maxThreadsPerBlock = number(1);
  for (int axis = 0; axis < 3; ++axis) {
    p.maxThreadsDim[axis] = number(2 + axis);
    p.maxGridSize[axis] = number(5 + axis);
  }
  p.totalConstMem = bytes(9);
  p.major = number(75);
  p.minor = number(76);
  p.textureAlignment = bytes(14);
  p.texturePitchAlignment = bytes(51);
  p.surfaceAlignment = bytes(30);
  p.multiProcessorCount = number(16);
  p.integrated = number(18);
  p.canMapHostMemory = number(19);
  p.concurrentKernels = number(31);
  p.ECCEnabled = number(32);
  p.pciBusID = device;
  p.pciDeviceID = 0;
  p.pciDomainID = 0;
  p.tccDriver = number(35);
  p.asyncEngineCount = number(40);
  p.unifiedAddressing = number(41);
  p.memoryBusWidth = number(37);
  p.l2CacheSize = number(38);
  p.persistingL2CacheMaxSize = number(108);
  p.maxThreadsPerMultiProcessor = number(39);
  p.streamPrioritiesSupported = number(78);
  p.globalL1CacheSupported = number(79);
  p.localL1CacheSupported = number(80);
  p.sharedMemPerMultiprocessor = bytes(81);
  p.regsPerMultiprocessor = number(82);
  p.managedMemory = number(83);
  p.isMultiGpuBoard = number(84);
  p.multiGpuBoardGroupID = number(85);
  p.hostNativeAtomicSupported = number(86);
  p.pageableMemoryAccess = number(88);
  p.concurrentManagedAccess = number(89);
  p.computePreemptionSupported = number(90);
  p.canUseHostPointerForRegisteredMem = number(91);
  p.cooperativeLaunch = number(95);
  p.sharedMemPerBlockOptin = bytes(97);
  p.pageableMemoryAccessUsesHostPageTables = number(100);
  p.directManagedMemAccessFromHost = number(101);
  p.maxBlocksPerMultiProcessor = number(106);
  p.accessPolicyMaxWindowSize = number(109);
  p.reservedSharedMemPerBlock = bytes(111);
  p.hostRegisterSupported = number(99);
  p.memoryPoolsSupported = number(115);
  p.clusterLaunch = number(120);
  return p;
}

}  // namespace

unsigned reset_count() { return resets; }

void need_context() {
  if (!context_is_there()) make_current(thread().device);
}

int current_device() {
  int device = thread().device;
  if (context_is_there()) cuCtxGetDevice(&device);
  return device;
}

CUcontext primary_context(int device) {
  check_device(device);
  CUcontext primary = nullptr;
  must(cuDevicePrimaryCtxRetain(&primary, device));
  return primary;
}

CUcontext current_context() {
  CUcontext current = nullptr;
  must(cuCtxGetCurrent(&current));
  return current;
}

}  // namespace workbench::runtime

using namespace workbench::runtime;

CUDA_API cudaGetDeviceCount(int* count) {
  return without_context([&] {
    initialise();
    return cuDeviceGetCount(&needed(count, "count"));
  });
}

CUDA_API cudaSetDevice(int device) {
  return without_context([&] {
    check_device(device);
    thread().device = device;
    make_current(device);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaInitDevice(int device, unsigned, unsigned) {
  return without_context([&] {
    check_device(device);
    CUcontext primary = nullptr;
    return cuDevicePrimaryCtxRetain(&primary, device);
  });
}

CUDA_API cudaGetDevice(int* device) {
  return without_context([&] {
    initialise();
    needed(device, "device") = current_device();
    return CUDA_SUCCESS;
  });
}

// All devices are alike.
CUDA_API cudaChooseDevice(int* device, const DeviceProperties*) {
  return without_context([&] {
    needed(device, "device") = 0;
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaSetValidDevices(int* devices, int count) {
  return without_context([&] {
    for (int i = 0; i < count; ++i) check_device((&needed(devices, "devices"))[i]);
    if (count > 0) thread().device = devices[0];
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaSetDeviceFlags(unsigned flags) {
  return without_context([&] {
    initialise();
    return cuDevicePrimaryCtxSetFlags_v2(current_device(), flags);
  });
}

CUDA_API cudaGetDeviceFlags(unsigned* flags) {
  return without_context([&] {
    int active = 0;
    initialise();
    return cuDevicePrimaryCtxGetState(current_device(), &needed(flags, "flags"), &active);
  });
}

// Frees everything that the process has on the device and forgets a kernel's fault; the next call
// begins anew.
CUDA_API cudaDeviceReset() {
  return without_context([&] {
    initialise();
    const CUresult result = cuDevicePrimaryCtxReset_v2(current_device());
    ++resets;
    thread().last = cudaSuccess;
    return result;
  });
}

CUDA_API cudaDeviceSynchronize() { return call(cuCtxSynchronize); }

CUDA_API cudaGetDeviceProperties(DeviceProperties* properties, int device) {
  return without_context([&] {
    check_device(device);
    needed(properties, "prop") = properties_of(device);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaDeviceGetAttribute(int* value, int which, int device) {
  return without_context([&] {
    check_device(device);
    needed(value, "value") = attribute(which, device);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaDeviceGetLimit(std::size_t* value, int limit) {
  return call([&] { return cuCtxGetLimit(value, limit); });
}
CUDA_API cudaDeviceSetLimit(int limit, std::size_t value) {
  return call([&] { return cuCtxSetLimit(limit, value); });
}
CUDA_API cudaDeviceGetCacheConfig(int* config) {
  return call([&] { return cuCtxGetCacheConfig(config); });
}
CUDA_API cudaDeviceSetCacheConfig(int config) {
  return call([&] { return cuCtxSetCacheConfig(config); });
}
CUDA_API cudaDeviceGetSharedMemConfig(int* config) {
  return call([&] { return cuCtxGetSharedMemConfig(config); });
}
CUDA_API cudaDeviceSetSharedMemConfig(int config) {
  return call([&] { return cuCtxSetSharedMemConfig(config); });
}
CUDA_API cudaCtxResetPersistingL2Cache() { return call(cuCtxResetPersistingL2Cache); }

CUDA_API cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] { return cuCtxGetStreamPriorityRange(least, greatest); });
}

CUDA_API cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return without_context([&] {
    initialise();
    return cuDeviceGetPCIBusId(id, length, device);
  });
}

CUDA_API cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return without_context([&] {
    initialise();
    return cuDeviceGetByPCIBusId(device, id);
  });
}

CUDA_API cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return without_context([&] {
    initialise();
    return cuDeviceCanAccessPeer(can, device, peer);
  });
}

CUDA_API cudaDeviceGetP2PAttribute(int* value, int which, int device, int peer) {
  return without_context([&] {
    initialise();
    return cuDeviceGetP2PAttribute(value, which, device, peer);
  });
}

CUDA_API cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call([&] { return cuCtxEnablePeerAccess(primary_context(peer), flags); });
}

CUDA_API cudaDeviceDisablePeerAccess(int peer) {
  return call([&] { return cuCtxDisablePeerAccess(primary_context(peer)); });
}

CUDA_API cudaRuntimeGetVersion(int* version) {
  return without_context([&] {
    needed(version, "version") = kRuntimeVersion;
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaDriverGetVersion(int* version) {
  return without_context([&] { return cuDriverGetVersion(version); });
}
CUDA_API cudaProfilerStart() { return call(cuProfilerStart); }
CUDA_API cudaProfilerStop() { return call(cuProfilerStop); }

CUDA_API cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                          unsigned long long flags, int* status) {
  return without_context([&] {
    return cuGetProcAddress_v2(symbol, function, static_cast<int>(version), flags, status);
  });
}

CUDA_API cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                 int* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, kRuntimeVersion, flags, status);
}

ALIAS(cudaGetDriverEntryPoint, _ptsz)
ALIAS(cudaGetDriverEntryPointByVersion, _ptsz)
