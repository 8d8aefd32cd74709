// Peers: devices whose kernels may access each other's memory once a context asks for it, and
// copies between them.
#include "driver.hpp"

CU_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
CU_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
CU_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* given);
CU_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* given, CUstream stream);

namespace workbench::driver {

bool may_access(const Context& context, const Allocation& allocation) {
  const Context& own = *allocation.context;
  if (&own == &context || allocation.on_host() || context.peers.contains(own.handle)) return true;
  return allocation.pool && allocation.pool->peers.contains(context.device);
}

std::string describe_foreign(const Context& context, const Allocation& allocation) {
  const std::string own = std::to_string(allocation.context->device);
  const std::string here = std::to_string(context.device);
  if (own == here) return "memory of another context of the device";
  return "memory of device " + own + ", which device " + here +
         " has no access to: move the tensor (.to(\"cuda:" + here + "\")), launch on device " +
         own + " (torch.cuda.device, cudaSetDevice), or enable access (cudaDeviceEnablePeerAccess)";
}

namespace {

enum : int { kAccess = 2, kNativeAtomics = 3, kMostAttribute = 5 };

void check_pair(CUdevice device, CUdevice peer) {
  check_device(device);
  check_device(peer);
}

// Addresses tell where memory is: PyCUDA passes the current context for both. A copy on the default
// stream comes after all work of both devices, and before what their default
// streams are given next.
CUresult copy_on_default(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                         CUcontext from_context, std::size_t bytes) {
  const auto both = [&](const auto& visit) {
    return entry([&](Call& call) {
      const auto target = find_context(to_context), source = find_context(from_context);
      const std::shared_ptr<Context> here = call.context();
      for (const auto& other : {target, source})
        if (other != here) visit(*here, *other);
    });
  };
  CUresult result = both([](Context& here, Context& other) { order_across(other, here); });
  if (!result) result = cuMemcpyDtoD_v2(to, from, bytes);
  if (!result) result = both([](Context& here, Context& other) { order_across(here, other); });
  return result;
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return entry([&](Call&) {
    check_pair(device, peer);
    needed(can, "can") = device != peer;
  });
}

CU_API cuDeviceGetP2PAttribute(int* value, int which, CUdevice device, CUdevice peer) {
  return entry([&](Call&) {
    check_pair(device, peer);
    if (device == peer) throw Refused{CUDA_ERROR_INVALID_DEVICE, "a device is no peer of itself"};
    if (which < 1 || which > kMostAttribute)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "no attribute of two devices has the number " + std::to_string(which)};
    needed(value, "value") = which == kAccess || which == kNativeAtomics;
  });
}

CU_API cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  return entry([&](Call& call) {
    Context& here = *call.context();
    const auto peer = find_context(handle);
    if (flags) throw Refused{CUDA_ERROR_INVALID_VALUE, "the flags of peer access must be 0"};
    if (peer->device == here.device)
      throw Refused{CUDA_ERROR_INVALID_DEVICE,
                    "device " + std::to_string(here.device) + " is no peer of itself"};
    if (!here.peers.insert(peer->handle).second)
      throw Refused{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                    "device " + std::to_string(here.device) + " has access to device " +
                        std::to_string(peer->device) + " already"};
    ++state().generation;
  });
}

CU_API cuCtxDisablePeerAccess(CUcontext handle) {
  return entry([&](Call& call) {
    const auto peer = find_context(handle);
    if (!call.context()->peers.erase(peer->handle))
      throw Refused{CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
                    "device " + std::to_string(call.context()->device) +
                        " has no access to device " + std::to_string(peer->device)};
    ++state().generation;
  });
}

CU_API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                    std::size_t bytes) {
  return copy_on_default(to, to_context, from, from_context, bytes);
}

CU_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                         CUcontext from_context, std::size_t bytes, CUstream stream) {
  const CUresult checked = entry([&](Call&) {
    find_context(to_context);
    find_context(from_context);
  });
  return checked ? checked : cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

// The parameters of copies between devices have the same layout; addresses tell the devices.
CU_API cuMemcpy3DPeer(const CUDA_MEMCPY3D* given) { return cuMemcpy3D_v2(given); }
CU_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D* given, CUstream stream) {
  return cuMemcpy3DAsync_v2(given, stream);
}
