// Nodes of graphs of any kind, and their parameters. Those of kernels and copies differ from the
// driver's; all others are passed on unchanged.
#include "runtime.hpp"

using namespace workbench::runtime;

namespace {

using Nodes = const CUgraphNode*;

KernelNodeParams runtime_kernel(const CUDA_KERNEL_NODE_PARAMS_v2& given) {
  return {symbol_of(given.func),
          {given.gridDimX, given.gridDimY, given.gridDimZ},
          {given.blockDimX, given.blockDimY, given.blockDimZ},
          given.sharedMemBytes,
          given.kernelParams,
          given.extra};
}

CopyKind kind_of(unsigned to, unsigned from) {
  const bool to_device = to == CU_MEMORYTYPE_DEVICE, from_device = from == CU_MEMORYTYPE_DEVICE;
  if (to == CU_MEMORYTYPE_UNIFIED || from == CU_MEMORYTYPE_UNIFIED) return kByAddress;
  if (to_device) return from_device ? kDeviceToDevice : kHostToDevice;
  return from_device ? kDeviceToHost : kHostToHost;
}

void* pointer_of(unsigned type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : reinterpret_cast<void*>(device);
}

Copy3D runtime_copy(const CUDA_MEMCPY3D& given) {
  Copy3D made{};
  made.from_position = {given.srcXInBytes, given.srcY, given.srcZ};
  made.from = {pointer_of(given.srcMemoryType, given.srcHost, given.srcDevice), given.srcPitch,
               given.WidthInBytes, given.srcHeight};
  made.to_position = {given.dstXInBytes, given.dstY, given.dstZ};
  made.to = {pointer_of(given.dstMemoryType, given.dstHost, given.dstDevice), given.dstPitch,
             given.WidthInBytes, given.dstHeight};
  made.extent = {given.WidthInBytes, given.Height, given.Depth};
  made.kind = kind_of(given.dstMemoryType, given.srcMemoryType);
  return made;
}

// Calls `use` with the driver's parameters, and copies its outputs back to the client's.
template <class Use>
CUresult with_params(NodeParams* params, Use&& use) {
  NodeParams& given = needed(params, "nodeParams");
  CUgraphNodeParams made{};
  std::memcpy(&made, &given, sizeof made);
  if (given.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    made.kernel = driver_kernel(given.kernel);
    return use(made);
  }
  if (given.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    made.memcpy = {given.memcpy.flags, 0, current_context(), driver_copy(given.memcpy.copy)};
    return use(made);
  }
  if (given.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) made.conditional.ctx = current_context();
  const CUresult result = use(made);
  std::memcpy(&given, &made, sizeof made);
  return result;
}

CUDA_MEMCPY3D to_symbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                        CopyKind kind) {
  return driver_copy(part_of(symbol, offset, bytes), from, bytes, kind);
}

CUDA_MEMCPY3D from_symbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                          CopyKind kind) {
  return driver_copy(to, part_of(symbol, offset, bytes), bytes, kind);
}

}  // namespace

CUDA_API cudaGraphAddNode(CUgraphNode* node, CUgraph graph, Nodes after,
                          const CUgraphEdgeData* edges, std::size_t count, NodeParams* params) {
  return call([&] {
    return with_params(params, [&](CUgraphNodeParams& given) {
      return cuGraphAddNode_v2(node, graph, after, edges, count, &given);
    });
  });
}

CUDA_API cudaGraphNodeSetParams(CUgraphNode node, NodeParams* params) {
  return call([&] {
    return with_params(
        params, [&](CUgraphNodeParams& given) { return cuGraphNodeSetParams(node, &given); });
  });
}

CUDA_API cudaGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node, NodeParams* params) {
  return call([&] {
    return with_params(params, [&](CUgraphNodeParams& given) {
      return cuGraphExecNodeSetParams(executable, node, &given);
    });
  });
}

