// Memory: the valid addresses, to the byte. Addresses are not reused soon, so that a stale one is
// noticed.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"
#include "recording.hpp"

namespace workbench::driver {
namespace {

// Device addresses begin here. Linux on x86-64 maps nothing there by default: its lowest mappings,
// of a process whose stack has no limit, begin at a third of all addresses.
constexpr u64 kBase = u64{0x0200} << 32;
constexpr u64 kEnd = u64{0x2a00} << 32;
constexpr u64 kAlignment = 512;
// So large that an index which runs past the end does not reach the next allocation.
constexpr u64 kGap = u64{1} << 20;
constexpr u64 kPage = 4096;
// From this size on an allocation has pages of its own, which go back to the host when it is freed.
// glibc's heap would keep blocks of up to 32 MiB, and torch's allocator uses such blocks.
constexpr u64 kOwnPages = u64{1} << 16;
constexpr std::size_t kRemembered = 4096;  // freed allocations

std::string hex(u64 value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

u64 round_up(u64 value, u64 unit) { return (value + unit - 1) / unit * unit; }

std::shared_ptr<Allocation> last_at_or_before(u64 address) {
  const auto& all = state().allocations;
  auto after = all.upper_bound(address);
  return after == all.begin() ? nullptr : std::prev(after)->second;
}

u64& used_bytes(const Context& context) {
  return state().primaries[static_cast<std::size_t>(context.device)].used_bytes;
}

void claim(const Context& context, u64 bytes) {
  State& all = state();
  const u64 free_bytes = all.device.memory_bytes - used_bytes(context);
  if (bytes > free_bytes) {
    throw Refused{
        CUDA_ERROR_OUT_OF_MEMORY,
        std::to_string(bytes) + " bytes were asked for and " + std::to_string(free_bytes) + " of " +
            std::to_string(all.device.memory_bytes) +
            " are free; simulated_driver(memory_bytes=...) or workbench run --memory sets how many "
            "there are"};
  }
}

[[noreturn]] void refuse_on_host(u64 bytes) {
  throw Refused{CUDA_ERROR_OUT_OF_MEMORY,
                std::to_string(bytes) + " bytes were asked for, which the host does not have"};
}

std::shared_ptr<void> zeros(u64 bytes) {
  void* const storage = std::calloc(bytes, 1);
  if (!storage) refuse_on_host(bytes);
  return {storage, std::free};
}

// Whole pages of zeros, at an address that this process can use, too.
std::shared_ptr<void> host_pages(u64 bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) refuse_on_host(bytes);
  return {pages, [bytes](void* from) { ::munmap(from, bytes); }};
}

// Gives an allocation pages that the host uses, too: in two mappings if the host is watched.
void put_on_host(Allocation& made) {
  SharedPages pages{};
  const u64 bytes = made.size;
  if (follows_order() && share_pages(bytes, pages)) {
    made.storage = {pages.of_client, [pages, bytes](void*) { unshare_pages(pages, bytes); }};
    made.of_client = pages.of_client;
    made.host = pages.of_driver;
  } else {
    made.storage = host_pages(bytes);
  }
  made.address = reinterpret_cast<u64>(made.storage.get());
}

}  // namespace

std::shared_ptr<Allocation> allocate(Call& call, u64 bytes, Where where, unsigned flags,
                                     u64 address) {
  if (bytes == 0) throw Refused{CUDA_ERROR_INVALID_VALUE, "an allocation of no bytes"};
  auto made = std::make_shared<Allocation>();
  made->size = bytes, made->where = where, made->flags = flags,
  made->context = call.context().get();
  if (where != Where::pinned) claim(*made->context, bytes);
  if (where == Where::device) {
    made->storage = bytes < kOwnPages ? zeros(round_up(bytes, sizeof(u32))) : host_pages(bytes);
    made->address = address ? address : reserve_addresses(bytes);
    begin_unwritten(*made);
  } else {
    put_on_host(*made);
  }
  if (!made->host) made->host = static_cast<u8*>(made->storage.get());
  add_allocation(made);
  if (where == Where::device) log(Logged::allocated, {made->address, bytes});
  if (where == Where::managed) log(Logged::beyond, {}, "managed memory", 14);
  record_origin(call, *made);
  return made;
}

namespace {

// Frees the allocation that begins at an address. Refuses any other address, with a description.
void release(u64 address, bool (*fits)(const Allocation&), const char* wanted) {
  const auto found = state().allocations.find(address);
  if (found == state().allocations.end()) {
    const auto around = last_at_or_before(address);
    if (around && address < around->address + around->size) {
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "the address is inside an allocation, not where it begins (" +
                        hex(around->address) + ")"};
    }
    throw Refused{CUDA_ERROR_INVALID_VALUE, describe_address(address, 1)};
  }
  if (!fits(*found->second))
    throw Refused{CUDA_ERROR_INVALID_VALUE, std::string("the address is not one of ") + wanted};
  drop_allocation(address);
}

}  // namespace

