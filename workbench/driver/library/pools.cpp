// Stream-ordered memory (CUDA 11.2): pools, and allocations from them. An allocation exists at
// once, and is freed when work runs: as it is enqueued, unless it is put off.
#include <algorithm>
#include <cstring>

#include "driver.hpp"

namespace workbench::driver {
namespace {

Primary& device_of(CUdevice device) {
  check_device(device);
  return state().primaries[static_cast<std::size_t>(device)];
}

CUmemoryPool add_pool(Pool made) {
  const u64 number = made.handle = new_handle();
  state().pools[number] = std::make_shared<Pool>(std::move(made));
  return reinterpret_cast<CUmemoryPool>(number);
}

const std::shared_ptr<Pool>& pool_of(CUmemoryPool handle) {
  return find_handle(state().pools, handle, "memory pool");
}

CUmemoryPool current_pool(CUdevice device) {
  Primary& primary = device_of(device);
  const u64 first = default_pool(device);
  return reinterpret_cast<CUmemoryPool>(primary.pool ? primary.pool : first);
}

void allocate_from(Call& call, CUdeviceptr* out, std::size_t bytes, CUmemoryPool handle,
                   CUstream stream) {
  CUdeviceptr& address = needed(out, "address");
  check_stream(*call.context(), stream);
  const std::shared_ptr<Pool> pool = pool_of(handle);
  if (capture_of(*call.context(), stream)) {
    CUDA_MEM_ALLOC_NODE_PARAMS node{};
    node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    node.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, pool->device};
    node.bytesize = bytes;
    captured(call, stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, allocation_work(node));
    address = node.dptr;
    return;
  }
  if (pool->most && pool->used + bytes > pool->most) {
    throw Refused{CUDA_ERROR_OUT_OF_MEMORY, std::to_string(bytes) + " bytes were asked for and " +
                                                std::to_string(pool->most - pool->used) +
                                                " are left in the pool"};
  }
  const auto made = allocate(call, bytes, pool->where, 1);
  made->pool = pool, pool->used += bytes, pool->high = std::max(pool->high, pool->used);
  address = made->address;
  Step step(call, *call.context(), stream, "an allocation");
  step.writes(address, bytes);
  step.end();
}

}  // namespace

u64 default_pool(CUdevice device) {
  Primary& primary = device_of(device);
  if (!primary.default_pool)
    primary.default_pool = reinterpret_cast<u64>(
        add_pool(Pool{.handle = 0, .device = device, .where = Where::device, .owned = false}));
  return primary.default_pool;
}

}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
  return entry([&](Call& call) {
    allocate_from(call, out, bytes, current_pool(call.context()->device), stream);
  });
}

CU_API cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
  return entry([&](Call& call) { allocate_from(call, out, bytes, pool, stream); });
}

CU_API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return entry([&](Call& call) {
    check_stream(*call.even_failed_context(), stream);
    if (!address) return;
    if (const auto capture = capture_of(*call.even_failed_context(), stream)) {
      captured(call, stream, CU_GRAPH_NODE_TYPE_MEM_FREE, free_work(address));
      return;
    }
    const auto found = find_allocation(address, 0);
    if (!found || found->address != address || !(found->pool || found->counts()))
      throw Refused{CUDA_ERROR_INVALID_VALUE, describe_address(address, 1)};
    const Operation run = [address, bytes = found->size](Call& inner, CUstream on) {
      Step step(inner, *inner.even_failed_context(), on, "a free");
      step.writes(address, bytes);
      step.end();
      drop_allocation(address);
    };
    if (!put_off(call, stream, run)) run(call, stream);
  });
}

CU_API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return entry(
      [&](Call&) { needed(pool, "pool") = reinterpret_cast<CUmemoryPool>(default_pool(device)); });
}

CU_API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return entry([&](Call&) { needed(pool, "pool") = current_pool(device); });
}

CU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  return entry([&](Call&) {
    if (pool_of(handle)->device != device || pool_of(handle)->where != Where::device)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "the pool is not of this device's memory"};
    device_of(device).pool = reinterpret_cast<u64>(handle);
  });
}

CU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  return entry([&](Call&) {
    const CUmemPoolProps& given = needed(props, "props");
    CUmemoryPool& pool = needed(out, "pool");
    if (given.handleTypes)
      throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                    "pools that are shared with other processes: memory is of this process alone"};
    if (given.allocType != CU_MEM_ALLOCATION_TYPE_PINNED &&
        given.allocType != CU_MEM_ALLOCATION_TYPE_MANAGED)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown type of a pool"};
    const bool on_device = given.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_device) check_device(given.location.id);
    const bool managed = given.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!managed && given.location.type == CU_MEM_LOCATION_TYPE_INVALID)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "a pool needs a location"};
    pool = add_pool(Pool{.handle = 0,
                         .device = on_device ? given.location.id : 0,
                         .where = managed     ? Where::managed
                                  : on_device ? Where::device
                                              : Where::pinned,
                         .owned = true,
                         .most = given.maxSize});
  });
}

