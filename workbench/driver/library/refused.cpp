// Entry points that clients link against or look up, and that are not supported here. Each error
// names the missing feature.
#include "driver.hpp"

using namespace workbench::driver;

namespace {
constexpr const char* kTextures =
    ": the PTX machine has no textures, surfaces or CUDA arrays; read linear memory instead";
constexpr const char* kOldLaunch =
    ": the launch interface of CUDA 3; use cuLaunchKernel (prepared_call and calling a function "
    "do)";
constexpr const char* kVirtual =
    ": there is no virtual memory management; use cuMemAlloc or cuMemAllocAsync";
constexpr const char* kClusters =
    ": how many clusters fit is not known here; launch with a cluster of 8 blocks or fewer";
constexpr const char* kImages =
    ": the PTX machine copies boxes of a tensor by tiles, not by im2col; use "
    "cuTensorMapEncodeTiled";
constexpr const char* kStreamMemory = ": streams do not watch memory; use events";
constexpr const char* kExternal = ": nothing is shared with graphics or with other devices";
constexpr const char* kGreen = ": a device cannot be divided; use its context";
constexpr const char* kBatches = ": copy one box at a time";
constexpr const char* kProcesses = ": memory and events are of this process alone";
constexpr const char* kManaged =
    ": managed variables of libraries have no address that the host has, too; use a __device__ "
    "variable and copies";
constexpr const char* kLogs = ": there is no log to read; cuGetErrorString says what went wrong";
constexpr const char* kByName = ": ask for a variable of a library by its name";
constexpr const char* kPeers =
    ": a launch is of one device; launch on each, and copy with cuMemcpyPeer";
constexpr const char* kProfiler = ": there is no profiler; workbench.trace says what a kernel did";
}  // namespace

