// The functions of the driver that the runtime calls.
#pragma once
#include "abi.hpp"

extern "C" {

// Beyond cuda.h: the message of the thread's latest failing call; the address in this process of a
// device address.
const char* workbench_driver_latest_error();
u64 workbench_driver_storage(u64 address);
// Queries an event for a client whose call returns to `caller`.
CUresult workbench_driver_query_event(CUevent event, const void* caller);
// Sets whether null is this thread's own stream (1) or the shared one. Returns the previous
// setting.
int workbench_driver_null_stream(int per_thread);
// Sets whether the runtime or the driver reports this thread's refused launches.
void workbench_driver_refusals_by_runtime(int by_runtime);
// Reports a refused launch. Returns its number, or 0 if there is nothing to report.
u64 workbench_driver_refused_launch(const char* kernel, const CUlaunchConfig* config, CUresult code,
                                    const char* error, const char* why);
// The program has read the error of the refused launch with this number.
void workbench_driver_fetched(u64 number);
// The error of a fault in this thread's latest launches that checks let go on. Each error is
// returned once.
CUresult workbench_driver_take_found();
// Whether an earlier kernel failed in the current context; and its fault.
int workbench_driver_has_fault();
CUresult workbench_driver_fault();

CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int*);
CUresult cuGetProcAddress_v2(const char*, void**, int, u64, int*);
CUresult cuProfilerStart();
CUresult cuProfilerStop();

CUresult cuDeviceGetCount(int*);
CUresult cuDeviceGetName(char*, int, CUdevice);
CUresult cuDeviceGetUuid_v2(unsigned char*, CUdevice);
CUresult cuDeviceTotalMem_v2(std::size_t*, CUdevice);
CUresult cuDeviceGetAttribute(int*, int, CUdevice);
CUresult cuDeviceGetPCIBusId(char*, int, CUdevice);
CUresult cuDeviceGetByPCIBusId(CUdevice*, const char*);
CUresult cuDeviceCanAccessPeer(int*, CUdevice, CUdevice);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxDisablePeerAccess(CUcontext);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream);
CUresult cuDeviceGetP2PAttribute(int*, int, CUdevice, CUdevice);

CUresult cuCtxGetCurrent(CUcontext*);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxGetDevice(CUdevice*);
CUresult cuCtxSynchronize();
CUresult cuCtxGetLimit(std::size_t*, int);
CUresult cuCtxSetLimit(int, std::size_t);
CUresult cuCtxGetCacheConfig(int*);
CUresult cuCtxSetCacheConfig(int);
CUresult cuCtxGetSharedMemConfig(int*);
CUresult cuCtxSetSharedMemConfig(int);
CUresult cuCtxGetStreamPriorityRange(int*, int*);
CUresult cuCtxResetPersistingL2Cache();
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned*, int*);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned);

CUresult cuModuleLoadFatBinary(CUmodule*, const void*);
CUresult cuLinkCreate_v2(unsigned, int*, void**, void**);
CUresult cuLinkAddData_v2(void*, int, void*, std::size_t, const char*, unsigned, int*, void**);
CUresult cuLinkComplete(void*, void**, std::size_t*);
CUresult cuLinkDestroy(void*);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule, const char*);
CUresult cuFuncGetName(const char**, CUfunction);
CUresult cuFuncGetAttribute(int*, int, CUfunction);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuFuncSetCacheConfig(CUfunction, int);
CUresult cuFuncGetParamInfo(CUfunction, std::size_t, std::size_t*, std::size_t*);
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void*);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, CUfunction, int, std::size_t,
                                                              unsigned);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(std::size_t*, CUfunction, int, int);
CUresult cuOccupancyMaxActiveClusters(int*, CUfunction, const CUlaunchConfig*);
CUresult cuLibraryLoadData(void**, const void*, int*, void**, unsigned, int*, void**, unsigned);
CUresult cuLibraryLoadFromFile(void**, const char*, int*, void**, unsigned, int*, void**, unsigned);
CUresult cuLibraryUnload(void*);
CUresult cuLibraryGetKernel(void**, void*, const char*);
CUresult cuLibraryGetKernelCount(unsigned*, void*);
CUresult cuLibraryEnumerateKernels(void**, unsigned, void*);
CUresult cuLibraryGetGlobal(CUdeviceptr*, std::size_t*, void*, const char*);
CUresult cuKernelSetAttribute(int, int, void*, CUdevice);