bool mapped(u64 address, u64 bytes) {
  const auto present = [](u64 at) {
    unsigned char resident = 0;
    return ::mincore(reinterpret_cast<void*>(at / kPage * kPage), 1, &resident) == 0;
  };
  const bool on_device = address < kEnd && address + bytes > kBase;
  return address >= kPage && address + bytes > address && !on_device && present(address) &&
         present(address + bytes - 1);
}

bool overlaps(u64 address, u64 bytes) {
  const auto last = last_at_or_before(address + bytes - 1);
  return last && last->address + last->size > address;
}

bool held_in_part(u64 address, u64 bytes) {
  if (!overlaps(address, bytes)) return false;
  for (u64 at = address; at < address + bytes;) {
    const auto found = find_allocation(at, 1);
    if (!found || found->where != Where::registered) return true;
    at = found->address + found->size;
  }
  return false;
}

u64 reserve_addresses(u64 bytes) {
  if (const u64 address = prescribed_address()) {
    if (overlaps(address, bytes) || address < kBase || address > kEnd - bytes)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "the log reserves addresses that are in use"};
    return address;
  }
  State& all = state();
  const u64 span = round_up(bytes, kAlignment) + kGap;
  u64 from = std::max(all.next_address, kBase);
  for (int turn = 0; turn < 2; ++turn, from = kBase) {
    auto next = all.allocations.lower_bound(from);
    if (const auto before = last_at_or_before(from)) {
      if (before->address + before->size > from)
        from = round_up(before->address + before->size, kAlignment) + kGap;
    }
    while (next != all.allocations.end() && next->first < from + span && next->first < kEnd) {
      from = round_up(next->first + next->second->size, kAlignment) + kGap;
      ++next;
    }
    if (from + span <= kEnd) {
      all.next_address = from + span;
      return from;
    }
  }
  throw Refused{CUDA_ERROR_OUT_OF_MEMORY, "no addresses are left"};
}

void add_allocation(const std::shared_ptr<Allocation>& made) {
  State& all = state();
  const Allocation& added =
      *(all.allocations[made->address] = made);  // first, because it may throw
  made->number = ++all.allocation_count;
  if (added.counts()) used_bytes(*added.context) += added.size;
  all.freed.erase(added.address);
  ++all.generation;
}

void drop_allocation(u64 address) {
  State& all = state();
  const auto found = all.allocations.find(address);
  if (found == all.allocations.end()) return;
  if (found->second->where == Where::device) log(Logged::freed, {address});
  order_forget(address, found->second->size);
  const Part whole{found->second->size, found->second->origin};
  if (found->second->where != Where::registered)
    all.freed[address] = whole;  // first, because it may throw
  if (!found->second->blocks) keep_partly_written(*found->second, address, whole);
  if (found->second->counts()) used_bytes(*found->second->context) -= found->second->size;
  if (found->second->pool) found->second->pool->used -= found->second->size;
  if (found->second->of_graph)
    all.primaries[static_cast<std::size_t>(found->second->context->device)].graph_bytes -=
        found->second->size;
  if (all.freed.size() > kRemembered) all.freed.erase(all.freed.begin());
  all.allocations.erase(found);
  ++all.generation;
}

void free_context_memory(const Context* context) {
  std::vector<u64> own;
  for (const auto& [address, allocation] : state().allocations)
    if (allocation->context == context) own.push_back(address);
  for (u64 address : own) drop_allocation(address);
}

