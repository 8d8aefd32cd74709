// Graphs as shapes: copies of one, and its edges.
#include <algorithm>

#include "driver.hpp"

using namespace workbench::driver;

namespace {

Graph& graph_of(CUgraph handle) { return *find_handle(state().graphs, handle, "graph"); }

CUgraphNode as_node(u64 handle) { return reinterpret_cast<CUgraphNode>(handle); }
u64 number(CUgraphNode node) { return reinterpret_cast<u64>(node); }

}  // namespace

CU_API cuGraphClone(CUgraph* out, CUgraph original) {
  return entry([&](Call&) {
    CUgraph& clone = needed(out, "clone");
    const Graph& from = graph_of(original);
    auto made = std::make_shared<Graph>(Graph{.context = from.context, .kept = from.kept});
    for (const auto& [handle, node] : from.nodes) made->origins[handle] = new_handle();
    for (const auto& [handle, node] : from.nodes) {
      GraphNode copy = node;
      for (u64& before : copy.after) before = made->origins.at(before);
      made->nodes.emplace(made->origins.at(handle), std::move(copy));
    }
    const u64 handle = new_handle();
    state().graphs[handle] = std::move(made);
    clone = reinterpret_cast<CUgraph>(handle);
  });
}

CU_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  return entry([&](Call&) {
    CUgraphNode& node = needed(out, "node");
    const Graph& graph = graph_of(clone);
    const auto found = graph.origins.find(number(original));
    if (found == graph.origins.end() || !graph.nodes.contains(found->second)) {
      throw Refused{CUDA_ERROR_INVALID_VALUE, "the graph is no clone of one with this node"};
    }
    node = as_node(found->second);
  });
}

// As many edges as there is room for; without room, how many there are.
CU_API cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return entry([&](Call&) {
    std::size_t& room = needed(count, "count");
    std::size_t found = 0;
    for (const auto& [then, node] : graph_of(handle).nodes) {
      for (u64 first : node.after) {
        if (from && to && found < room) {
          from[found] = as_node(first);
          to[found] = as_node(then);
        }
        ++found;
      }
    }
    room = from && to ? std::min(room, found) : found;
  });
}

CU_API cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                 std::size_t count) {
  return entry([&](Call&) {
    Graph& graph = graph_of(handle);
    for (std::size_t i = 0; i < count; ++i) {
      const u64 first = number((&needed(from, "from"))[i]);
      const u64 then = number((&needed(to, "to"))[i]);
      if (!graph.nodes.contains(then) || !std::erase(graph.nodes.at(then).after, first)) {
        throw Refused{CUDA_ERROR_INVALID_VALUE,
                      "edge " + std::to_string(i) + " is none of this graph"};
      }
    }
  });
}
