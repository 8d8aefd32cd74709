// Functions of the real library that are not supported here. Each error names the missing feature
// and a replacement.
#include "runtime.hpp"

using namespace workbench::runtime;

namespace {
constexpr const char* kNoArrays =
    ": the PTX machine has no textures, surfaces or CUDA arrays; read linear memory instead";
constexpr const char* kGraphics =
    ": nothing is shared with graphics or with other devices; copy through the host";
constexpr const char* kProcesses = ": memory and events are of this process alone";
constexpr const char* kPeers = ": copies between devices are cudaMemcpyPeer's";
constexpr const char* kClusters =
    ": how many clusters fit is not known here; launch with a cluster of 8 blocks or fewer";
constexpr const char* kBatches = ": copy one box at a time";
constexpr const char* kLogs = ": there is no log to read; cudaGetErrorString says what went wrong";
constexpr const char* kManaged =
    ": managed variables of libraries have no address that the host has, too; use a __device__ "
    "variable and copies";
constexpr const char* kLibraries = ": ask for a kernel or a variable of a library by its name";
constexpr const char* kTables =
    ": tables that NVIDIA's driver and its libraries share; nothing here has them";
}  // namespace

// The arguments are ignored: a caller may pass more than a function takes.
#define REFUSED(name, why) \
  CUDA_API name() { return failed(cudaErrorNotSupported, std::string(#name) + why); }

REFUSED(cudaArrayGetInfo, kNoArrays)
REFUSED(cudaArrayGetMemoryRequirements, kNoArrays)
REFUSED(cudaArrayGetPlane, kNoArrays)
REFUSED(cudaArrayGetSparseProperties, kNoArrays)
REFUSED(cudaCreateSurfaceObject, kNoArrays)
REFUSED(cudaCreateTextureObject, kNoArrays)
REFUSED(cudaDestroySurfaceObject, kNoArrays)
REFUSED(cudaDestroyTextureObject, kNoArrays)
REFUSED(cudaDeviceGetTexture1DLinearMaxWidth, kNoArrays)
REFUSED(cudaFreeArray, kNoArrays)
REFUSED(cudaFreeMipmappedArray, kNoArrays)
REFUSED(cudaGetChannelDesc, kNoArrays)
REFUSED(cudaGetMipmappedArrayLevel, kNoArrays)
REFUSED(cudaGetSurfaceObjectResourceDesc, kNoArrays)
REFUSED(cudaGetTextureObjectResourceDesc, kNoArrays)
REFUSED(cudaGetTextureObjectResourceViewDesc, kNoArrays)
REFUSED(cudaGetTextureObjectTextureDesc, kNoArrays)
REFUSED(cudaMalloc3DArray, kNoArrays)
REFUSED(cudaMallocArray, kNoArrays)
REFUSED(cudaMallocMipmappedArray, kNoArrays)
REFUSED(cudaMemcpy2DArrayToArray, kNoArrays)
ALIAS(cudaMemcpy2DArrayToArray, _ptds)
REFUSED(cudaMemcpy2DFromArray, kNoArrays)
ALIAS(cudaMemcpy2DFromArray, _ptds)
REFUSED(cudaMemcpy2DFromArrayAsync, kNoArrays)
ALIAS(cudaMemcpy2DFromArrayAsync, _ptsz)
REFUSED(cudaMemcpy2DToArray, kNoArrays)
ALIAS(cudaMemcpy2DToArray, _ptds)
REFUSED(cudaMemcpy2DToArrayAsync, kNoArrays)
ALIAS(cudaMemcpy2DToArrayAsync, _ptsz)
REFUSED(cudaMemcpyArrayToArray, kNoArrays)
ALIAS(cudaMemcpyArrayToArray, _ptds)
REFUSED(cudaMemcpyFromArray, kNoArrays)
ALIAS(cudaMemcpyFromArray, _ptds)
REFUSED(cudaMemcpyFromArrayAsync, kNoArrays)
ALIAS(cudaMemcpyFromArrayAsync, _ptsz)
REFUSED(cudaMemcpyToArray, kNoArrays)
ALIAS(cudaMemcpyToArray, _ptds)
REFUSED(cudaMemcpyToArrayAsync, kNoArrays)
ALIAS(cudaMemcpyToArrayAsync, _ptsz)
REFUSED(cudaMipmappedArrayGetMemoryRequirements, kNoArrays)
REFUSED(cudaMipmappedArrayGetSparseProperties, kNoArrays)

REFUSED(cudaDestroyExternalMemory, kGraphics)
REFUSED(cudaDestroyExternalSemaphore, kGraphics)
REFUSED(cudaDeviceGetNvSciSyncAttributes, kGraphics)
REFUSED(cudaEGLStreamConsumerAcquireFrame, kGraphics)
REFUSED(cudaEGLStreamConsumerConnect, kGraphics)
REFUSED(cudaEGLStreamConsumerConnectWithFlags, kGraphics)
REFUSED(cudaEGLStreamConsumerDisconnect, kGraphics)
REFUSED(cudaEGLStreamConsumerReleaseFrame, kGraphics)
REFUSED(cudaEGLStreamProducerConnect, kGraphics)
REFUSED(cudaEGLStreamProducerDisconnect, kGraphics)
REFUSED(cudaEGLStreamProducerPresentFrame, kGraphics)
REFUSED(cudaEGLStreamProducerReturnFrame, kGraphics)
REFUSED(cudaEventCreateFromEGLSync, kGraphics)
REFUSED(cudaExternalMemoryGetMappedBuffer, kGraphics)
REFUSED(cudaExternalMemoryGetMappedMipmappedArray, kGraphics)
REFUSED(cudaGLGetDevices, kGraphics)
REFUSED(cudaGLMapBufferObject, kGraphics)
REFUSED(cudaGLMapBufferObjectAsync, kGraphics)
REFUSED(cudaGLRegisterBufferObject, kGraphics)
REFUSED(cudaGLSetBufferObjectMapFlags, kGraphics)
REFUSED(cudaGLSetGLDevice, kGraphics)
REFUSED(cudaGLUnmapBufferObject, kGraphics)
REFUSED(cudaGLUnmapBufferObjectAsync, kGraphics)
REFUSED(cudaGLUnregisterBufferObject, kGraphics)
REFUSED(cudaGraphAddExternalSemaphoresSignalNode, kGraphics)
REFUSED(cudaGraphAddExternalSemaphoresWaitNode, kGraphics)
REFUSED(cudaGraphExecExternalSemaphoresSignalNodeSetParams, kGraphics)
REFUSED(cudaGraphExecExternalSemaphoresWaitNodeSetParams, kGraphics)
REFUSED(cudaGraphExternalSemaphoresSignalNodeGetParams, kGraphics)
REFUSED(cudaGraphExternalSemaphoresSignalNodeSetParams, kGraphics)
REFUSED(cudaGraphExternalSemaphoresWaitNodeGetParams, kGraphics)
REFUSED(cudaGraphExternalSemaphoresWaitNodeSetParams, kGraphics)
REFUSED(cudaGraphicsEGLRegisterImage, kGraphics)
REFUSED(cudaGraphicsGLRegisterBuffer, kGraphics)
REFUSED(cudaGraphicsGLRegisterImage, kGraphics)
REFUSED(cudaGraphicsMapResources, kGraphics)
REFUSED(cudaGraphicsResourceGetMappedEglFrame, kGraphics)
REFUSED(cudaGraphicsResourceGetMappedMipmappedArray, kGraphics)
REFUSED(cudaGraphicsResourceGetMappedPointer, kGraphics)
REFUSED(cudaGraphicsResourceSetMapFlags, kGraphics)
REFUSED(cudaGraphicsSubResourceGetMappedArray, kGraphics)
REFUSED(cudaGraphicsUnmapResources, kGraphics)
REFUSED(cudaGraphicsUnregisterResource, kGraphics)
REFUSED(cudaGraphicsVDPAURegisterOutputSurface, kGraphics)
REFUSED(cudaGraphicsVDPAURegisterVideoSurface, kGraphics)
REFUSED(cudaImportExternalMemory, kGraphics)
REFUSED(cudaImportExternalSemaphore, kGraphics)
REFUSED(cudaSignalExternalSemaphoresAsync, kGraphics)
ALIAS(cudaSignalExternalSemaphoresAsync, _ptsz)
REFUSED(cudaVDPAUGetDevice, kGraphics)
REFUSED(cudaVDPAUSetVDPAUDevice, kGraphics)
REFUSED(cudaWaitExternalSemaphoresAsync, kGraphics)
ALIAS(cudaWaitExternalSemaphoresAsync, _ptsz)

REFUSED(cudaIpcCloseMemHandle, kProcesses)
REFUSED(cudaIpcGetEventHandle, kProcesses)
REFUSED(cudaIpcGetMemHandle, kProcesses)
REFUSED(cudaIpcOpenEventHandle, kProcesses)
REFUSED(cudaIpcOpenMemHandle, kProcesses)
REFUSED(cudaMemPoolExportPointer, kProcesses)
REFUSED(cudaMemPoolExportToShareableHandle, kProcesses)
REFUSED(cudaMemPoolImportFromShareableHandle, kProcesses)
REFUSED(cudaMemPoolImportPointer, kProcesses)

REFUSED(cudaDeviceFlushGPUDirectRDMAWrites, kPeers)
REFUSED(cudaDeviceGetHostAtomicCapabilities, kPeers)
REFUSED(cudaDeviceGetP2PAtomicCapabilities, kPeers)
REFUSED(cudaMemcpy3DPeer, kPeers)
ALIAS(cudaMemcpy3DPeer, _ptds)
REFUSED(cudaMemcpy3DPeerAsync, kPeers)
ALIAS(cudaMemcpy3DPeerAsync, _ptsz)

REFUSED(cudaOccupancyMaxPotentialClusterSize, kClusters)

REFUSED(cudaMemcpy3DBatchAsync, kBatches)
ALIAS(cudaMemcpy3DBatchAsync, _ptsz)

REFUSED(cudaDeviceRegisterAsyncNotification, kLogs)
REFUSED(cudaDeviceUnregisterAsyncNotification, kLogs)
REFUSED(cudaLogsCurrent, kLogs)
REFUSED(cudaLogsDumpToFile, kLogs)
REFUSED(cudaLogsDumpToMemory, kLogs)
REFUSED(cudaLogsRegisterCallback, kLogs)
REFUSED(cudaLogsUnregisterCallback, kLogs)

REFUSED(cudaLibraryGetManaged, kManaged)
REFUSED(cudaLibraryGetUnifiedFunction, kLibraries)

REFUSED(__cudaGetProcAddress, kTables)
REFUSED(cudaGetExportTable, kTables)