std::shared_ptr<Allocation> find_allocation(u64 address, u64 bytes) {
  auto found = last_at_or_before(address);
  if (!found) return nullptr;
  const u64 offset = address - found->address;
  return offset <= found->size && bytes <= found->size - offset ? found : nullptr;
}

std::string describe_address(u64 address, u64 bytes) {
  const State& all = state();
  if (address < kPage) return "a null pointer";
  const auto around = last_at_or_before(address);
  if (around && around->blocks && address < around->address + around->size)
    return hex(address) + " is " + describe_block(*around, address);
  if (around && address < around->address + around->size) {
    return std::to_string(bytes) + " bytes from byte " + std::to_string(address - around->address) +
           " of an allocation of " + std::to_string(around->size) + " bytes";
  }
  auto after = all.freed.upper_bound(address);
  if (after != all.freed.begin()) {
    const auto& [begin, part] = *std::prev(after);
    if (address - begin < part.bytes) {
      return hex(address) + " is byte " + std::to_string(address - begin) +
             " of an allocation of " + std::to_string(part.bytes) + " bytes that was freed";
    }
  }
  if (around && address - around->address - around->size < kGap) {
    return hex(address) + " is " + std::to_string(address - around->address - around->size) +
           " bytes past the end of an allocation of " + std::to_string(around->size) + " bytes";
  }
  return hex(address) + " is in no allocation";
}

std::shared_ptr<Allocation> need_allocation(u64 address, u64 bytes) {
  auto found = find_allocation(address, bytes);
  if (!found) throw Refused{CUDA_ERROR_INVALID_VALUE, describe_address(address, bytes)};
  return found;
}

std::shared_ptr<Snapshot> snapshot(const Context* context) {
  State& all = state();
  auto& kept = all.snapshots[context];
  if (kept && kept->generation == all.generation) return kept;
  const auto made = std::make_shared<Snapshot>();
  made->generation = all.generation;
  for (const auto& [address, allocation] : all.allocations) {
    if (!may_access(*context, *allocation)) continue;
    u32* written = allocation->written.empty() || allocation->all_written
                       ? nullptr
                       : allocation->written.data();
    const auto add = [&](u64 begin, u64 size) {
      const u64 offset = begin - address;
      made->rows.push_back({begin, size, allocation->host + offset,
                            written ? written + offset / 32 : nullptr, allocation->on_host()});
    };
    // What is put off may run when a block is free again.
    const bool whole = !allocation->blocks || late_is_on();
    if (whole) add(address, allocation->size);
    if (!whole) {
      for (const auto& [begin, part] : allocation->blocks->live) add(begin, part.bytes);
    }
    made->held.push_back(allocation);
  }
  return kept = made;
}

}  // namespace workbench::driver

using namespace workbench::driver;

// For workbench.driver: describes an address that a kernel touched outside all memory of its
// device. Returns 1 if it is freed memory, or memory of another device.
extern "C" __attribute__((visibility("default"))) int workbench_driver_describe(u64 address,
                                                                                char* text,
                                                                                u64 size) {
  return answer_or(0, [&] {
    const auto held = find_allocation(address, 1);
    const auto& stack = context_stack();
    const auto here = stack.empty() ? state().contexts.end() : state().contexts.find(stack.back());
    const bool foreign =
        held && here != state().contexts.end() && !may_access(*here->second, *held);
    const std::string what =
        foreign ? "it is " + describe_foreign(*here->second, *held) : describe_address(address, 1);
    std::snprintf(text, size, "%s", what.c_str());
    return foreign || what.find("that was freed") != std::string::npos ? 1 : 0;
  });
}

// The address in this process of a device address, or 0.
extern "C" __attribute__((visibility("default"))) u64 workbench_driver_view(u64 address) {
  return answer_or(u64{0}, [&] {
    const auto found = find_allocation(address, 1);
    return found ? reinterpret_cast<u64>(found->host) + (address - found->address) : 0;
  });
}

