// The shape of a graph: copies of it, its edges, and a drawing.
#include <algorithm>
#include <fstream>

#include "graphs.hpp"

namespace workbench::driver {

void check_edges(const CUgraphEdgeData* edges, std::size_t count) {
  for (std::size_t i = 0; edges && i < count; ++i) {
    if (edges[i].from_port || edges[i].to_port || edges[i].type) {
      throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                    "edges of other types: every edge waits for the whole of the node before it; "
                    "pass a null pointer, or zeros"};
    }
  }
}

std::shared_ptr<Graph> clone_of(const Graph& from, const char* what) {
  auto made = std::make_shared<Graph>(Graph{.context = from.context, .kept = from.kept});
  for (const auto& [handle, node] : from.nodes) made->origins[handle] = new_handle();
  for (const auto& [handle, node] : from.nodes) {
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                    std::string(what) +
                        " with memory nodes or conditional nodes: there is one of "
                        "each; add them to the graph around it"};
    }
    GraphNode copy = node;
    for (u64& before : copy.after) before = made->origins.at(before);
    if (const auto* child = std::get_if<ChildNode>(&node.work.params)) {
      const ChildNode own{new_handle(), clone_of(*child->graph, what)};
      state().graphs[own.handle] = own.graph;
      copy.work.params = own;
    }
    made->nodes.emplace(made->origins.at(handle), std::move(copy));
  }
  return made;
}

namespace {

constexpr const char* kKinds[] = {
    "kernel", "memcpy", "memset",       "host",       "graph", "empty",      "wait",
    "record", "signal", "wait outside", "allocation", "free",  "memory ops", "conditional"};

std::string label_of(const GraphNode& node) {
  const auto* kernel = std::get_if<std::shared_ptr<const KernelNode>>(&node.work.params);
  return std::string(kKinds[node.type]) + (kernel ? " " + (*kernel)->function->name : "");
}

// Writes as many handles as there is room for; without an array, only their number.
void put_nodes(const std::vector<u64>& found, CUgraphNode* nodes, CUgraphEdgeData* edges,
               std::size_t* count) {
  std::size_t& room = needed(count, "count");
  for (std::size_t i = 0; nodes && i < room; ++i) {
    nodes[i] = i < found.size() ? as_node(found[i]) : nullptr;
    if (edges) edges[i] = {};
  }
  room = nodes ? std::min(room, found.size()) : found.size();
}

std::vector<u64> after(CUgraphNode handle) {
  std::vector<u64> found;
  for (const auto& [number, node] : home_of(handle).nodes)
    if (std::ranges::find(node.after, number_of(handle)) != node.after.end())
      found.push_back(number);
  return found;
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuGraphClone(CUgraph* out, CUgraph original) {
  return entry([&](Call&) {
    CUgraph& clone = needed(out, "clone");
    auto made = clone_of(graph_of(original), "a clone");
    const u64 handle = new_handle();
    state().graphs[handle] = std::move(made);
    clone = reinterpret_cast<CUgraph>(handle);
  });
}

CU_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  return entry([&](Call&) {
    CUgraphNode& node = needed(out, "node");
    const Graph& graph = graph_of(clone);
    const auto found = graph.origins.find(number_of(original));
    if (found == graph.origins.end() || !graph.nodes.contains(found->second)) {
      throw Refused{CUDA_ERROR_INVALID_VALUE, "the graph is no clone of one with this node"};
    }
    node = as_node(found->second);
  });
}

CU_API cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                     std::size_t* count) {
  return entry([&](Call&) { put_nodes(node_of(handle).after, nodes, edges, count); });
}

CU_API cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* nodes, std::size_t* count) {
  return cuGraphNodeGetDependencies_v2(handle, nodes, nullptr, count);
}

CU_API cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes,
                                       CUgraphEdgeData* edges, std::size_t* count) {
  return entry([&](Call&) { put_nodes(after(handle), nodes, edges, count); });
}

CU_API cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* nodes, std::size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(handle, nodes, nullptr, count);
}

CU_API cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                 const CUgraphEdgeData* edges, std::size_t count) {
  return entry([&](Call&) {
    check_edges(edges, count);
    Graph& graph = graph_of(handle);
    const std::vector<u64> first = nodes_of(graph, from, count);
    const std::vector<u64> then = nodes_of(graph, to, count);
    for (std::size_t i = 0; i < count; ++i) graph.nodes.at(then[i]).after.push_back(first[i]);
  });
}

CU_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                              std::size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}

// Writes as many edges as there is room for; without arrays, only their number.
CU_API cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                          CUgraphEdgeData* edges, std::size_t* count) {
  return entry([&](Call&) {
    std::size_t& room = needed(count, "count");
    std::size_t found = 0;
    for (const auto& [then, node] : graph_of(handle).nodes) {
      for (u64 first : node.after) {
        if (from && to && found < room) {
          from[found] = as_node(first);
          to[found] = as_node(then);
          if (edges) edges[found] = {};
        }
        ++found;
      }
    }
    room = from && to ? std::min(room, found) : found;
  });
}

CU_API cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return cuGraphGetEdges_v2(handle, from, to, nullptr, count);
}

CU_API cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                    const CUgraphEdgeData* edges, std::size_t count) {
  return entry([&](Call&) {
    check_edges(edges, count);
    Graph& graph = graph_of(handle);
    for (std::size_t i = 0; i < count; ++i) {
      const u64 first = number_of((&needed(from, "from"))[i]);
      const u64 then = number_of((&needed(to, "to"))[i]);
      if (!graph.nodes.contains(then) || !std::erase(graph.nodes.at(then).after, first)) {
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "edge " + std::to_string(i) + " is none of this graph"};
      }
    }
  });
}

CU_API cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                 std::size_t count) {
  return cuGraphRemoveDependencies_v2(handle, from, to, nullptr, count);
}

CU_API cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  return entry([&](Call&) {
    std::ofstream file(&needed(path, "path"));
    file << "digraph {\n";
    for (const auto& [number, node] : graph_of(handle).nodes) {
      file << "  n" << number << " [label=\"" << label_of(node) << "\"];\n";
      for (u64 before : node.after) file << "  n" << before << " -> n" << number << ";\n";
    }
    file << "}\n";
    if (!file.flush())
      throw Refused{CUDA_ERROR_OPERATING_SYSTEM, std::string(path) + " cannot be written"};
  });
}
