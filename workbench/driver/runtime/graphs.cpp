// Graphs: the driver's, but kernels are given by their host functions and copies have kinds.
#include "runtime.hpp"

using namespace workbench::runtime;

namespace {

using Nodes = const CUgraphNode*;

CUresult add_copy(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                  const CUDA_MEMCPY3D& given) {
  return cuGraphAddMemcpyNode(node, graph, after, count, &given, current_context());
}

}  // namespace

CUDA_API cudaGraphCreate(CUgraph* graph, unsigned flags) {
  return call([&] { return cuGraphCreate(graph, flags); });
}
CUDA_API cudaGraphDestroy(CUgraph graph) {
  return freeing([&] { return cuGraphDestroy(graph); });
}
CUDA_API cudaGraphDestroyNode(CUgraphNode node) {
  return freeing([&] { return cuGraphDestroyNode(node); });
}

CUDA_API cudaGraphAddKernelNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                const KernelNodeParams* params) {
  return call([&] {
    const auto given = driver_kernel(needed(params, "params"));
    return cuGraphAddKernelNode_v2(node, graph, after, count, &given);
  });
}

CUDA_API cudaGraphKernelNodeSetParams(CUgraphNode node, const KernelNodeParams* params) {
  return call([&] {
    const auto given = driver_kernel(needed(params, "params"));
    return cuGraphKernelNodeSetParams_v2(node, &given);
  });
}

CUDA_API cudaGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                          const KernelNodeParams* params) {
  return call([&] {
    const auto given = driver_kernel(needed(params, "params"));
    return cuGraphExecKernelNodeSetParams_v2(executable, node, &given);
  });
}

CUDA_API cudaGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                const Copy3D* params) {
  return call(
      [&] { return add_copy(node, graph, after, count, driver_copy(needed(params, "params"))); });
}

CUDA_API cudaGraphAddMemcpyNode1D(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                  void* to, const void* from, std::size_t bytes, CopyKind kind) {
  return call(
      [&] { return add_copy(node, graph, after, count, driver_copy(to, from, bytes, kind)); });
}

CUDA_API cudaGraphAddMemcpyNodeToSymbol(CUgraphNode* node, CUgraph graph, Nodes after,
                                        std::size_t count, const void* symbol, const void* from,
                                        std::size_t bytes, std::size_t offset, CopyKind kind) {
  return call([&] {
    return add_copy(node, graph, after, count,
                    driver_copy(part_of(symbol, offset, bytes), from, bytes, kind));
  });
}

CUDA_API cudaGraphAddMemcpyNodeFromSymbol(CUgraphNode* node, CUgraph graph, Nodes after,
                                          std::size_t count, void* to, const void* symbol,
                                          std::size_t bytes, std::size_t offset, CopyKind kind) {
  return call([&] {
    return add_copy(node, graph, after, count,
                    driver_copy(to, part_of(symbol, offset, bytes), bytes, kind));
  });
}

CUDA_API cudaGraphMemcpyNodeSetParams(CUgraphNode node, const Copy3D* params) {
  return call([&] {
    const CUDA_MEMCPY3D given = driver_copy(needed(params, "params"));
    return cuGraphMemcpyNodeSetParams(node, &given);
  });
}

CUDA_API cudaGraphMemcpyNodeSetParams1D(CUgraphNode node, void* to, const void* from,
                                        std::size_t bytes, CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D given = driver_copy(to, from, bytes, kind);
    return cuGraphMemcpyNodeSetParams(node, &given);
  });
}

CUDA_API cudaGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                          const Copy3D* params) {
  return call([&] {
    const CUDA_MEMCPY3D given = driver_copy(needed(params, "params"));
    return cuGraphExecMemcpyNodeSetParams(executable, node, &given, current_context());
  });
}

CUDA_API cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec executable, CUgraphNode node, void* to,
                                            const void* from, std::size_t bytes, CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D given = driver_copy(to, from, bytes, kind);
    return cuGraphExecMemcpyNodeSetParams(executable, node, &given, current_context());
  });
}

// The parameters of fills and host functions are laid out as the driver's.
CUDA_API cudaGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                                const CUDA_MEMSET_NODE_PARAMS* params) {
  return call(
      [&] { return cuGraphAddMemsetNode(node, graph, after, count, params, current_context()); });
}

CUDA_API cudaGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return call([&] { return cuGraphMemsetNodeSetParams(node, params); });
}

CUDA_API cudaGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                          const CUDA_MEMSET_NODE_PARAMS* params) {
  return call(
      [&] { return cuGraphExecMemsetNodeSetParams(executable, node, params, current_context()); });
}

CUDA_API cudaGraphAddHostNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count,
                              const CUDA_HOST_NODE_PARAMS* params) {
  return call([&] { return cuGraphAddHostNode(node, graph, after, count, params); });
}

CUDA_API cudaGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return call([&] { return cuGraphHostNodeSetParams(node, params); });
}