// Allocations from a destroyed pool live until they are freed.
CU_API cuMemPoolDestroy(CUmemoryPool handle) {
  return entry([&](Call&) {
    if (!pool_of(handle)->owned)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "a device's own pool cannot be destroyed"};
    const u64 number = reinterpret_cast<u64>(handle);
    for (Primary& primary : state().primaries)
      if (primary.pool == number) primary.pool = 0;
    state().pools.erase(number);
  });
}

CU_API cuMemPoolTrimTo(CUmemoryPool handle, std::size_t) {
  return entry([&](Call&) { pool_of(handle); });
}

CU_API cuMemPoolGetAttribute(CUmemoryPool handle, int which, void* out) {
  return entry([&](Call&) {
    Pool& pool = *pool_of(handle);
    u8& value = needed(static_cast<u8*>(out), "value");
    const auto put = [&](auto number) { std::memcpy(&value, &number, sizeof number); };
    switch (which) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: put(pool.attributes[which]); break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: put(pool.used); break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH: put(pool.high); break;
      default:
        if (which < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
            which > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
          throw Refused{CUDA_ERROR_INVALID_VALUE,
                        "unknown attribute of a pool: " + std::to_string(which)};
        }
        put(static_cast<int>(pool.attributes.try_emplace(which, 1).first->second));
    }
  });
}

CU_API cuMemPoolSetAttribute(CUmemoryPool handle, int which, const void* from) {
  return entry([&](Call&) {
    Pool& pool = *pool_of(handle);
    const u8& value = needed(static_cast<const u8*>(from), "value");
    if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      std::memcpy(&pool.attributes[which], &value, sizeof(u64));
    } else if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
               which == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
      pool.high = pool.used;
    } else if (which >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
               which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
      int flag = 0;
      std::memcpy(&flag, &value, sizeof flag), pool.attributes[which] = flag != 0;
    } else {
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "attribute " + std::to_string(which) + " of a pool cannot be set"};
    }
  });
}

CU_API cuMemPoolGetAccess(int* flags, CUmemoryPool handle, const CUmemLocation* location) {
  return entry([&](Call&) {
    const Pool& pool = *pool_of(handle);
    const CUmemLocation& where = needed(location, "location");
    const bool own = where.type == CU_MEM_LOCATION_TYPE_DEVICE && where.id == pool.device;
    needed(flags, "flags") = own || pool.where != Where::device || pool.peers.contains(where.id)
                                 ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                 : 0;
  });
}

CU_API cuMemPoolSetAccess(CUmemoryPool handle, const void* accesses, std::size_t count) {
  struct Access {
    CUmemLocation location;
    int flags;
  };
  return entry([&](Call&) {
    Pool& pool = *pool_of(handle);
    for (std::size_t i = 0; i < count; ++i) {
      const Access& given = (&needed(static_cast<const Access*>(accesses), "accesses"))[i];
      const bool own =
          given.location.type == CU_MEM_LOCATION_TYPE_DEVICE && given.location.id == pool.device;
      if (given.location.type != CU_MEM_LOCATION_TYPE_DEVICE || own) continue;
      check_device(given.location.id);
      if (given.flags)
        pool.peers.insert(given.location.id);
      else
        pool.peers.erase(given.location.id);
    }
    ++state().generation;
  });
}

CU_API cuMemGetDefaultMemPool(CUmemoryPool* out, const CUmemLocation* location, int type) {
  return entry([&](Call&) {
    const CUmemLocation& given = needed(location, "location");
    CUmemoryPool& pool = needed(out, "pool");
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!managed && given.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      pool = reinterpret_cast<CUmemoryPool>(default_pool(given.id));
      return;
    }
    u64& known = managed ? state().managed_pool : state().pinned_pool;
    if (!known)
      known = reinterpret_cast<u64>(add_pool(Pool{.handle = 0,
                                                  .device = 0,
                                                  .where = managed ? Where::managed : Where::pinned,
                                                  .owned = false}));
    pool = reinterpret_cast<CUmemoryPool>(known);
  });
}

CU_API cuMemGetMemPool(CUmemoryPool* out, const CUmemLocation* location, int type) {
  if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return cuMemGetDefaultMemPool(out, location, type);
  return cuDeviceGetMemPool(out, location->id);
}

CU_API cuMemSetMemPool(const CUmemLocation* location, int type, CUmemoryPool pool) {
  const bool is_device = location && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (is_device && type == CU_MEM_ALLOCATION_TYPE_PINNED)
    return cuDeviceSetMemPool(location->id, pool);
  return remember(
      CUDA_ERROR_NOT_SUPPORTED,
      "cuMemSetMemPool: pools for the memory of the host and for managed memory stay; pass "
      "yours to cuMemAllocFromPoolAsync");
}
