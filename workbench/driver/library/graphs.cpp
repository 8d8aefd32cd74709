// Graphs: nodes that a capture or a client adds, and that run, each after those it waits for, when
// the graph is launched.
#include <algorithm>

#include "driver.hpp"

namespace workbench::driver {
namespace {

Graph& graph_of(CUgraph handle) { return *find_handle(state().graphs, handle, "graph"); }

CUgraphNode as_node(u64 handle) { return reinterpret_cast<CUgraphNode>(handle); }

// The graph of a node. Nodes of an ended capture are found, too.
Graph& home_of(CUgraphNode handle) {
  for (const auto& [_, graph] : state().graphs)
    if (graph->nodes.contains(reinterpret_cast<u64>(handle))) return *graph;
  throw Refused{CUDA_ERROR_INVALID_HANDLE,
                "no such node: it was never added, or its graph is destroyed"};
}

GraphNode& node_of(CUgraphNode handle) {
  return home_of(handle).nodes.at(reinterpret_cast<u64>(handle));
}

// Its nodes, each after those that it waits for.
std::vector<u64> in_order(const Graph& graph) {
  std::vector<u64> order, path;
  std::unordered_map<u64, int> seen;  // 1: on the path, 2: in the order
  for (const auto& [first, _] : graph.nodes) {
    path.push_back(first);
    while (!path.empty()) {
      const u64 at = path.back();
      int& mark = seen[at];
      if (mark == 2) {
        path.pop_back();
        continue;
      }
      const auto& after = graph.nodes.at(at).after;
      const auto open = std::ranges::find_if(after, [&](u64 one) { return seen[one] != 2; });
      if (open == after.end()) {
        seen[at] = 2, order.push_back(at), path.pop_back();
        continue;
      }
      if (seen[*open] == 1)
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "the nodes of the graph wait for each other in a circle"};
      seen[at] = 1, path.push_back(*open);
    }
  }
  return order;
}

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, std::size_t count,
             CUgraphNodeType type, const std::function<Operation(Call&)>& operation) {
  return entry([&](Call& call) {
    CUgraphNode& node = needed(out, "node");
    Graph& graph = graph_of(handle);
    GraphNode made{type, operation(call), {}};
    for (std::size_t i = 0; i < count; ++i) {
      const u64 one = reinterpret_cast<u64>((&needed(after, "dependencies"))[i]);
      if (!graph.nodes.contains(one))
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "dependency " + std::to_string(i) + " is no node of this graph"};
      made.after.push_back(one);
    }
    const u64 number = new_handle();
    graph.nodes.emplace(number, std::move(made));
    node = as_node(number);
  });
}

// Gives a node of a graph, or of one that was instantiated from it, other parameters.
CUresult replace(GraphNode& (*find)(void*, CUgraphNode), void* owner, CUgraphNode handle,
                 CUgraphNodeType type, const std::function<Operation(Call&)>& operation) {
  return entry([&](Call& call) {
    GraphNode& node = find(owner, handle);
    if (node.type != type) throw Refused{CUDA_ERROR_INVALID_VALUE, "the node is of another kind"};
    node.run = operation(call);
  });
}

GraphNode& in_graph(void*, CUgraphNode handle) { return node_of(handle); }

GraphNode& in_executable(void* owner, CUgraphNode handle) {
  Executable& executable = *find_handle(state().executables, owner, "executable graph");
  const auto found = executable.step_of.find(reinterpret_cast<u64>(handle));
  if (found == executable.step_of.end())
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the graph was instantiated without this node"};
  return executable.steps[found->second];
}

template <class Params>
std::function<Operation(Call&)> kernel(const Params* params) {
  return [params](Call& call) {
    const Params& given = needed(params, "params");
    CUDA_KERNEL_NODE_PARAMS plain = given;
    if constexpr (requires { given.kern; }) {
      if (!plain.func) plain.func = given.kern;
    }
    return kernel_operation(call, plain);
  };
}

std::function<Operation(Call&)> copy_of(const CUDA_MEMCPY3D* params) {
  return [params](Call&) { return copy_operation(needed(params, "params")); };
}

std::function<Operation(Call&)> fill_of(const CUDA_MEMSET_NODE_PARAMS* params) {
  return [params](Call&) { return fill_operation(needed(params, "params")); };
}

Operation host_operation(CUhostFn function, void* data) {
  if (!function) throw Refused{CUDA_ERROR_INVALID_VALUE, "the function is a null pointer"};
  return [function, data](Call& call, CUstream stream) {
    advance(*call.context(), stream, state().device.operation_seconds);
    call.lock.unlock();
    function(data);
  };
}

std::function<Operation(Call&)> host_of(const CUDA_HOST_NODE_PARAMS* params) {
  return [params](Call&) { return host_operation(needed(params, "params").fn, params->userData); };
}