CUDA_API cudaGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_HOST_NODE_PARAMS* params) {
  return call([&] { return cuGraphExecHostNodeSetParams(executable, node, params); });
}

CUDA_API cudaGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, Nodes after, std::size_t count) {
  return call([&] { return cuGraphAddEmptyNode(node, graph, after, count); });
}

CUDA_API cudaGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, Nodes after,
                                    std::size_t count, CUgraph child) {
  return call([&] { return cuGraphAddChildGraphNode(node, graph, after, count, child); });
}

CUDA_API cudaGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                              CUgraph child) {
  return call([&] { return cuGraphExecChildGraphNodeSetParams(executable, node, child); });
}

CUDA_API cudaGraphAddDependencies(CUgraph graph, Nodes from, Nodes to, const CUgraphEdgeData* edges,
                                  std::size_t count) {
  return call([&] { return cuGraphAddDependencies_v2(graph, from, to, edges, count); });
}

CUDA_API cudaGraphRemoveDependencies(CUgraph graph, Nodes from, Nodes to,
                                     const CUgraphEdgeData* edges, std::size_t count) {
  return call([&] { return cuGraphRemoveDependencies_v2(graph, from, to, edges, count); });
}

CUDA_API cudaGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                           CUgraphEdgeData* edges, std::size_t* count) {
  return call([&] { return cuGraphGetEdges_v2(graph, from, to, edges, count); });
}

CUDA_API cudaGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  return call([&] { return cuGraphDebugDotPrint(graph, path, flags); });
}

CUDA_API cudaGraphClone(CUgraph* clone, CUgraph graph) {
  return call([&] { return cuGraphClone(clone, graph); });
}

CUDA_API cudaGraphNodeFindInClone(CUgraphNode* node, CUgraphNode original, CUgraph clone) {
  return call([&] { return cuGraphNodeFindInClone(node, original, clone); });
}

CUDA_API cudaGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return call([&] { return cuGraphGetNodes(graph, nodes, count); });
}
CUDA_API cudaGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return call([&] { return cuGraphGetRootNodes(graph, nodes, count); });
}
CUDA_API cudaGraphNodeGetType(CUgraphNode node, int* type) {
  return call([&] { return cuGraphNodeGetType(node, type); });
}

CUDA_API cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                      std::size_t* count) {
  return call([&] { return cuGraphNodeGetDependencies_v2(node, nodes, edges, count); });
}

CUDA_API cudaGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes,
                                        CUgraphEdgeData* edges, std::size_t* count) {
  return call([&] { return cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count); });
}

// ---- graphs that run ----

CUDA_API cudaGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                       unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(executable, graph, flags); });
}

CUDA_API cudaGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

CUDA_API cudaGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph,
                                        CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return call([&] { return cuGraphInstantiateWithParams(executable, graph, params); });
}

CUDA_API cudaGraphExecGetFlags(CUgraphExec executable, u64* flags) {
  return call([&] { return cuGraphExecGetFlags(executable, flags); });
}

CUDA_API cudaGraphExecUpdate(CUgraphExec executable, CUgraph graph,
                             CUgraphExecUpdateResultInfo* info) {
  return call([&] { return cuGraphExecUpdate_v2(executable, graph, info); });
}

CUDA_API cudaGraphUpload(CUgraphExec executable, CUstream stream) {
  return call([&] { return cuGraphUpload(executable, stream); });
}
CUDA_API cudaGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call([&] { return cuGraphLaunch(executable, stream); });
}
CUDA_API cudaGraphExecDestroy(CUgraphExec executable) {
  return freeing([&] { return cuGraphExecDestroy(executable); });
}

CUDA_API cudaUserObjectCreate(void** object, void* data, CUhostFn end, unsigned count,
                              unsigned flags) {
  return call([&] { return cuUserObjectCreate(object, data, end, count, flags); });
}

CUDA_API cudaUserObjectRetain(void* object, unsigned count) {
  return call([&] { return cuUserObjectRetain(object, count); });
}
CUDA_API cudaUserObjectRelease(void* object, unsigned count) {
  return freeing([&] { return cuUserObjectRelease(object, count); });
}

CUDA_API cudaGraphRetainUserObject(CUgraph graph, void* object, unsigned count, unsigned flags) {
  return call([&] { return cuGraphRetainUserObject(graph, object, count, flags); });
}

CUDA_API cudaGraphReleaseUserObject(CUgraph graph, void* object, unsigned count) {
  return freeing([&] { return cuGraphReleaseUserObject(graph, object, count); });
}

PER_THREAD(cudaGraphInstantiateWithParams, _ptsz,
           (CUgraphExec * executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params),
           (executable, graph, params))
PER_THREAD(cudaGraphUpload, _ptsz, (CUgraphExec executable, CUstream stream), (executable, stream))
PER_THREAD(cudaGraphLaunch, _ptsz, (CUgraphExec executable, CUstream stream), (executable, stream))
