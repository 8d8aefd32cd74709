// Origins of memory, for findings: where the host allocated it, and which launches used it. They
// are recorded while written bytes are followed.
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstring>

#include "driver.hpp"

#define ORIGIN_API extern "C" __attribute__((visibility("default")))

namespace workbench::driver {
namespace {

constexpr std::size_t kMostLeft = 4096;
// torch's allocator calls the driver under its own lock. Another thread may wait for that lock
// while it holds the interpreter's lock, which the hook needs; so its calls are skipped, and it
// reports its blocks itself.
constexpr const char* kTorchsAllocator = "libc10_cuda";

bool within(u64 address, u64 begin, u64 bytes) { return address - begin < bytes; }

// The part that holds an address, or null.
template <class Parts>
auto part_at(Parts& parts, u64 address) -> decltype(&*parts.begin()) {
  const auto after = parts.upper_bound(address);
  if (after == parts.begin()) return nullptr;
  const auto found = std::prev(after);
  return within(address, found->first, found->second.bytes) ? &*found : nullptr;
}

// The origin of the memory at an address: that of the block, if it is in one. Null if there is
// none.
Origin* origin_at(u64 address) {
  const auto allocation = find_allocation(address, 1);
  if (!allocation) return nullptr;
  if (!allocation->blocks) return &allocation->origin;
  auto* const block = part_at(allocation->blocks->live, address);
  return block ? &block->second.origin : nullptr;
}

// Calls a hook whose answer does not matter, unless Python is ending.
template <class Hook, class... Arguments>
void tell(Call& call, Hook hook, Arguments... arguments) {
  if (state().closed) return;
  try {
    ask(call, state().hooks.*hook, arguments...);
  } catch (const Refused&) {
    if (!call.lock.owns_lock()) call.lock.lock();
  }
}

HookMemory memory_of(u64 address, const Part& part, bool freed) {
  const Origin& origin = part.origin;
  return {.address = address,
          .bytes = part.bytes,
          .made = origin.made,
          .used = origin.used,
          .wrote = origin.wrote,
          .freed = freed,
          .copied = origin.copied,
          .unwritten = 0,
          .first = 0,
          .runs = 0,
          .longest = 0};
}

// Memory that a launch wrote in part, with its unwritten bytes; none if all of it is written.
bool partly_written(const Allocation& allocation, u64 address, const Part& part, HookMemory& out) {
  if (!part.origin.wrote) return false;
  Unwritten found;
  const u64 offset = address - allocation.address;
  find_unwritten(allocation, offset, std::min(part.bytes, allocation.size - offset), found);
  out = memory_of(address, part, false);
  out.unwritten = found.bytes, out.first = found.first - offset;
  out.runs = found.runs, out.longest = found.longest;
  return found.bytes != 0;
}

}  // namespace

Frames client_frames() {
  void* addresses[48];
  Frames frames;
  Dl_info own{}, of{};
  dladdr(reinterpret_cast<void*>(&client_frames), &own);
  const int count = backtrace(addresses, 48);
  for (int i = 0; i < count && frames.count < std::size(frames.addresses); ++i) {
    if (!dladdr(addresses[i], &of) || of.dli_fbase == own.dli_fbase) continue;
    frames.addresses[frames.count++] = reinterpret_cast<u64>(addresses[i]);
  }
  return frames;
}

void record_origin(Call& call, Allocation& made) {
  if (!state().follows_writes || made.where == Where::pinned) return;
  const Frames frames = client_frames();
  for (u32 i = 0; i < frames.count; ++i) {
    Dl_info of{};
    if (dladdr(reinterpret_cast<void*>(frames.addresses[i]), &of) && of.dli_fname &&
        std::strstr(of.dli_fname, kTorchsAllocator))
      return;
  }
  u64 number = 0;
  tell(call, &Hooks::origin, static_cast<const char*>(nullptr), u32{1}, frames.addresses,
       frames.count, &number);
  made.origin.made = number;
}

void copy_origin(u64 to, u64 from) {
  Origin* const target = origin_at(to);
  const Origin* const source = origin_at(from);
  if (target && source && target != source) target->used = source->used, target->copied = true;
}

bool has_been_used(u64 address) {
  const Origin* const origin = origin_at(address);
  return origin && origin->used;
}

void keep_partly_written(const Allocation& allocation, u64 address, const Part& part) {
  HookMemory left;
  if (partly_written(allocation, address, part, left) && state().left.size() < kMostLeft)
    state().left.push_back(left);
}

void tell_read(Call& call, const HookRead& read) { tell(call, &Hooks::host_read, &read); }

void tell_read(Call& call, const Allocation& source, const Unwritten& found, u64 bytes) {
  const Frames frames = client_frames();
  const HookRead read{.reader = "a copy to the host",
                      .element = 1,
                      .address = source.address + found.first,
                      .total = bytes,
                      .unwritten = found.bytes,
                      .runs = found.runs,
                      .longest = found.longest,
                      .frames = frames.addresses,
                      .frame_count = frames.count};
  tell_read(call, read);
}

}  // namespace workbench::driver