// The arguments are ignored: a caller may pass more than a function takes.
#define REFUSED(name, why) \
  CU_API name() { return remember(CUDA_ERROR_NOT_SUPPORTED, #name, why); }

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
REFUSED(cuMipmappedArrayCreate, kTextures)
REFUSED(cuMipmappedArrayDestroy, kTextures)
REFUSED(cuMipmappedArrayGetLevel, kTextures)
REFUSED(cuParamSetTexRef, kTextures)
REFUSED(cuSurfObjectCreate, kTextures)
REFUSED(cuSurfObjectDestroy, kTextures)
REFUSED(cuTexObjectCreate, kTextures)
REFUSED(cuTexObjectDestroy, kTextures)
REFUSED(cuTexObjectGetResourceDesc, kTextures)
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
REFUSED(cuIpcOpenMemHandle, kProcesses)
REFUSED(cuIpcOpenMemHandle_v2, kProcesses)
REFUSED(cuMemExportToShareableHandle, kProcesses)
REFUSED(cuMemImportFromShareableHandle, kProcesses)
REFUSED(cuMemPoolExportPointer, kProcesses)
REFUSED(cuMemPoolExportToShareableHandle, kProcesses)
REFUSED(cuMemPoolImportFromShareableHandle, kProcesses)
REFUSED(cuMemPoolImportPointer, kProcesses)

REFUSED(cuLaunchCooperativeKernelMultiDevice, kPeers)

REFUSED(cuMemAddressFree, kVirtual)
REFUSED(cuMemAddressReserve, kVirtual)
REFUSED(cuMemCreate, kVirtual)
REFUSED(cuMemGetAllocationGranularity, kVirtual)
REFUSED(cuMemMap, kVirtual)
REFUSED(cuMemRelease, kVirtual)
REFUSED(cuMemSetAccess, kVirtual)
REFUSED(cuMemUnmap, kVirtual)

REFUSED(cuOccupancyMaxPotentialClusterSize, kClusters)

REFUSED(cuTensorMapEncodeIm2col, kImages)

REFUSED(cuStreamBatchMemOp_v2, kStreamMemory)
REFUSED(cuStreamWaitValue32_v2, kStreamMemory)
REFUSED(cuStreamWaitValue64_v2, kStreamMemory)
REFUSED(cuStreamWriteValue32_v2, kStreamMemory)
REFUSED(cuStreamWriteValue64_v2, kStreamMemory)

REFUSED(cuGraphicsGLRegisterBuffer, kExternal)
REFUSED(cuGraphicsMapResources, kExternal)
REFUSED(cuGraphicsUnregisterResource, kExternal)
REFUSED(cuImportExternalMemory, kExternal)
REFUSED(cuImportExternalSemaphore, kExternal)
REFUSED(cuMulticastCreate, kExternal)

REFUSED(cuDeviceGetDevResource, kGreen)
REFUSED(cuGreenCtxCreate, kGreen)

REFUSED(cuMemcpy3DBatchAsync, kBatches)
REFUSED(cuMemcpy3DBatchAsync_v2, kBatches)

REFUSED(cuProfilerInitialize, kProfiler)

REFUSED(cuArrayGetMemoryRequirements, kTextures)
REFUSED(cuArrayGetPlane, kTextures)
REFUSED(cuArrayGetSparseProperties, kTextures)
REFUSED(cuDeviceGetTexture1DLinearMaxWidth, kTextures)
REFUSED(cuMipmappedArrayGetMemoryRequirements, kTextures)
REFUSED(cuMipmappedArrayGetSparseProperties, kTextures)
REFUSED(cuSurfObjectGetResourceDesc, kTextures)
REFUSED(cuTexObjectGetResourceViewDesc, kTextures)
REFUSED(cuTexObjectGetTextureDesc, kTextures)

REFUSED(cuDestroyExternalMemory, kExternal)
REFUSED(cuDestroyExternalSemaphore, kExternal)
REFUSED(cuDeviceGetNvSciSyncAttributes, kExternal)
REFUSED(cuEGLStreamConsumerAcquireFrame, kExternal)
REFUSED(cuEGLStreamConsumerConnect, kExternal)
REFUSED(cuEGLStreamConsumerConnectWithFlags, kExternal)
REFUSED(cuEGLStreamConsumerDisconnect, kExternal)
REFUSED(cuEGLStreamConsumerReleaseFrame, kExternal)
REFUSED(cuEGLStreamProducerConnect, kExternal)
REFUSED(cuEGLStreamProducerDisconnect, kExternal)
REFUSED(cuEGLStreamProducerPresentFrame, kExternal)
REFUSED(cuEGLStreamProducerReturnFrame, kExternal)
REFUSED(cuEventCreateFromEGLSync, kExternal)
REFUSED(cuExternalMemoryGetMappedBuffer, kExternal)
REFUSED(cuExternalMemoryGetMappedMipmappedArray, kExternal)
REFUSED(cuFlushGPUDirectRDMAWrites, kExternal)
REFUSED(cuGLCtxCreate_v2, kExternal)
REFUSED(cuGLGetDevices_v2, kExternal)
REFUSED(cuGLInit, kExternal)
REFUSED(cuGLMapBufferObjectAsync_v2, kExternal)
REFUSED(cuGLMapBufferObject_v2, kExternal)
REFUSED(cuGLRegisterBufferObject, kExternal)
REFUSED(cuGLSetBufferObjectMapFlags, kExternal)
REFUSED(cuGLUnmapBufferObject, kExternal)
REFUSED(cuGLUnmapBufferObjectAsync, kExternal)
REFUSED(cuGLUnregisterBufferObject, kExternal)
REFUSED(cuGraphAddExternalSemaphoresSignalNode, kExternal)
REFUSED(cuGraphAddExternalSemaphoresWaitNode, kExternal)
REFUSED(cuGraphExecExternalSemaphoresSignalNodeSetParams, kExternal)
REFUSED(cuGraphExecExternalSemaphoresWaitNodeSetParams, kExternal)
REFUSED(cuGraphExternalSemaphoresSignalNodeGetParams, kExternal)
REFUSED(cuGraphExternalSemaphoresSignalNodeSetParams, kExternal)
REFUSED(cuGraphExternalSemaphoresWaitNodeGetParams, kExternal)
REFUSED(cuGraphExternalSemaphoresWaitNodeSetParams, kExternal)
REFUSED(cuGraphicsEGLRegisterImage, kExternal)
REFUSED(cuGraphicsGLRegisterImage, kExternal)
REFUSED(cuGraphicsResourceGetMappedEglFrame, kExternal)
REFUSED(cuGraphicsResourceGetMappedMipmappedArray, kExternal)
REFUSED(cuGraphicsResourceGetMappedPointer_v2, kExternal)
REFUSED(cuGraphicsResourceSetMapFlags_v2, kExternal)
REFUSED(cuGraphicsSubResourceGetMappedArray, kExternal)
REFUSED(cuGraphicsUnmapResources, kExternal)
REFUSED(cuGraphicsVDPAURegisterOutputSurface, kExternal)
REFUSED(cuGraphicsVDPAURegisterVideoSurface, kExternal)
REFUSED(cuSignalExternalSemaphoresAsync, kExternal)
REFUSED(cuVDPAUCtxCreate_v2, kExternal)
REFUSED(cuVDPAUGetDevice, kExternal)
REFUSED(cuWaitExternalSemaphoresAsync, kExternal)
REFUSED(cuMulticastAddDevice, kExternal)
REFUSED(cuMulticastBindAddr, kExternal)
REFUSED(cuMulticastBindMem, kExternal)
REFUSED(cuMulticastGetGranularity, kExternal)
REFUSED(cuMulticastUnbind, kExternal)

REFUSED(cuCtxFromGreenCtx, kGreen)
REFUSED(cuCtxGetDevResource, kGreen)
REFUSED(cuDevResourceGenerateDesc, kGreen)
REFUSED(cuDevSmResourceSplitByCount, kGreen)
REFUSED(cuGreenCtxDestroy, kGreen)
REFUSED(cuGreenCtxGetDevResource, kGreen)
REFUSED(cuGreenCtxGetId, kGreen)
REFUSED(cuGreenCtxRecordEvent, kGreen)
REFUSED(cuGreenCtxStreamCreate, kGreen)
REFUSED(cuGreenCtxWaitEvent, kGreen)
REFUSED(cuStreamGetDevResource, kGreen)
REFUSED(cuStreamGetGreenCtx, kGreen)

REFUSED(cuMemGetAccess, kVirtual)
REFUSED(cuMemGetAllocationPropertiesFromHandle, kVirtual)
REFUSED(cuMemRetainAllocationHandle, kVirtual)

REFUSED(cuDeviceGetHostAtomicCapabilities, kPeers)
REFUSED(cuDeviceGetP2PAtomicCapabilities, kPeers)

REFUSED(cuDeviceRegisterAsyncNotification, kLogs)
REFUSED(cuDeviceUnregisterAsyncNotification, kLogs)
REFUSED(cuLogsCurrent, kLogs)
REFUSED(cuLogsDumpToFile, kLogs)
REFUSED(cuLogsDumpToMemory, kLogs)
REFUSED(cuLogsRegisterCallback, kLogs)
REFUSED(cuLogsUnregisterCallback, kLogs)

REFUSED(cuLibraryGetManaged, kManaged)
REFUSED(cuLibraryGetUnifiedFunction, kByName)

// NVRTC queries any driver in the process for a table of its private cache, and works without it.
// NVIDIA's CUDA runtime does not work without such tables.
REFUSED(cuGetExportTable,
        ": tables that NVIDIA's driver shares with its static runtime, which runs on that driver "
        "alone; CuPy: run workbench setup cupy; a program: link it with -cudart shared")

// Without a profiler attached a GPU accepts these, too, and does nothing.
CU_API cuProfilerStart() {
  return entry([](Call& call) { call.context(); });
}

CU_API cuProfilerStop() {
  return entry([](Call& call) { call.context(); });
}
