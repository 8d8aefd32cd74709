// Nodes of graphs by their kinds: adds them, reads their parameters, and changes them.
#include <algorithm>
#include <cstring>

#include "graphs.hpp"

namespace workbench::driver {

NodeWork host_work(CUhostFn function, void* data) {
  if (!function) throw Refused{CUDA_ERROR_INVALID_VALUE, "the function is a null pointer"};
  const Operation run = [function, data](Call& call, CUstream stream) {
    settle(call, *call.context(), stream);
    advance(*call.context(), stream, state().device.operation_seconds);
    const HostFunction running(*call.context(), stream);
    call.lock.unlock();
    function(data);
    call.lock.lock();
  };
  return {run, CUDA_HOST_NODE_PARAMS{function, data}};
}

namespace {

template <class Params>
MakeWork kernel(const Params* params) {
  return [params](Call& call) {
    const Params& given = needed(params, "params");
    CUDA_KERNEL_NODE_PARAMS plain = given;
    if constexpr (requires { given.kern; }) {
      if (!plain.func) plain.func = given.kern;
    }
    return kernel_work(call, plain);
  };
}

MakeWork copy_of(const CUDA_MEMCPY3D* params) {
  return [params](Call& call) {
    return copy_work(needed(params, "params"), order_recorded(call, "a copy"));
  };
}

MakeWork fill_of(const CUDA_MEMSET_NODE_PARAMS* params) {
  return [params](Call&) { return fill_work(needed(params, "params")); };
}

MakeWork host_of(const CUDA_HOST_NODE_PARAMS* params) {
  return [params](Call&) { return host_work(needed(params, "params").fn, params->userData); };
}

MakeWork nothing() {
  return [](Call&) { return NodeWork{[](Call&, CUstream) {}}; };
}

// Gives a graph inside a node a handle, by which it can be changed until the outer one is
// instantiated.
ChildNode child_of(const std::shared_ptr<Graph>& graph) {
  const u64 handle = new_handle();
  state().graphs[handle] = graph;
  return {handle, graph};
}

MakeWork graph_work(CUgraph child) {
  return [child](Call&) {
    return NodeWork{nullptr, child_of(clone_of(graph_of(child), "a child graph"))};
  };
}

MakeWork record_of(CUevent event) {
  return [event](Call&) { return record_work(event); };
}

MakeWork wait_of(CUevent event) {
  return [event](Call&) { return wait_work(event); };
}

MakeWork allocation_of(CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return [params](Call&) { return allocation_work(needed(params, "params")); };
}

MakeWork free_of(CUdeviceptr address) {
  return [address](Call&) { return free_work(address); };
}

MakeWork condition_of(CUDA_CONDITIONAL_NODE_PARAMS& params) {
  return [&params](Call&) {
    const bool is_switch = params.type == CU_GRAPH_COND_TYPE_SWITCH;
    const unsigned most = params.type == CU_GRAPH_COND_TYPE_IF ? 2 : 1;
    if (params.type < CU_GRAPH_COND_TYPE_IF || params.type > CU_GRAPH_COND_TYPE_SWITCH)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown type of a conditional node"};
    if (!params.size || (!is_switch && params.size > most))
      throw Refused{CUDA_ERROR_INVALID_VALUE, "a conditional node of this type has " +
                                                  std::string(most > 1 ? "1 or 2" : "1") +
                                                  " graphs, not " + std::to_string(params.size)};
    const auto found = state().conditions.find(params.handle);
    if (found == state().conditions.end())
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "no such condition: cuGraphConditionalHandleCreate makes them"};
    ConditionalNode node{params.handle, params.type, {}, nullptr};
    for (unsigned i = 0; i < params.size; ++i)
      node.bodies.push_back(
          child_of(std::make_shared<Graph>(Graph{found->second.number->context})));
    node.handles = std::make_shared<std::vector<CUgraph>>();
    for (const ChildNode& body : node.bodies)
      node.handles->push_back(reinterpret_cast<CUgraph>(body.handle));
    params.phGraph_out = node.handles->data();
    return NodeWork{nullptr, std::move(node)};
  };
}

// The work of a node of the kind that its parameters name.
MakeWork work_of(CUgraphNodeParams& params) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return kernel(&params.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copy_of(&params.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: return fill_of(&params.memset);
    case CU_GRAPH_NODE_TYPE_HOST: return host_of(&params.host);
    case CU_GRAPH_NODE_TYPE_GRAPH: return graph_work(params.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return nothing();
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return wait_of(params.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return record_of(params.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return allocation_of(&params.alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return free_of(params.free);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return condition_of(params.conditional);
    default:
      throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                    "nodes of type " + std::to_string(params.type) +
                        ": graphs signal nothing outside of them but events, and streams do not "
                        "watch memory"};
  }
}

CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
             CUgraphNodeType type, const MakeWork& make) {
  return entry([&](Call& call) { add_node(call, out, graph, after, count, type, make); });
}

void check_type(const GraphNode& node, int type) {
  if (node.type != type) throw Refused{CUDA_ERROR_INVALID_VALUE, "the node is of another kind"};
}

// Replaces the parameters of a node.
CUresult replace(CUgraphNode handle, CUgraphNodeType type, const MakeWork& make) {
  return entry([&](Call& call) {
    GraphNode& node = node_of(handle);
    check_type(node, type);
    node.work = make(call);
  });
}

void replace_step(Call& call, CUgraphExec executable, CUgraphNode handle, int type,
                  const MakeWork& make) {
  GraphNode& node = step_of(executable, handle);
  check_type(node, type);
  NodeWork work = make(call);
  Executable& owner = *find_handle(state().executables, executable, "executable graph");
  if (Operation inner = runs_of(work.params, owner)) work.run = std::move(inner);
  node.work = std::move(work);
}

CUresult replace_step(CUgraphExec executable, CUgraphNode handle, CUgraphNodeType type,
                      const MakeWork& make) {
  return entry([&](Call& call) { replace_step(call, executable, handle, type, make); });
}

// The parameters of a node. Refuses a node of another kind, and a captured one without parameters.
template <class Params>
const Params& params_of(CUgraphNode handle) {
  const auto* found = std::get_if<Params>(&node_of(handle).work.params);
  if (!found) throw Refused{CUDA_ERROR_INVALID_VALUE, "the node has no parameters of this kind"};
  return *found;
}

template <class Params>
CUresult read(CUgraphNode handle, Params* out) {
  return entry([&](Call&) { needed(out, "params") = params_of<Params>(handle); });
}

using Kernel = std::shared_ptr<const KernelNode>;

void put_kernel(const KernelNode& node, CUDA_KERNEL_NODE_PARAMS& out) {
  const HookLaunch& launch = node.launch;
  out = {node.handle,     launch.grid[0],  launch.grid[1],        launch.grid[2], launch.block[0],
         launch.block[1], launch.block[2], launch.dynamic_shared, nullptr,        nullptr};
  out.kernelParams = const_cast<void**>(node.pointers.data());
}

u64 event_of(CUgraphNode handle, CUgraphNodeType type) {
  check_type(node_of(handle), type);
  return params_of<EventNode>(handle).handle;
}

CUresult read_event(CUgraphNode handle, CUgraphNodeType type, CUevent* out) {
  return entry(
      [&](Call&) { needed(out, "event") = reinterpret_cast<CUevent>(event_of(handle, type)); });
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

// ---- adding ----

CU_API cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                         const CUgraphEdgeData* edges, std::size_t count,
                         CUgraphNodeParams* params) {
  return entry([&](Call& call) {
    check_edges(edges, count);
    CUgraphNodeParams& given = needed(params, "params");
    add_node(call, out, graph, after, count, static_cast<CUgraphNodeType>(given.type),
             work_of(given));
  });
}

CU_API cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                      CUgraphNodeParams* params) {
  return cuGraphAddNode_v2(out, graph, after, nullptr, count, params);
}

CU_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                            std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                               std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                            std::size_t count, const CUDA_MEMCPY3D* params, CUcontext) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, copy_of(params));
}