CUDA_API cudaGraphKernelNodeGetParams(CUgraphNode node, KernelNodeParams* params) {
  return call([&] {
    KernelNodeParams& out = needed(params, "pNodeParams");
    CUDA_KERNEL_NODE_PARAMS_v2 given{};
    must(cuGraphKernelNodeGetParams_v2(node, &given));
    out = runtime_kernel(given);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaGraphMemcpyNodeGetParams(CUgraphNode node, Copy3D* params) {
  return call([&] {
    Copy3D& out = needed(params, "pNodeParams");
    CUDA_MEMCPY3D given{};
    must(cuGraphMemcpyNodeGetParams(node, &given));
    out = runtime_copy(given);
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
  return call([&] { return cuGraphMemsetNodeGetParams(node, params); });
}

CUDA_API cudaGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
  return call([&] { return cuGraphHostNodeGetParams(node, params); });
}

CUDA_API cudaGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  return call([&] { return cuGraphChildGraphNodeGetGraph(node, graph); });
}

CUDA_API cudaGraphNodeGetEnabled(CUgraphExec executable, CUgraphNode node, unsigned* enabled) {
  return call([&] { return cuGraphNodeGetEnabled(executable, node, enabled); });
}

CUDA_API cudaGraphNodeSetEnabled(CUgraphExec executable, CUgraphNode node, unsigned enabled) {
  return call([&] { return cuGraphNodeSetEnabled(executable, node, enabled); });
}

CUDA_API cudaGraphKernelNodeGetAttribute(CUgraphNode node, int which, void* value) {
  return call([&] { return cuGraphKernelNodeGetAttribute(node, which, value); });
}

CUDA_API cudaGraphKernelNodeSetAttribute(CUgraphNode node, int which, const void* value) {
  return call([&] { return cuGraphKernelNodeSetAttribute(node, which, value); });
}

CUDA_API cudaGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return call([&] { return cuGraphKernelNodeCopyAttributes(to, from); });
}

// ---- copies to and from variables ----

CUDA_API cudaGraphMemcpyNodeSetParamsToSymbol(CUgraphNode node, const void* symbol,
                                              const void* from, std::size_t bytes,
                                              std::size_t offset, CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D given = to_symbol(symbol, from, bytes, offset, kind);
    return cuGraphMemcpyNodeSetParams(node, &given);
  });
}

CUDA_API cudaGraphMemcpyNodeSetParamsFromSymbol(CUgraphNode node, void* to, const void* symbol,
                                                std::size_t bytes, std::size_t offset,
                                                CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D given = from_symbol(to, symbol, bytes, offset, kind);
    return cuGraphMemcpyNodeSetParams(node, &given);
  });
}

CUDA_API cudaGraphExecMemcpyNodeSetParamsToSymbol(CUgraphExec executable, CUgraphNode node,
                                                  const void* symbol, const void* from,
                                                  std::size_t bytes, std::size_t offset,
                                                  CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D given = to_symbol(symbol, from, bytes, offset, kind);
    return cuGraphExecMemcpyNodeSetParams(executable, node, &given, current_context());
  });
}

CUDA_API cudaGraphExecMemcpyNodeSetParamsFromSymbol(CUgraphExec executable, CUgraphNode node,
                                                    void* to, const void* symbol, std::size_t bytes,
                                                    std::size_t offset, CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D given = from_symbol(to, symbol, bytes, offset, kind);
    return cuGraphExecMemcpyNodeSetParams(executable, node, &given, current_context());
  });
}

// ---- events, memory, conditions ----

CUDA_API cudaGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, Nodes after,
                                     std::size_t count, CUevent event) {
  return call([&] { return cuGraphAddEventRecordNode(node, graph, after, count, event); });
}

CUDA_API cudaGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                   CUevent event) {
  return call([&] { return cuGraphAddEventWaitNode(node, graph, after, count, event); });
}

CUDA_API cudaGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return call([&] { return cuGraphEventRecordNodeGetEvent(node, event); });
}

CUDA_API cudaGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return call([&] { return cuGraphEventRecordNodeSetEvent(node, event); });
}

CUDA_API cudaGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return call([&] { return cuGraphEventWaitNodeGetEvent(node, event); });
}

CUDA_API cudaGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return call([&] { return cuGraphEventWaitNodeSetEvent(node, event); });
}

CUDA_API cudaGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node,
                                              CUevent event) {
  return call([&] { return cuGraphExecEventRecordNodeSetEvent(executable, node, event); });
}

CUDA_API cudaGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node,
                                            CUevent event) {
  return call([&] { return cuGraphExecEventWaitNodeSetEvent(executable, node, event); });
}

CUDA_API cudaGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                  CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return call([&] { return cuGraphAddMemAllocNode(node, graph, after, count, params); });
}

CUDA_API cudaGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                 void* pointer) {
  return call(
      [&] { return cuGraphAddMemFreeNode(node, graph, after, count, address_of(pointer)); });
}

CUDA_API cudaGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return call([&] { return cuGraphMemAllocNodeGetParams(node, params); });
}

CUDA_API cudaGraphMemFreeNodeGetParams(CUgraphNode node, void* pointer) {
  return call(
      [&] { return cuGraphMemFreeNodeGetParams(node, static_cast<CUdeviceptr*>(pointer)); });
}

CUDA_API cudaDeviceGetGraphMemAttribute(int device, int which, void* value) {
  return call([&] { return cuDeviceGetGraphMemAttribute(device, which, value); });
}

CUDA_API cudaDeviceSetGraphMemAttribute(int device, int which, void* value) {
  return call([&] { return cuDeviceSetGraphMemAttribute(device, which, value); });
}

CUDA_API cudaDeviceGraphMemTrim(int device) {
  return call([&] { return cuDeviceGraphMemTrim(device); });
}

CUDA_API cudaGraphConditionalHandleCreate(u64* handle, CUgraph graph, unsigned initial,
                                          unsigned flags) {
  return call([&] {
    return cuGraphConditionalHandleCreate(handle, graph, current_context(), initial, flags);
  });
}