using namespace workbench::driver;

// For torch's operators: the tensor that was made at an address.
ORIGIN_API void workbench_driver_tensor(u64 address, const char* tensor, u32 element) {
  entry([&](Call& call) {
    u64 number = 0;
    tell(call, &Hooks::origin, tensor, element, static_cast<const u64*>(nullptr), u32{0}, &number);
    const auto allocation = find_allocation(address, 1);
    if (!allocation || (!allocation->blocks && allocation->address != address)) return;
    if (Origin* const origin = origin_at(address)) origin->made = number;
  });
}

// For workbench.driver: the origin of the memory at an address, which may be freed. Returns 0 if it
// is unknown.
ORIGIN_API int workbench_driver_memory(u64 address, HookMemory* out) {
  return answer_or(0, [&] {
    const auto allocation = find_allocation(address, 1);
    if (allocation && allocation->blocks) {
      const Blocks& blocks = *allocation->blocks;
      const auto* const live = part_at(blocks.live, address);
      const auto* const freed = live ? nullptr : part_at(blocks.freed, address);
      if (live) *out = memory_of(live->first, live->second, false);
      if (freed) *out = memory_of(freed->first, freed->second, true);
      return live || freed ? 1 : 0;
    }
    if (allocation) {
      *out = memory_of(allocation->address, {allocation->size, allocation->origin}, false);
      return 1;
    }
    const auto* const freed = part_at(state().freed, address);
    if (freed) *out = memory_of(freed->first, freed->second, true);
    return freed ? 1 : 0;
  });
}

// For workbench.driver: a launch with this number has the memory as an argument.
ORIGIN_API void workbench_driver_used(u64 address, u64 number) {
  answer_or(0, [&] {
    Origin* const origin = origin_at(address);
    if (origin) origin->used = number, origin->copied = false;
    return 0;
  });
}

// For workbench.driver: the latest launch wrote bytes of the memory that were unwritten before.
ORIGIN_API void workbench_driver_wrote(u64 address) {
  answer_or(0, [&] {
    if (Origin* const origin = origin_at(address)) origin->wrote = origin->used;
    return 0;
  });
}

// For workbench.driver, at the end: memory that launches wrote in part and that was never
// completed. Writes as many as there is room for and returns their number.
ORIGIN_API u64 workbench_driver_partly_written(HookMemory* out, u64 room) {
  return answer_or(u64{0}, [&] {
    State& all = state();
    std::vector<HookMemory> found = std::move(all.left);
    all.left.clear();
    const auto add = [&](Allocation& allocation, u64 address, Part& part) {
      HookMemory one;
      if (partly_written(allocation, address, part, one)) found.push_back(one);
      part.origin.wrote = 0;
    };
    for (const auto& [address, allocation] : all.allocations) {
      Part whole{allocation->size, allocation->origin};
      if (!allocation->blocks) add(*allocation, address, whole);
      if (allocation->blocks)
        for (auto& [begin, part] : allocation->blocks->live) add(*allocation, begin, part);
    }
    const u64 count = std::min<u64>(found.size(), room);
    std::copy_n(found.begin(), count, out);
    return count;
  });
}
