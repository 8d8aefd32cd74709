// Memory that graphs allocate and free, at addresses that are fixed when a node is added; and the
// conditions of conditional nodes.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "graphs.hpp"

namespace workbench::driver {
namespace {

Primary& device_of(const Context& context) {
  return state().primaries[static_cast<std::size_t>(context.device)];
}

u32& number_at(u64 address) {
  return *reinterpret_cast<u32*>(state().conditions.at(address).number->host);
}

}  // namespace

NodeWork allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS& given) {
  if (!given.bytesize) throw Refused{CUDA_ERROR_INVALID_VALUE, "an allocation of no bytes"};
  const CUmemLocation& where = given.poolProps.location;
  if (where.type != CU_MEM_LOCATION_TYPE_DEVICE)
    throw Refused{CUDA_ERROR_INVALID_VALUE, "graphs allocate memory of devices"};
  check_device(where.id);
  for (std::size_t i = 0; i < given.accessDescCount; ++i) {
    if ((&needed(given.accessDescs, "accessDescs"))[i].location.id != where.id)
      throw Refused{CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                    "memory that a graph allocates is of one device: copy it to the other one"};
  }
  given.dptr = reserve_addresses(given.bytesize);
  const Operation run = [given](Call& call, CUstream stream) {
    Context& context = *call.context();
    advance(context, stream, state().device.operation_seconds);
    allocate(call, given.bytesize, Where::device, 1, given.dptr)->of_graph = true;
    Primary& device = device_of(context);
    device.graph_bytes += given.bytesize;
    device.graph_high = std::max(device.graph_high, device.graph_bytes);
  };
  return {run, given};
}

namespace {

bool allocates(const GraphNode& node, CUdeviceptr address) {
  const auto* made = std::get_if<CUDA_MEM_ALLOC_NODE_PARAMS>(&node.work.params);
  return made && made->dptr == address;
}

// Whether any graph, instantiated or not, allocates at an address.
bool of_any_graph(CUdeviceptr address) {
  for (const auto& [_, graph] : state().graphs) {
    for (const auto& [number, node] : graph->nodes)
      if (allocates(node, address)) return true;
  }
  return std::ranges::any_of(state().executables, [&](const auto& item) {
    return std::ranges::any_of(item.second->steps,
                               [&](const GraphNode& step) { return allocates(step, address); });
  });
}

}  // namespace

// A graph may free another one's allocation, which has to exist when this one runs.
NodeWork free_work(CUdeviceptr address) {
  if (!of_any_graph(address) && !state().allocations.contains(address))
    throw Refused{CUDA_ERROR_INVALID_VALUE, describe_address(address, 1)};
  const Operation run = [address](Call& call, CUstream stream) {
    advance(*call.context(), stream, state().device.operation_seconds);
    if (!state().allocations.contains(address))
      throw Refused{CUDA_ERROR_INVALID_VALUE, describe_address(address, 1)};
    drop_allocation(address);
  };
  return {run, FreeNode{address}};
}

void begin_condition(u64 address) {
  const auto found = state().conditions.find(address);
  if (found != state().conditions.end() && found->second.assigned)
    number_at(address) = found->second.initial;
}

Operation condition_runs(u64 address, int type, std::vector<Operation> bodies) {
  return [address, type, bodies = std::move(bodies)](Call& call, CUstream stream) {
    Context& context = *call.context();
    const auto run = [&](std::size_t which) {
      if (which < bodies.size()) bodies[which](call, stream);
    };
    advance(context, stream, state().device.operation_seconds);
    const u32 value = number_at(address);
    if (type == CU_GRAPH_COND_TYPE_SWITCH) return run(value);
    if (type == CU_GRAPH_COND_TYPE_IF) return run(value ? 0 : 1);
    while (!context.fault && number_at(address)) {
      run(0);
      call.lock.unlock();  // so that an endless loop blocks no other thread
      call.lock.lock();
    }
  };
}

}  // namespace workbench::driver

using namespace workbench::driver;

// The handle is the address of the condition's number, so a kernel sets it with a store.
CU_API cuGraphConditionalHandleCreate(u64* out, CUgraph graph, CUcontext, unsigned initial,
                                      unsigned flags) {
  return entry([&](Call& call) {
    u64& handle = needed(out, "handle");
    graph_of(graph);
    if (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown flags of a condition"};
    void* const storage = std::calloc(1, sizeof(u32));
    if (!storage) throw std::bad_alloc();
    auto made = std::make_shared<Allocation>();
    made->storage = {storage, std::free};
    made->host = static_cast<u8*>(storage);
    made->size = sizeof(u32);
    made->where = Where::variable;
    made->context = call.context().get();
    made->address = reserve_addresses(sizeof(u32));
    add_allocation(made);
    handle = made->address;
    state().conditions[handle] =
        Condition{made, initial, (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0};
  });
}

CU_API cuDeviceGetGraphMemAttribute(CUdevice device, int which, void* out) {
  return entry([&](Call&) {
    check_device(device);
    const Primary& found = state().primaries[static_cast<std::size_t>(device)];
    const u64 values[] = {found.graph_bytes, found.graph_high, found.graph_bytes, found.graph_high};
    if (which < 0 || which > 3)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "attributes of the memory of graphs are 0 to 3, not " + std::to_string(which)};
    std::memcpy(&needed(static_cast<u8*>(out), "value"), &values[which], sizeof(u64));
  });
}

// Resets the high-water marks.
CU_API cuDeviceSetGraphMemAttribute(CUdevice device, int which, void*) {
  return entry([&](Call&) {
    check_device(device);
    if (which != 1 && which != 3)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "attribute " + std::to_string(which) + " of the memory of graphs is not set"};
    Primary& found = state().primaries[static_cast<std::size_t>(device)];
    found.graph_high = found.graph_bytes;
  });
}

// There is nothing to trim: freed memory is free at once.
CU_API cuDeviceGraphMemTrim(CUdevice device) {
  return entry([&](Call&) { check_device(device); });
}
