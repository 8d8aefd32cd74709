// What the files about graphs share.
#pragma once
#include "driver.hpp"

namespace workbench::driver {

inline CUgraphNode as_node(u64 handle) { return reinterpret_cast<CUgraphNode>(handle); }
inline u64 number_of(const void* handle) { return reinterpret_cast<u64>(handle); }

Graph& graph_of(CUgraph handle);
// The graph of a node. Nodes of an ended capture are found, too.
Graph& home_of(CUgraphNode handle);
GraphNode& node_of(CUgraphNode handle);
// A node as a graph that was instantiated has it.
GraphNode& step_of(CUgraphExec executable, CUgraphNode handle);
// Refuses what is no node of the graph.
std::vector<u64> nodes_of(const Graph& graph, const CUgraphNode* nodes, std::size_t count);

using MakeWork = std::function<NodeWork(Call&)>;
void add_node(Call& call, CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
              std::size_t count, CUgraphNodeType type, const MakeWork& make);
// Edges of which one does not wait for the whole node before it.
void check_edges(const CUgraphEdgeData* edges, std::size_t count);

// A copy with nodes of its own. Refuses what has memory or conditions, of which there is one.
std::shared_ptr<Graph> clone_of(const Graph& from, const char* what);
std::shared_ptr<Executable> made_of(const Graph& graph, u64 flags);
// Runs a node that has graphs of its own, as they are now.
Operation runs_of(const NodeParams& params, Executable& owner);
// Runs the graphs of a conditional node by the number at an address.
Operation condition_runs(u64 address, int type, std::vector<Operation> bodies);
void begin_condition(u64 address);
Operation all_of(const std::shared_ptr<const Executable>& executable);

}  // namespace workbench::driver