// The address in this process, for a caller whose writes the driver cannot follow: from here on the
// allocation counts as written.
extern "C" __attribute__((visibility("default"))) u64 workbench_driver_storage(u64 address) {
  answer_or(0, [&] {
    const auto found = find_allocation(address, 1);
    if (found && !found->written.empty() && !found->all_written) {
      found->all_written = true;
      ++state().generation;
    }
    return 0;
  });
  return workbench_driver_view(address);
}

CU_API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return entry([&](Call& call) {
    needed(free, "free") = state().device.memory_bytes - used_bytes(*call.context());
    needed(total, "total") = state().device.memory_bytes;
  });
}

CU_API cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
  return entry([&](Call& call) {
    outside_captures("allocating memory");
    CUdeviceptr& address = needed(out, "address");
    address = allocate(call, bytes, Where::device, 0)->address;
  });
}

CU_API cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                          std::size_t height, unsigned element) {
  return entry([&](Call& call) {
    outside_captures("allocating memory");
    if (element != 4 && element != 8 && element != 16)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "elements have 4, 8 or 16 bytes"};
    CUdeviceptr& address = needed(out, "address");
    std::size_t& row = needed(pitch, "pitch");
    if (width > kEnd || height > kEnd)
      throw Refused{CUDA_ERROR_OUT_OF_MEMORY, "more than there are addresses"};
    const u64 bytes = round_up(width, kAlignment);
    if (height && bytes > kEnd / height)
      throw Refused{CUDA_ERROR_OUT_OF_MEMORY, "more than there are addresses"};
    address = allocate(call, bytes * height, Where::device, 0)->address;
    row = bytes;
  });
}

CU_API cuMemAllocManaged(CUdeviceptr* out, std::size_t bytes, unsigned flags) {
  return entry([&](Call& call) {
    outside_captures("allocating memory");
    if (flags != 1 && flags != 2)
      throw Refused{CUDA_ERROR_INVALID_VALUE, "flags are 1 (global) or 2 (host)"};
    CUdeviceptr& address = needed(out, "address");
    address = allocate(call, bytes, Where::managed, flags)->address;
  });
}

CU_API cuMemFree_v2(CUdeviceptr address) {
  return entry([&](Call& call) {
    Context& context = *call.even_failed_context();
    outside_captures("freeing memory");
    run_late(call, context);
    if (address)
      release(address, [](const Allocation& one) { return one.counts(); }, "cuMemAlloc's");
  });
}

CU_API cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags) {
  return entry([&](Call& call) {
    outside_captures("allocating memory");
    void*& pointer = needed(out, "pointer");
    if (flags & ~7u) throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown flags"};
    // Page-locked memory belongs to the host, but has the same bound.
    if (bytes > state().device.memory_bytes)
      throw Refused{CUDA_ERROR_OUT_OF_MEMORY, "more than the device's memory"};
    pointer = reinterpret_cast<void*>(allocate(call, bytes, Where::pinned, flags)->address);
  });
}

CU_API cuMemAllocHost_v2(void** out, std::size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }

CU_API cuMemFreeHost(void* pointer) {
  return entry([&](Call& call) {
    run_late(call, *call.even_failed_context());
    release(
        reinterpret_cast<u64>(pointer),
        [](const Allocation& one) { return one.where == Where::pinned; }, "cuMemHostAlloc's");
  });
}

CU_API cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  return entry([&](Call& call) {
    auto made = std::make_shared<Allocation>();
    made->address = reinterpret_cast<u64>(pointer), made->size = bytes,
    made->host = static_cast<u8*>(pointer);
    made->where = Where::registered, made->flags = flags, made->context = call.context().get();
    if (!pointer || !bytes) throw Refused{CUDA_ERROR_INVALID_VALUE, "nothing to register"};
    if (!mapped(made->address, bytes))
      throw Refused{CUDA_ERROR_INVALID_VALUE, "the host has no memory there"};
    if (overlaps(made->address, bytes)) {
      throw Refused{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                    "part of it is registered or allocated here already"};
    }
    add_allocation(made);
  });
}

CU_API cuMemHostUnregister(void* pointer) {
  return entry([&](Call& call) {
    run_late(call, *call.even_failed_context());
    const auto found = state().allocations.find(reinterpret_cast<u64>(pointer));
    if (found == state().allocations.end() || found->second->where != Where::registered) {
      throw Refused{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "no registered memory begins there"};
    }
    drop_allocation(found->first);
  });
}

