// Functions that the files about graphs share.
#pragma once
#include "driver.hpp"

namespace workbench::driver {

inline CUgraphNode as_node(u64 handle) { return reinterpret_cast<CUgraphNode>(handle); }
inline u64 number_of(const void* handle) { return reinterpret_cast<u64>(handle); }

Graph& graph_of(CUgraph handle);
// The graph of a node, also of a node whose capture has ended.
Graph& home_of(CUgraphNode handle);
GraphNode& node_of(CUgraphNode handle);
// A node in an instantiated graph.
GraphNode& step_of(CUgraphExec executable, CUgraphNode handle);
// The handles as numbers; refuses one that is not a node of the graph.
std::vector<u64> nodes_of(const Graph& graph, const CUgraphNode* nodes, std::size_t count);

using MakeWork = std::function<NodeWork(Call&)>;
void add_node(Call& call, CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
              std::size_t count, CUgraphNodeType type, const MakeWork& make);
// Refuses edges that do not wait for the whole node before them.
void check_edges(const CUgraphEdgeData* edges, std::size_t count);

// A copy with nodes of its own. Refuses a graph with memory or conditions, which cannot be copied.
std::shared_ptr<Graph> clone_of(const Graph& from, const char* what);
std::shared_ptr<Executable> made_of(const Graph& graph, u64 flags);
// The operation of a node with inner graphs, as they are now.
Operation runs_of(const NodeParams& params, Executable& owner);
// The operation of a conditional node: it runs bodies by the number at an address.
Operation condition_runs(u64 address, int type, std::vector<Operation> bodies);
void begin_condition(u64 address);
Operation all_of(const std::shared_ptr<const Executable>& executable);

}  // namespace workbench::driver