CUresult cuMemGetInfo_v2(std::size_t*, std::size_t*);
CUresult cuMemAlloc_v2(CUdeviceptr*, std::size_t);
CUresult cuMemAllocPitch_v2(CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr*, std::size_t, unsigned);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemHostAlloc(void**, std::size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemHostRegister_v2(void*, std::size_t, unsigned);
CUresult cuMemHostUnregister(void*);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr*, void*, unsigned);
CUresult cuMemHostGetFlags(unsigned*, void*);
CUresult cuPointerGetAttributes(unsigned, const int*, void**, CUdeviceptr);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream);
CUresult cuMemAdvise_v2(CUdeviceptr, std::size_t, int, CUmemLocation);
CUresult cuMemAllocAsync(CUdeviceptr*, std::size_t, CUstream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool*, CUdevice);
CUresult cuDeviceGetMemPool(CUmemoryPool*, CUdevice);
CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool);
CUresult cuMemPoolCreate(CUmemoryPool*, const CUmemPoolProps*);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolTrimTo(CUmemoryPool, std::size_t);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void*);
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, const void*);
CUresult cuMemPoolGetAccess(int*, CUmemoryPool, const CUmemLocation*);
CUresult cuMemPoolSetAccess(CUmemoryPool, const void*, std::size_t);
CUresult cuMemGetDefaultMemPool(CUmemoryPool*, const CUmemLocation*, int);
CUresult cuMemGetMemPool(CUmemoryPool*, const CUmemLocation*, int);

CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, std::size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, std::size_t);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, std::size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t, CUstream);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, std::size_t);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, std::size_t, CUstream);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D*);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D*, CUstream);
CUresult cuMemsetD2D8_v2(CUdeviceptr, std::size_t, u8, std::size_t, std::size_t);
CUresult cuMemsetD2D8Async(CUdeviceptr, std::size_t, u8, std::size_t, std::size_t, CUstream);
CUresult cuMemsetD8_v2(CUdeviceptr, u8, std::size_t);
CUresult cuMemsetD8Async(CUdeviceptr, u8, std::size_t, CUstream);

CUresult cuStreamCreateWithPriority(CUstream*, unsigned, int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamGetPriority(CUstream, int*);
CUresult cuStreamGetFlags(CUstream, unsigned*);
CUresult cuStreamGetId(CUstream, u64*);
CUresult cuStreamGetDevice(CUstream, CUdevice*);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamAddCallback(CUstream, CUstreamCallback, void*, unsigned);
CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, std::size_t, unsigned);
CUresult cuStreamSetAttribute(CUstream, int, const void*);
CUresult cuStreamGetAttribute(CUstream, int, void*);
CUresult cuStreamCopyAttributes(CUstream, CUstream);
CUresult cuMemRangeGetAttribute(void*, std::size_t, int, CUdeviceptr, std::size_t);
CUresult cuMemRangeGetAttributes(void**, std::size_t*, const int*, std::size_t, CUdeviceptr,
                                 std::size_t);
CUresult cuMemcpyBatchAsync_v2(const CUdeviceptr*, const CUdeviceptr*, const std::size_t*,
                               std::size_t, const void*, const std::size_t*, std::size_t, CUstream);
CUresult cuMemPrefetchBatchAsync(const CUdeviceptr*, const std::size_t*, std::size_t,
                                 const CUmemLocation*, const std::size_t*, std::size_t,
                                 unsigned long long, CUstream);
CUresult cuMemSetMemPool(const CUmemLocation*, int, CUmemoryPool);
CUresult cuStreamBeginCapture_v2(CUstream, unsigned);
CUresult cuStreamEndCapture(CUstream, CUgraph*);
CUresult cuStreamIsCapturing(CUstream, unsigned*);
CUresult cuStreamGetCaptureInfo_v3(CUstream, unsigned*, u64*, CUgraph*, const CUgraphNode**,
                                   const void**, std::size_t*);
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream, const CUgraphNode*, const void*,
                                              std::size_t, unsigned);