CU_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                            std::size_t count, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMSET, fill_of(params));
}

CU_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                          std::size_t count, const CUDA_HOST_NODE_PARAMS* params) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_HOST, host_of(params));
}

CU_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                           std::size_t count) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, nothing());
}

CU_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                std::size_t count, CUgraph child) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_GRAPH, graph_work(child));
}

CU_API cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                 std::size_t count, CUevent event) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, record_of(event));
}

CU_API cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                               std::size_t count, CUevent event) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait_of(event));
}

CU_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                              std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, allocation_of(params));
}

CU_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                             std::size_t count, CUdeviceptr address) {
  return entry([&](Call& call) {
    add_node(call, out, graph, after, count, CU_GRAPH_NODE_TYPE_MEM_FREE, free_of(address));
  });
}

// ---- reading ----

CU_API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  return entry([&](Call&) { put_kernel(*params_of<Kernel>(node), needed(out, "params")); });
}

CU_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* out) {
  return entry([&](Call&) {
    CUDA_KERNEL_NODE_PARAMS_v2& params = needed(out, "params");
    params = {};
    put_kernel(*params_of<Kernel>(node), params);
  });
}

CU_API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) { return read(node, out); }
CU_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return read(node, out);
}
CU_API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return read(node, out);
}
CU_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return read(node, out);
}

