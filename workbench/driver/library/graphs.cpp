// Graphs: a capture or a client adds nodes; a launch runs each after those that it waits for.
#include "graphs.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

namespace workbench::driver {

Graph& graph_of(CUgraph handle) { return *find_handle(state().graphs, handle, "graph"); }

Graph& home_of(CUgraphNode handle) {
  for (const auto& [_, graph] : state().graphs)
    if (graph->nodes.contains(number_of(handle))) return *graph;
  throw Refused{CUDA_ERROR_INVALID_HANDLE,
                "no such node: it was never added, or its graph is destroyed"};
}

GraphNode& node_of(CUgraphNode handle) { return home_of(handle).nodes.at(number_of(handle)); }

GraphNode& step_of(CUgraphExec owner, CUgraphNode handle) {
  Executable& executable = *find_handle(state().executables, owner, "executable graph");
  const auto found = executable.step_of.find(number_of(handle));
  if (found == executable.step_of.end())
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the graph was instantiated without this node"};
  return executable.steps[found->second];
}

std::vector<u64> nodes_of(const Graph& graph, const CUgraphNode* nodes, std::size_t count) {
  std::vector<u64> found;
  for (std::size_t i = 0; i < count; ++i) {
    found.push_back(number_of((&needed(nodes, "dependencies"))[i]));
    if (!graph.nodes.contains(found.back()))
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "dependency " + std::to_string(i) + " is no node of this graph"};
  }
  return found;
}

void add_node(Call& call, CUgraphNode* out, CUgraph handle, const CUgraphNode* after,
              std::size_t count, CUgraphNodeType type, const MakeWork& make) {
  CUgraphNode& node = needed(out, "node");
  Graph& graph = graph_of(handle);
  std::vector<u64> before = nodes_of(graph, after, count);
  GraphNode made{type, make(call), std::move(before)};
  const u64 number = new_handle();
  graph.nodes.emplace(number, std::move(made));
  node = as_node(number);
}

namespace {

// The nodes of a graph, each after those that it waits for.
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

void unite(std::vector<u64>& into, const std::vector<u64>& from) {
  into.insert(into.end(), from.begin(), from.end());
}

}  // namespace

std::shared_ptr<Executable> made_of(const Graph& graph, u64 flags) {
  auto made = std::make_shared<Executable>(Executable{graph.context, flags, {}, {}, graph.kept});
  for (u64 handle : in_order(graph)) {
    made->step_of[handle] = made->steps.size();
    GraphNode step = graph.nodes.at(handle);
    if (const auto* memory = std::get_if<CUDA_MEM_ALLOC_NODE_PARAMS>(&step.work.params))
      made->allocated.push_back(memory->dptr);
    if (Operation inner = runs_of(step.work.params, *made)) step.work.run = std::move(inner);
    made->steps.push_back(std::move(step));
  }
  return made;
}

Operation runs_of(const NodeParams& params, Executable& owner) {
  const auto inner = [&](const ChildNode& child) {
    const auto made = made_of(*child.graph, owner.flags);
    unite(owner.allocated, made->allocated);
    unite(owner.conditions, made->conditions);
    return all_of(made);
  };
  if (const auto* child = std::get_if<ChildNode>(&params)) return inner(*child);
  const auto* node = std::get_if<ConditionalNode>(&params);
  if (!node) return nullptr;
  owner.conditions.push_back(node->condition);
  std::vector<Operation> bodies;
  for (const ChildNode& body : node->bodies) bodies.push_back(inner(body));
  return condition_runs(node->condition, node->type, std::move(bodies));
}

namespace {

// The steps in the order in which a launch runs them; if operations run late, of those that may be
// next the last one.
std::vector<std::size_t> order_of(const Executable& executable) {
  std::vector<std::size_t> order(executable.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!late_is_on()) return order;
  std::vector<std::size_t> waits(order.size());
  std::vector<std::vector<std::size_t>> later(order.size());
  for (const std::size_t step : order) {
    for (u64 handle : executable.steps[step].after) {
      const auto found = executable.step_of.find(handle);
      if (found == executable.step_of.end()) continue;
      later[found->second].push_back(step);
      ++waits[step];
    }
  }
  std::priority_queue<std::size_t> ready;
  for (const std::size_t step : order)
    if (!waits[step]) ready.push(step);
  order.clear();
  for (; !ready.empty();) {
    const std::size_t step = ready.top();
    ready.pop();
    order.push_back(step);
    for (const std::size_t next : later[step])
      if (!--waits[next]) ready.push(next);
  }
  return order;
}

}  // namespace

