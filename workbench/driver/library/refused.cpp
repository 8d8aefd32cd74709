// Entry points that PyCUDA links against and that have nothing behind them here. Each says what is missing.
#include "driver.hpp"

using namespace workbench::driver;

namespace {
constexpr const char* kTextures = ": the PTX machine has no textures, surfaces or CUDA arrays; read linear memory instead";
constexpr const char* kOldLaunch = ": the launch interface of CUDA 3; use cuLaunchKernel (prepared_call and calling a function do)";
constexpr const char* kProcesses = ": memory and events are of this process alone";
constexpr const char* kPeers = ": devices do not see each other's memory";
constexpr const char* kProfiler = ": there is no profiler; workbench.trace says what a kernel did";
}  // namespace

// Whatever the arguments are: a caller may pass more than a function takes.
#define REFUSED(name, why) \
  CU_API name() { return remember(CUDA_ERROR_NOT_SUPPORTED, std::string(#name) + why); }

REFUSED(cuArray3DCreate_v2, kTextures)
REFUSED(cuArray3DGetDescriptor_v2, kTextures)
REFUSED(cuArrayCreate_v2, kTextures)
REFUSED(cuArrayDestroy, kTextures)
REFUSED(cuArrayGetDescriptor_v2, kTextures)
REFUSED(cuMemcpyAtoA_v2, kTextures)
REFUSED(cuMemcpyAtoD_v2, kTextures)
REFUSED(cuMemcpyAtoH_v2, kTextures)
REFUSED(cuMemcpyDtoA_v2, kTextures)
REFUSED(cuMemcpyHtoA_v2, kTextures)
REFUSED(cuModuleGetSurfRef, kTextures)
REFUSED(cuModuleGetTexRef, kTextures)
REFUSED(cuParamSetTexRef, kTextures)
REFUSED(cuSurfRefGetArray, kTextures)
REFUSED(cuSurfRefSetArray, kTextures)
REFUSED(cuTexRefCreate, kTextures)
REFUSED(cuTexRefDestroy, kTextures)
REFUSED(cuTexRefGetAddressMode, kTextures)
REFUSED(cuTexRefGetAddress_v2, kTextures)
REFUSED(cuTexRefGetArray, kTextures)
REFUSED(cuTexRefGetFilterMode, kTextures)
REFUSED(cuTexRefGetFlags, kTextures)
REFUSED(cuTexRefGetFormat, kTextures)
REFUSED(cuTexRefSetAddress2D_v3, kTextures)
REFUSED(cuTexRefSetAddressMode, kTextures)
REFUSED(cuTexRefSetAddress_v2, kTextures)
REFUSED(cuTexRefSetArray, kTextures)
REFUSED(cuTexRefSetFilterMode, kTextures)
REFUSED(cuTexRefSetFlags, kTextures)
REFUSED(cuTexRefSetFormat, kTextures)

REFUSED(cuFuncSetSharedSize, kOldLaunch)
REFUSED(cuLaunch, kOldLaunch)
REFUSED(cuLaunchGrid, kOldLaunch)
REFUSED(cuLaunchGridAsync, kOldLaunch)
REFUSED(cuParamSetSize, kOldLaunch)
REFUSED(cuParamSetf, kOldLaunch)
REFUSED(cuParamSeti, kOldLaunch)
REFUSED(cuParamSetv, kOldLaunch)

REFUSED(cuIpcCloseMemHandle, kProcesses)
REFUSED(cuIpcGetEventHandle, kProcesses)
REFUSED(cuIpcGetMemHandle, kProcesses)
REFUSED(cuIpcOpenEventHandle, kProcesses)
REFUSED(cuIpcOpenMemHandle_v2, kProcesses)

REFUSED(cuCtxDisablePeerAccess, kPeers)
REFUSED(cuCtxEnablePeerAccess, kPeers)
REFUSED(cuMemcpy3DPeer, kPeers)
REFUSED(cuMemcpy3DPeerAsync, kPeers)

REFUSED(cuProfilerInitialize, kProfiler)

// NVRTC asks any driver in the process for a table of its private cache, and does without where it is refused.
REFUSED(cuGetExportTable, ": private to NVIDIA's driver")

// A GPU without a profiler attached takes these too, and does nothing.
CU_API cuProfilerStart() {
  return entry([](Call& call) { call.context(); });
}

CU_API cuProfilerStop() {
  return entry([](Call& call) { call.context(); });
}