CUresult cuThreadExchangeStreamCaptureMode(unsigned*);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventQuery(CUevent);
CUresult cuEventElapsedTime_v2(float*, CUevent, CUevent);

CUresult cuGraphCreate(CUgraph*, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphDestroyNode(CUgraphNode);
CUresult cuGraphAddKernelNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                                 const CUDA_KERNEL_NODE_PARAMS_v2*);
CUresult cuGraphAddMemcpyNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                              const CUDA_MEMCPY3D*, CUcontext);
CUresult cuGraphAddMemsetNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                              const CUDA_MEMSET_NODE_PARAMS*, CUcontext);
CUresult cuGraphAddHostNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                            const CUDA_HOST_NODE_PARAMS*);
CUresult cuGraphAddEmptyNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t);
CUresult cuGraphAddChildGraphNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph);
CUresult cuGraphAddEventRecordNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUevent);
CUresult cuGraphAddEventWaitNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUevent);
CUresult cuGraphAddMemAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS*);
CUresult cuGraphAddMemFreeNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr);
CUresult cuGraphAddNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                           std::size_t, CUgraphNodeParams*);
CUresult cuGraphNodeSetParams(CUgraphNode, CUgraphNodeParams*);
CUresult cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams*);
CUresult cuGraphConditionalHandleCreate(u64*, CUgraph, CUcontext, unsigned, unsigned);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*);
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode, CUDA_MEMCPY3D*);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode, CUDA_MEMSET_NODE_PARAMS*);
CUresult cuGraphHostNodeGetParams(CUgraphNode, CUDA_HOST_NODE_PARAMS*);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode, CUdeviceptr*);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph*);
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode, CUevent*);
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode, CUevent);
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode, CUevent*);
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode, CUevent);
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec, CUgraphNode, CUevent);
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec, CUgraphNode, CUevent);
CUresult cuGraphNodeGetEnabled(CUgraphExec, CUgraphNode, unsigned*);
CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode, int, void*);
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, int, const void*);
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode, CUgraphNode);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, int, void*);
CUresult cuDeviceSetGraphMemAttribute(CUdevice, int, void*);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                                     std::size_t, unsigned);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2*);
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode, const CUDA_MEMCPY3D*);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*);
CUresult cuGraphHostNodeSetParams(CUgraphNode, const CUDA_HOST_NODE_PARAMS*);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode,
                                           const CUDA_KERNEL_NODE_PARAMS_v2*);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*,
                                        CUcontext);
CUresult cuGraphExecHostNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_HOST_NODE_PARAMS*);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec, CUgraphNode, CUgraph);
CUresult cuGraphAddDependencies_v2(CUgraph, const CUgraphNode*, const CUgraphNode*,
                                   const CUgraphEdgeData*, std::size_t);
CUresult cuGraphClone(CUgraph*, CUgraph);
CUresult cuGraphNodeFindInClone(CUgraphNode*, CUgraphNode, CUgraph);
CUresult cuGraphGetEdges_v2(CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, std::size_t*);
CUresult cuGraphRemoveDependencies_v2(CUgraph, const CUgraphNode*, const CUgraphNode*,
                                      const CUgraphEdgeData*, std::size_t);
CUresult cuGraphDebugDotPrint(CUgraph, const char*, unsigned);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode*, std::size_t*);
CUresult cuGraphGetRootNodes(CUgraph, CUgraphNode*, std::size_t*);
CUresult cuGraphNodeGetType(CUgraphNode, int*);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, std::size_t*);
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, std::size_t*);
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
CUresult cuGraphInstantiateWithParams(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*);
CUresult cuGraphExecGetFlags(CUgraphExec, u64*);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*);
CUresult cuGraphUpload(CUgraphExec, CUstream);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuUserObjectCreate(void**, void*, CUhostFn, unsigned, unsigned);
CUresult cuUserObjectRetain(void*, unsigned);
CUresult cuUserObjectRelease(void*, unsigned);
CUresult cuGraphRetainUserObject(CUgraph, void*, unsigned, unsigned);
CUresult cuGraphReleaseUserObject(CUgraph, void*, unsigned);

}  // extern "C"