Operation all_of(const std::shared_ptr<const Executable>& executable) {
  return [executable](Call& call, CUstream stream) {
    GraphOrder order(*executable->context, stream, *executable);
    for (const std::size_t i : order_of(*executable)) {
      if (!call.lock.owns_lock()) call.lock.lock();
      if (executable->context->fault) return;
      order.begin(i);
      const Operation run =
          executable->steps[i].work.run;  // a copy: another thread may replace the step
      if (executable->steps[i].enabled) run(call, stream);
      order.end(i);
    }
    if (!call.lock.owns_lock()) call.lock.lock();
  };
}

namespace {

CUresult instantiate(CUgraphExec* out, CUgraph handle, u64 flags) {
  return entry([&](Call&) {
    CUgraphExec& executable = needed(out, "executable");
    auto made = made_of(graph_of(handle), flags);
    const u64 number = new_handle();
    state().executables[number] = std::move(made);
    executable = reinterpret_cast<CUgraphExec>(number);
  });
}

// Prepares a launch: frees memory that the last launch left, or refuses; resets conditions.
void begin(const Executable& executable) {
  for (u64 address : executable.allocated) {
    if (!state().allocations.contains(address)) continue;
    if (!(executable.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)) {
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "memory that the graph allocates is there still: free it, or instantiate with "
                    "CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH"};
    }
    drop_allocation(address);
  }
  for (u64 address : executable.conditions) begin_condition(address);
}

// Writes as many handles as the caller has room for; without an array, only their number.
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

CU_API cuGraphDestroyNode(CUgraphNode handle) {
  return entry([&](Call&) {
    Graph& graph = home_of(handle);
    graph.nodes.erase(number_of(handle));
    for (auto& [_, node] : graph.nodes) std::erase(node.after, number_of(handle));
  });
}

CU_API cuGraphDestroy(CUgraph handle) {
  return entry([&](Call&) {
    graph_of(handle);
    state().graphs.erase(number_of(handle));
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

// Takes the parameters of another graph of the same shape.
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
      executable.steps[i].work = other->steps[i].work;
  });
}

CU_API cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return entry([&](Call& call) {
    const std::shared_ptr<Context> context = call.context();
    const std::shared_ptr<Executable> executable =
        find_handle(state().executables, handle, "executable graph");
    if (executable->context != context.get())
      throw Refused{CUDA_ERROR_INVALID_CONTEXT, "the graph was captured in another context"};
    // What is put off runs with the nodes of now.
    const auto launched = is_late() ? std::make_shared<Executable>(*executable) : executable;
    const Operation all = [launched](Call& inner, CUstream on) {
      begin(*launched);
      all_of(launched)(inner, on);
    };
    if (capture_of(*context, stream))
      captured(call, stream, CU_GRAPH_NODE_TYPE_GRAPH, {all});
    else if (!put_off(call, stream, all))
      all(call, stream);
  });
}

CU_API cuGraphExecDestroy(CUgraphExec handle) {
  return entry([&](Call&) {
    find_handle(state().executables, handle, "executable graph");
    state().executables.erase(number_of(handle));
  });
}

CU_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return entry([&](Call& call) {
    check_stream(*call.context(), stream);
    NodeWork work = host_work(function, data);
    if (capture_of(*call.context(), stream))
      captured(call, stream, CU_GRAPH_NODE_TYPE_HOST, std::move(work));
    else if (!put_off(call, stream, work.run))
      work.run(call, stream);
  });
}

CU_API cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned flags) {
  return entry([&](Call& call) {
    settle(call, *call.context(), stream);
    if (!function || flags)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "a callback takes a function, and 0 as flags"};
    if (capture_of(*call.context(), stream))
      throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "a captured stream takes no callbacks; use cuLaunchHostFunc"};
    const Operation run = [=](Call& inner, CUstream on) {
      advance(*inner.context(), on, state().device.operation_seconds);
      const HostFunction running(*inner.context(), on);
      inner.lock.unlock();
      function(stream, CUDA_SUCCESS, data);
      inner.lock.lock();
    };
    if (!put_off(call, stream, run)) run(call, stream);
  });
}