CU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned) {
  return entry([&](Call& call) {
    call.context();
    if (!need_allocation(reinterpret_cast<u64>(pointer), 1)->on_host())
      throw Refused{CUDA_ERROR_INVALID_VALUE, "not host memory"};
    needed(out, "address") = reinterpret_cast<u64>(pointer);
  });
}

CU_API cuMemHostGetFlags(unsigned* flags, void* pointer) {
  return entry([&](Call& call) {
    call.context();
    const auto found = need_allocation(reinterpret_cast<u64>(pointer), 1);
    if (!found->on_host()) throw Refused{CUDA_ERROR_INVALID_VALUE, "not host memory"};
    needed(flags, "flags") = found->flags;
  });
}

CU_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  return entry([&](Call& call) {
    call.context();
    const auto found = need_allocation(address, 1);
    if (base) *base = found->address;
    if (size) *size = found->size;
  });
}

namespace {

// Writes an attribute of an allocation, or of an address in none (null).
void put_attribute(int which, CUdeviceptr address, const std::shared_ptr<Allocation>& found,
                   u8& data) {
  const auto put = [&](auto value) { std::memcpy(&data, &value, sizeof value); };
  const bool on_host = found && found->on_host();
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: put(found ? found->context->handle : 0); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put(!found                                               ? 0u
          : found->counts() || found->where == Where::variable ? CU_MEMORYTYPE_DEVICE
                                                               : CU_MEMORYTYPE_HOST);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: put(found ? address : 0); break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (found && !on_host)
        throw Refused{CUDA_ERROR_INVALID_VALUE, "device memory has no host address"};
      put(found ? address : 0);
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: put(u8{1}); break;  // every call is synchronous
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: put(found ? found->number : 0); break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: put(u8{found && found->where == Where::managed}); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(found ? found->context->device : CU_DEVICE_INVALID);
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: put(found ? found->address : 0); break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: put(found ? found->size : 0); break;
    case CU_POINTER_ATTRIBUTE_MAPPED: put(u8{found != nullptr}); break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: put(u8{0}); break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: put(u64{0}); break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put(found ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE : 0);
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(found && found->pool ? found->pool->handle : 0);
      break;
    default: throw Refused{CUDA_ERROR_NOT_SUPPORTED, "pointer attribute " + std::to_string(which)};
  }
}

}  // namespace

CU_API cuPointerGetAttribute(void* out, int which, CUdeviceptr address) {
  return entry([&](Call&) {
    put_attribute(which, address, need_allocation(address, 1),
                  needed(static_cast<u8*>(out), "data"));
  });
}

// Unlike the call for one attribute, this one also answers for memory unknown to the driver, with
// zeros.
CU_API cuPointerGetAttributes(unsigned count, const int* which, void** out, CUdeviceptr address) {
  return entry([&](Call&) {
    const auto found = find_allocation(address, 1);
    for (unsigned i = 0; i < count; ++i) {
      u8& data = needed(static_cast<u8*>((&needed(out, "data"))[i]), "data");
      const int attribute = (&needed(which, "attributes"))[i];
      if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && found && !found->on_host())
        std::memset(&data, 0, sizeof(void*));
      else
        put_attribute(attribute, address, found, data);
    }
  });
}

CU_API cuPointerSetAttribute(const void*, int which, CUdeviceptr address) {
  return entry([&](Call&) {
    need_allocation(address, 1);
    if (which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "pointer attribute " + std::to_string(which) + " cannot be set"};
  });
}

// Advice on the place of managed memory has no effect: there is one place.
CU_API cuMemPrefetchAsync_v2(CUdeviceptr address, std::size_t bytes, CUmemLocation, unsigned,
                             CUstream stream) {
  return entry(
      [&](Call& call) { check_stream(*call.context(), stream), need_allocation(address, bytes); });
}

CU_API cuMemAdvise_v2(CUdeviceptr address, std::size_t bytes, int, CUmemLocation) {
  return entry([&](Call&) { need_allocation(address, bytes); });
}