std::shared_ptr<Executable> made_of(const Graph& graph, u64 flags) {
  auto made = std::make_shared<Executable>(Executable{graph.context, flags, {}, {}, graph.kept});
  for (u64 handle : in_order(graph)) {
    made->step_of[handle] = made->steps.size();
    made->steps.push_back(graph.nodes.at(handle));
  }
  return made;
}

Operation all_of(const std::shared_ptr<const Executable>& executable) {
  return [executable](Call& call, CUstream stream) {
    for (std::size_t i = 0; i < executable->steps.size(); ++i) {
      if (!call.lock.owns_lock()) call.lock.lock();
      if (executable->context->fault) return;
      const Operation run =
          executable->steps[i].run;  // another thread may give it other parameters
      run(call, stream);
    }
  };
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, u64 flags) {
  return entry([&](Call&) {
    CUgraphExec& executable = needed(out, "executable");
    auto made = made_of(graph_of(handle), flags);
    const u64 number = new_handle();
    state().executables[number] = std::move(made);
    executable = reinterpret_cast<CUgraphExec>(number);
  });
}

// As many handles as the caller has room for; without room, how many there are.
void list(const std::vector<u64>& handles, CUgraphNode* out, std::size_t* count) {
  std::size_t& room = needed(count, "count");
  if (out) {
    const std::size_t filled = std::min(room, handles.size());
    for (std::size_t i = 0; i < room; ++i) out[i] = i < filled ? as_node(handles[i]) : nullptr;
    room = filled;
  } else {
    room = handles.size();
  }
}

template <class Which>
std::vector<u64> chosen(const Graph& graph, Which&& which) {
  std::vector<u64> handles;
  for (const auto& [handle, node] : graph.nodes)
    if (which(node)) handles.push_back(handle);
  return handles;
}

}  // namespace

}  // namespace workbench::driver

using namespace workbench::driver;

// ---- graphs that a client builds ----

CU_API cuGraphCreate(CUgraph* out, unsigned flags) {
  return entry([&](Call& call) {
    if (flags) throw Refused{CUDA_ERROR_INVALID_VALUE, "the flags of cuGraphCreate must be 0"};
    CUgraph& graph = needed(out, "graph");
    auto made = std::make_shared<Graph>(Graph{call.context().get()});
    const u64 number = new_handle();
    state().graphs[number] = std::move(made);
    graph = reinterpret_cast<CUgraph>(number);
  });
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
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY,
             [](Call&) { return [](Call&, CUstream) {}; });
}

CU_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                std::size_t count, CUgraph child) {
  return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_GRAPH,
             [child](Call&) { return all_of(made_of(graph_of(child), 0)); });
}

CU_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return replace(in_graph, nullptr, node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return replace(in_graph, nullptr, node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  return replace(in_graph, nullptr, node, CU_GRAPH_NODE_TYPE_MEMCPY, copy_of(params));
}

CU_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return replace(in_graph, nullptr, node, CU_GRAPH_NODE_TYPE_MEMSET, fill_of(params));
}

CU_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return replace(in_graph, nullptr, node, CU_GRAPH_NODE_TYPE_HOST, host_of(params));
}

CU_API cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS* params) {
  return replace(in_executable, executable, node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                         const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  return replace(in_executable, executable, node, CU_GRAPH_NODE_TYPE_KERNEL, kernel(params));
}

CU_API cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_MEMCPY3D* params, CUcontext) {
  return replace(in_executable, executable, node, CU_GRAPH_NODE_TYPE_MEMCPY, copy_of(params));
}

CU_API cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return replace(in_executable, executable, node, CU_GRAPH_NODE_TYPE_MEMSET, fill_of(params));
}

CU_API cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                    const CUDA_HOST_NODE_PARAMS* params) {
  return replace(in_executable, executable, node, CU_GRAPH_NODE_TYPE_HOST, host_of(params));
}

CU_API cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraph child) {
  return replace(in_executable, executable, node, CU_GRAPH_NODE_TYPE_GRAPH,
                 [child](Call&) { return all_of(made_of(graph_of(child), 0)); });
}

CU_API cuGraphAddDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                              std::size_t count) {
  return entry([&](Call&) {
    Graph& graph = graph_of(handle);
    for (std::size_t i = 0; i < count; ++i) {
      const u64 first = reinterpret_cast<u64>((&needed(from, "from"))[i]),
                then = reinterpret_cast<u64>((&needed(to, "to"))[i]);
      if (!graph.nodes.contains(first) || !graph.nodes.contains(then))
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "edge " + std::to_string(i) + " is not between nodes of this graph"};
      graph.nodes.at(then).after.push_back(first);
    }
  });
}