CU_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return entry([&](Call&) { needed(out, "address") = params_of<FreeNode>(node).address; });
}

CU_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return entry([&](Call&) {
    needed(out, "graph") = reinterpret_cast<CUgraph>(params_of<ChildNode>(node).handle);
  });
}

CU_API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return read_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out);
}

CU_API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return read_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out);
}

// ---- changing ----

CU_API cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return entry([&](Call& call) {
    CUgraphNodeParams& given = needed(params, "params");
    GraphNode& found = node_of(node);
    check_type(found, given.type);
    found.work = work_of(given)(call);
  });
}

CU_API cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                CUgraphNodeParams* params) {
  return entry([&](Call& call) {
    CUgraphNodeParams& given = needed(params, "params");
    replace_step(call, executable, node, given.type, work_of(given));
  });
}

CU_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return replace(node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return replace(node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  return replace(node, CU_GRAPH_NODE_TYPE_MEMCPY, copy_of(params));
}

CU_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return replace(node, CU_GRAPH_NODE_TYPE_MEMSET, fill_of(params));
}

CU_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return replace(node, CU_GRAPH_NODE_TYPE_HOST, host_of(params));
}

CU_API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return replace(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, record_of(event));
}

CU_API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return replace(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait_of(event));
}

CU_API cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS* params) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                         const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_MEMCPY3D* params, CUcontext) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_MEMCPY, copy_of(params));
}

CU_API cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_MEMSET, fill_of(params));
}

CU_API cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                    const CUDA_HOST_NODE_PARAMS* params) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_HOST, host_of(params));
}

CU_API cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraph child) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_GRAPH, graph_work(child));
}

CU_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, record_of(event));
}

CU_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
  return replace_step(executable, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait_of(event));
}

CU_API cuGraphNodeSetEnabled(CUgraphExec executable, CUgraphNode node, unsigned enabled) {
  return entry([&](Call&) {
    GraphNode& step = step_of(executable, node);
    if (step.type > CU_GRAPH_NODE_TYPE_MEMSET)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "only kernels, copies and fills can be left out of a launch"};
    step.enabled = enabled != 0;
  });
}

CU_API cuGraphNodeGetEnabled(CUgraphExec executable, CUgraphNode node, unsigned* enabled) {
  return entry([&](Call&) { needed(enabled, "enabled") = step_of(executable, node).enabled; });
}

// ---- attributes of kernels ----

namespace {

// Clusters and cooperative launches take effect; other attributes are hints, which are only stored.
void set_attribute(CUgraphNode handle, const CUlaunchAttribute& given) {
  auto made = std::make_shared<KernelNode>(*params_of<Kernel>(handle));
  for (std::size_t i = 0; i < made->pointers.size(); ++i)
    made->pointers[i] = made->bytes.data() + made->function->offsets[i];
  if (given.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    made->launch.cooperative = given.value.number != 0;
  if (given.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    std::copy_n(given.value.dimensions, 3, made->launch.cluster);
  made->attributes[given.id] = given;
  node_of(handle).work = kernel_work(std::move(made));
}

}  // namespace

CU_API cuGraphKernelNodeSetAttribute(CUgraphNode node, int which, const void* value) {
  return entry([&](Call&) {
    CUlaunchAttribute given{.id = which, .padding = 0, .value = {}};
    std::memcpy(&given.value, &needed(static_cast<const u8*>(value), "value"), sizeof given.value);
    set_attribute(node, given);
  });
}

CU_API cuGraphKernelNodeGetAttribute(CUgraphNode node, int which, void* value) {
  return entry([&](Call&) {
    const auto& known = params_of<Kernel>(node)->attributes;
    const auto found = known.find(which);
    const CUlaunchAttribute none{};
    const auto& given = found == known.end() ? none : found->second;
    std::memcpy(&needed(static_cast<u8*>(value), "value"), &given.value, sizeof given.value);
  });
}

CU_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return entry([&](Call&) {
    const auto given = params_of<Kernel>(from)->attributes;
    for (const auto& [_, one] : given) set_attribute(to, one);
  });
}