CU_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                 const void*, std::size_t count) {
  return cuGraphAddDependencies(graph, from, to, count);
}

CU_API cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return entry([&](Call&) {
    list(chosen(graph_of(handle), [](const GraphNode&) { return true; }), nodes, count);
  });
}

CU_API cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return entry([&](Call&) {
    list(chosen(graph_of(handle), [](const GraphNode& one) { return one.after.empty(); }), nodes,
         count);
  });
}

CU_API cuGraphNodeGetType(CUgraphNode handle, int* type) {
  return entry([&](Call&) { needed(type, "type") = node_of(handle).type; });
}

CU_API cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* nodes, std::size_t* count) {
  return entry([&](Call&) { list(node_of(handle).after, nodes, count); });
}

CU_API cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* nodes, std::size_t* count) {
  return entry([&](Call&) {
    const u64 wanted = reinterpret_cast<u64>(handle);
    list(chosen(home_of(handle),
                [&](const GraphNode& one) {
                  return std::ranges::find(one.after, wanted) != one.after.end();
                }),
         nodes, count);
  });
}

CU_API cuGraphDestroyNode(CUgraphNode handle) {
  return entry([&](Call&) {
    Graph& graph = home_of(handle);
    graph.nodes.erase(reinterpret_cast<u64>(handle));
    for (auto& [_, node] : graph.nodes) std::erase(node.after, reinterpret_cast<u64>(handle));
  });
}

CU_API cuGraphDestroy(CUgraph handle) {
  return entry([&](Call&) {
    graph_of(handle);
    state().graphs.erase(reinterpret_cast<u64>(handle));
  });
}

// ---- graphs that run ----

CU_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log,
                             std::size_t room) {
  if (error) *error = nullptr;
  if (log && room) *log = 0;
  return instantiate(out, graph, 0);
}

CU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return instantiate(out, graph, flags);
}

CU_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                    CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!params) return remember(CUDA_ERROR_INVALID_VALUE, "params is a null pointer");
  const CUresult result = instantiate(out, graph, params->flags);
  params->hErrNode_out = nullptr, params->result_out = result != CUDA_SUCCESS;
  return result;
}

CU_API cuGraphExecGetFlags(CUgraphExec handle, u64* flags) {
  return entry([&](Call&) {
    needed(flags, "flags") = find_handle(state().executables, handle, "executable graph")->flags;
  });
}

CU_API cuGraphUpload(CUgraphExec handle, CUstream stream) {
  return entry([&](Call& call) {
    find_handle(state().executables, handle, "executable graph"),
        check_stream(*call.context(), stream);
  });
}

// The parameters of another graph of the same shape.
CU_API cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  constexpr int kTopologyChanged = 2;
  return entry([&](Call&) {
    Executable& executable = *find_handle(state().executables, handle, "executable graph");
    const auto other = made_of(graph_of(graph), executable.flags);
    if (info) *info = {};
    const auto alike = [](const GraphNode& one, const GraphNode& two) {
      return one.type == two.type && one.after.size() == two.after.size();
    };
    if (!std::ranges::equal(executable.steps, other->steps, alike)) {
      if (info) info->result = kTopologyChanged;
      throw Refused{CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                    "the other graph has other nodes, or other edges between them: instantiate it"};
    }
    for (std::size_t i = 0; i < other->steps.size(); ++i)
      executable.steps[i].run = other->steps[i].run;
  });
}

CU_API cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> context = call.context();
    const std::shared_ptr<Executable> executable =
        find_handle(state().executables, handle, "executable graph");
    if (executable->context != context.get())
      throw Refused{CUDA_ERROR_INVALID_CONTEXT, "the graph was captured in another context"};
    const Operation all = all_of(executable);
    if (!captured(call, stream, CU_GRAPH_NODE_TYPE_GRAPH, all)) all(call, stream);
  });
}

CU_API cuGraphExecDestroy(CUgraphExec handle) {
  return entry([&](Call&) {
    find_handle(state().executables, handle, "executable graph");
    state().executables.erase(reinterpret_cast<u64>(handle));
  });
}

CU_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return entry([&](Call& call) {
    check_stream(*call.context(), stream);
    const Operation run = host_operation(function, data);
    if (!captured(call, stream, CU_GRAPH_NODE_TYPE_HOST, run)) run(call, stream);
  });
}

CU_API cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned flags) {
  return entry([&](Call& call) {
    check_stream(*call.context(), stream);
    if (!function || flags)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "a callback takes a function, and 0 as flags"};
    if (capture_of(*call.context(), stream))
      throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "a captured stream takes no callbacks; use cuLaunchHostFunc"};
    advance(*call.context(), stream, state().device.operation_seconds);
    call.lock.unlock();
    function(stream, CUDA_SUCCESS, data);
  });
}
