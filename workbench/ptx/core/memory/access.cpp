#include "memory/access.hpp"

#include "checks/global_shadow.hpp"
#include "checks/map_watch.hpp"
#include "memory/cluster.hpp"
#include "memory/device_heap.hpp"

namespace workbench::ptx {

const Buffer* Block::find(u64 address, u64 bytes) const {
  const auto& buffers = launch->buffers;
  std::size_t low = 0, high = buffers.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (buffers[middle].address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return nullptr;
  const Buffer& buffer = buffers[low - 1];
  const u64 offset = address - buffer.address;
  return offset <= buffer.size && bytes <= buffer.size - offset ? &buffer : nullptr;
}

namespace {

void load_addresses(u8* registers, const Instruction& in, u32 mask, u64* address) {
  const u64 offset = static_cast<u64>(in.offset);
  const u32 slot = in.address;
  if (in.flags & kNarrowBase) {
    const u32* base = at<const u32>(registers, slot);
    PTX_LANES {
      address[lane] = base[lane] + static_cast<u32>(offset);
    }
    PTX_LANES {
      address[lane] &= 0xffffffffu;
    }
  } else {
    const u64* base = at<const u64>(registers, slot);
    PTX_LANES {
      address[lane] = base[lane] + offset;
    }
  }
  if (mask != kAllLanes) {
    const u64 first = address[first_lane(mask)];
    PTX_LANES {
      address[lane] = (mask >> lane & 1) ? address[lane] : first;
    }
  }
}

// The buffer that holds the part of the word at `address` that an element takes. The host has the
// whole word too, because its allocations begin and end at words.
const Buffer* find_word(const Block& block, const Instruction& in, u64 address, u32 bytes) {
  if (!(in.flags & kWordOfElement)) return nullptr;
  for (u32 byte = 0; byte < bytes; ++byte) {
    const Buffer* const buffer = block.find(address + byte, 1);
    if (!buffer) continue;
    const auto host = reinterpret_cast<std::uintptr_t>(buffer->host);
    return !buffer->heap && ((host ^ buffer->address) & (bytes - 1)) == 0 ? buffer : nullptr;
  }
  return nullptr;
}

void drop_lane(Request& request, u32 lane) {
  request.mask &= ~(1u << lane);
  request.host[lane] = request.nowhere;
}

// Adds an offset to a pointer before it is known whether the result lies inside the buffer.
u8* moved(u8* base, s64 offset) {
  return reinterpret_cast<u8*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<u64>(offset));
}

// Resolves global lanes one by one: for several buffers in one request, or a fault.
void resolve_lanes(const Instruction& in, u32 lanes, Warp& warp, u32 bytes, bool is_write,
                   Request& request) {
  Block& block = *warp.block;
  PTX_FOR_EACH_LANE (lane, lanes) {
    const u64 address = request.address[lane];
    if (address & (bytes - 1)) {
      drop_lane(request, lane);
      block.problem(Problem::misaligned, in, warp.thread(lane), address, bytes);
      continue;
    }
    const Buffer* buffer = block.find(address, bytes);
    if (!buffer) buffer = find_word(block, in, address, bytes);
    if (!buffer) {
      drop_lane(request, lane);
      block.problem(Problem::out_of_bounds, in, warp.thread(lane), address, bytes);
    } else if (buffer->heap && !buffer->heap->holds(address, bytes)) {
      drop_lane(request, lane);
      block.problem(Problem::out_of_bounds, in, warp.thread(lane), address, bytes,
                    buffer->heap->describe(address));
    } else if (is_write && !buffer->writable) {
      drop_lane(request, lane);
      block.problem(Problem::read_only, in, warp.thread(lane), address, bytes);
    } else {
      request.host[lane] = moved(buffer->host, static_cast<s64>(address - buffer->address));
    }
  }
}

// Resolves lanes that are all inside one buffer and aligned, nearly the only case: one pass without
// branches.
bool resolve_in(const Buffer& buffer, u32 bytes, bool is_write, Request& request) {
  if (buffer.size < bytes || buffer.heap || (is_write && !buffer.writable)) return false;
  const s64 limit = static_cast<s64>(buffer.size - bytes);
  const u64 base = buffer.address;
  s64 outside = 0;
  u64 low_bits = 0;
  PTX_LANES {
    const s64 offset = static_cast<s64>(request.address[lane] - base);
    outside |= offset | static_cast<s64>(static_cast<u64>(limit) - static_cast<u64>(offset));
    low_bits |= request.address[lane];
    request.host[lane] = moved(buffer.host, offset);
  }
  return outside >= 0 && (low_bits & (bytes - 1)) == 0;
}

void resolve_window(const Instruction& in, u32 lanes, Warp& warp, u32 bytes, u8* base, u64 stride,
                    u64 size, Problem outside, Request& request) {
  Block& block = *warp.block;
  PTX_FOR_EACH_LANE (lane, lanes) {
    const u64 offset = request.address[lane];
    if (offset > size || bytes > size - offset) {
      drop_lane(request, lane);
      block.problem(outside, in, warp.thread(lane), offset, bytes);
    } else if (offset & (bytes - 1)) {
      drop_lane(request, lane);
      block.problem(Problem::misaligned, in, warp.thread(lane), offset, bytes);
    } else {
      request.host[lane] = base + lane * stride + offset;
    }
  }
}

inline void check_shared_extent(const Warp& warp, const Instruction& in, const Request& request,
                                u32 mask, u32 bytes, bool is_write) {
  const Block& block = *warp.block;
  if (!block.shared_bounds) return;
  const auto [low, size] = block.shared_bounds[block.pc_of(in)];
  const LaneOffsets* const offsets = request.located.offsets;
  if (offsets && offsets->within(request.address[0] - low, size, bytes)) return;
  check_addresses(warp, in, block.launch->shared_extents, request.address, mask, bytes, is_write);
}

// Shows the shared lanes of a valid request to statistics and checks. A plain store is shown once
// its values are known (store_lane).
void see_shared(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write, bool is_read,
                Request& request) {
  observe_shared(warp, in, request.address, mask, bytes, is_write, is_read);
  if (!warp.block->shadow) return;
  check_shared_extent(warp, in, request, mask, bytes, is_write);
  const bool orders = (in.flags & (kStrong | kUnordered)) == kStrong;
  if (orders) acquire_flags(warp, request.address, mask, is_read);
  if (in.flags & kVolatile) {
    if (is_write)
      warp.block->shadow->volatile_store(warp, in, request.address, mask, bytes);
    else
      warp.block->shadow->volatile_load(warp, in, request.address, mask, bytes);
  }
  if (is_write && !is_read)
    request.shadowed = mask;
  else
    check_shared(warp, in, request.address, mask, bytes, is_write);
  if (orders) release_flags(warp, in, request.address, mask, is_write);
}

void see_remote(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write, bool is_read,
                Request& request) {
  if (!warp.block->shadow) return;
  const bool orders = (in.flags & (kStrong | kUnordered)) == kStrong;
  if (orders) acquire_flags(warp, request.address, mask, is_read);
  if (is_write && !is_read)
    request.shadowed_remote = mask;
  else
    check_remote(warp, in, request.address, mask, bytes, is_write, mask);
  if (orders) release_flags(warp, in, request.address, mask, is_write);
}

void see_global(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write, bool is_read,
                Request& request) {
  observe_global(warp, in, request.address, mask, bytes, is_write, is_read);
  if (!warp.block->shadow) return;
  check_extent(warp, in, warp.block->launch->global_extents, request.address,
               request.located.offsets, mask, bytes, is_write);
  if (warp.wrapped) check_wrapped(warp, in, request.address, mask, bytes);
  if (MapWatch* maps = warp.block->launch->maps;
      maps && is_write && !is_read && in.kind == Kind::plain)
    maps->stored(warp, in, request.address, mask);
  const bool strong = in.flags & kStrong;
  if (is_write && !is_read && !strong) {
    request.shadowed_global = mask;
    return;
  }
  if (strong) request.held = warp.block->launch->global_shadow->hold();
  check_global(warp, in, request.address, mask, bytes, is_write, is_read);
}

void see_constant(const Instruction& in, u32 mask, Warp& warp, u32 bytes, const Request& request) {
  observe_constant(warp, in, request.address, mask, bytes);
  if (!warp.block->shadow) return;
  check_extent(warp, in, warp.block->launch->global_extents, request.address,
               request.located.offsets, mask, bytes, false);
  if (warp.wrapped) check_wrapped(warp, in, request.address, mask, bytes);
  check_global(warp, in, request.address, mask, bytes, false, true);
}

void resolve_global(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
                    Request& request) {
  Block& block = *warp.block;
  const Buffer*& last = block.last_buffer[static_cast<std::size_t>(block.pc_of(in))];
  const Buffer* buffer = last;
  if (buffer && resolve_in(*buffer, bytes, is_write, request)) return;
  buffer = block.find(request.address[first_lane(mask)], bytes);
  if (buffer && resolve_in(*buffer, bytes, is_write, request)) {
    last = buffer;
    return;
  }
  for (u8*& host : request.host) host = request.nowhere;
  resolve_lanes(in, mask, warp, bytes, is_write, request);
}

void resolve_shared(const Instruction& in, u32 mask, Warp& warp, u32 bytes, Request& request) {
  Block& block = *warp.block;
  const s64 limit = static_cast<s64>(block.launch->shared_bytes) - bytes;
  s64 outside = limit;
  u64 low_bits = 0;
  PTX_LANES {
    const s64 offset = static_cast<s64>(request.address[lane]);
    outside |= offset | static_cast<s64>(static_cast<u64>(limit) - static_cast<u64>(offset));
    low_bits |= request.address[lane];
    request.host[lane] = moved(block.shared, offset);
  }
  if (outside >= 0 && (low_bits & (bytes - 1)) == 0) return;
  for (u8*& host : request.host) host = request.nowhere;
  resolve_window(in, mask, warp, bytes, block.shared, 0, block.launch->shared_bytes,
                 Problem::shared_out_of_bounds, request);
}

// Resolves lanes that name another block of the cluster. Their addresses keep its rank.
u32 resolve_remote(const Instruction& in, u32 lanes, Warp& warp, u32 bytes, Request& request) {
  Block& block = *warp.block;
  const std::size_t blocks = block.cluster->blocks.size();
  u32 remote = 0;
  if (blocks == 1) return 0;
  PTX_FOR_EACH_LANE (lane, lanes) {
    const u64 address = request.address[lane], offset = address & kOffsetMask;
    if (address >> kRankShift > blocks) {
      remote |= 1u << lane;
      drop_lane(request, lane);
      block.problem(Problem::shared_out_of_bounds, in, warp.thread(lane), address, bytes);
      continue;
    }
    if (!is_remote(block, address)) {
      request.address[lane] = offset;
      continue;
    }
    remote |= 1u << lane;
    Block& home = home_of(block, in, warp.thread(lane), address);
    if (offset + bytes > block.launch->shared_bytes || offset & (bytes - 1)) {
      drop_lane(request, lane);
      block.problem(offset & (bytes - 1) ? Problem::misaligned : Problem::shared_out_of_bounds, in,
                    warp.thread(lane), offset, bytes);
      continue;
    }
    request.host[lane] = home.shared + offset;
  }
  return remote;
}

// Fills in the addresses of a request of all lanes from the first lane's.
void fill_addresses(Request& request) {
  const u64 first = request.address[0];
  PTX_LANES {
    request.address[lane] = first + request.located.offsets->from_first[lane];
  }
}

// Shows a plain load to the checks without its addresses, if it reads whole lines that have a quick
// check. Returns false if it must be shown like any other load.
bool see_lines(const Instruction& in, Warp& warp, u32 bytes, const Request& request) {
  const Block& block = *warp.block;
  const Launch& launch = *block.launch;
  if (block.counts || block.recorder || !block.shadow || in.flags & kStrong ||
      !launch.unused.empty() || warp.wrapped)
    return false;
  const u64 first = request.address[0];
  if (!launch.global_extents.empty()) {
    const auto& [low, high, period, filled] =
        launch.global_extents[static_cast<std::size_t>(block.pc_of(in))];
    if (!request.located.offsets->within(first - low, high - low, bytes)) return false;
  }
  const Pattern* const pattern = block.patterns.recent(
      2 * static_cast<std::size_t>(block.pc_of(in)), first, bytes, request.located.offsets->number);
  const LanePieces* const lines = pattern ? pattern->lines() : nullptr;
  return lines && launch.global_shadow->read_lines(warp, in, *lines, first >> 5);
}

// Resolves a request of all lanes whose layout is known. Returns false if it is not known.
template <Space S, bool Observed>
bool resolve_located(u8* registers, const Instruction& in, Warp& warp, u32 bytes, bool is_write,
                     bool is_read, Request& request) {
  Block& block = *warp.block;
  request.located = locate<S>(registers, in, warp, bytes, is_write);
  if (!request.located.first) return false;
  request.mask = kAllLanes;
  u64& first = request.address[0];
  first = first_address(registers, in);
  const bool shared = S == Space::shared || (S == Space::generic && in_shared(first));
  if (shared) first &= kWindowMask;
  if (!Observed || !block.observed) return true;
  if (!shared && !is_write && see_lines(in, warp, bytes, request)) return true;
  fill_addresses(request);
  block.located = request.address, block.located_by = request.located.offsets->number;
  request.block = &block;
  if (shared)
    see_shared(in, kAllLanes, warp, bytes, is_write, is_read, request);
  else if (S == Space::constant)
    see_constant(in, kAllLanes, warp, bytes, request);
  else
    see_global(in, kAllLanes, warp, bytes, is_write, is_read, request);
  return true;
}

template <Space S, bool Observed>
[[gnu::noinline]] void resolve_slowly(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                                      u32 bytes, bool is_write, bool is_read, Request& request) {
  load_addresses(registers, in, mask, request.address);
  resolve_addresses<S, Observed>(in, mask, warp, bytes, is_write, is_read, request);
  if (is_known(S) && request.mask == kAllLanes)
    warp.block->lane_offsets.learn(static_cast<std::size_t>(warp.block->pc_of(in)), request.address,
                                   bytes);
}

}  // namespace

template <Space S, bool Observed>
void resolve_access(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes,
                    bool is_write, bool is_read, Request& request) {
  if constexpr (is_known(S))
    if (mask == kAllLanes &&
        resolve_located<S, Observed>(registers, in, warp, bytes, is_write, is_read, request))
      return;
  resolve_slowly<S, Observed>(registers, in, mask, warp, bytes, is_write, is_read, request);
}

template <Space S, bool Observed>
void resolve(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
             bool is_read, Request& request) {
  resolve_access<S, Observed>(registers, in, mask, warp, bytes, is_write, is_read, request);
  if (!request.located.first) return;
  if (!request.block) fill_addresses(request);
  PTX_LANES {
    request.host[lane] = request.located.at(static_cast<u32>(lane));
  }
  request.located.first = nullptr;
}

template <Space S, bool Observed>
void resolve_addresses(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
                       bool is_read, Request& request) {
  Block& block = *warp.block;
  request.mask = mask, request.shadowed = 0, request.shadowed_global = 0,
  request.shadowed_remote = 0;
  if constexpr (S == Space::global) {
    resolve_global(in, mask, warp, bytes, is_write, request);
    if (Observed && block.observed && request.mask)
      see_global(in, request.mask, warp, bytes, is_write, is_read, request);
  } else if constexpr (S == Space::constant) {
    resolve_global(in, mask, warp, bytes, false, request);
    if (Observed && block.observed && request.mask)
      see_constant(in, request.mask, warp, bytes, request);
  } else if constexpr (S == Space::shared) {
    // A 64-bit register may hold the generic address of a shared variable, so mask the window away.
    if (in.flags & kWideBase) PTX_LANES {
        request.address[lane] &= kWindowMask;
      }
    resolve_shared(in, mask, warp, bytes, request);
    if (Observed && block.observed && request.mask)
      see_shared(in, request.mask, warp, bytes, is_write, is_read, request);
  } else if constexpr (S == Space::local) {
    if (in.flags & kWideBase) PTX_LANES {
        request.address[lane] &= kWindowMask;
      }
    for (u8*& host : request.host) host = request.nowhere;
    const u64 size = block.kernel->local_bytes;
    resolve_window(in, mask, warp, bytes, warp.local, size, size, Problem::local_out_of_bounds,
                   request);
    if (Observed && block.counts) block.counts[block.pc_of(in)].requests += 1;
  } else if constexpr (S == Space::param) {
    for (u8*& host : request.host) host = request.nowhere;
    resolve_window(in, mask, warp, bytes, block.launch->params.data(), 0,
                   block.launch->params.size(), Problem::parameter_out_of_bounds, request);
  } else {
    if (in.flags & kClusterBase) PTX_LANES {
        request.address[lane] = (request.address[lane] & kWindowMask) | kSharedWindow;
      }
    u32 in_shared = 0, in_local = 0, in_params = 0;
    PTX_FOR_EACH_LANE (lane, mask) {
      const u64 window = request.address[lane] >> 56;
      if (window == kSharedWindow >> 56) in_shared |= 1u << lane;
      if (window == kLocalWindow >> 56) in_local |= 1u << lane;
      if (window == kParamWindow >> 56) in_params |= 1u << lane;
    }
    const u32 in_global = mask & ~in_shared & ~in_local & ~in_params;
    if (in_global == mask) {
      resolve_global(in, mask, warp, bytes, is_write, request);
      if (Observed && block.observed && request.mask)
        see_global(in, request.mask, warp, bytes, is_write, is_read, request);
      return;
    }
    for (u8*& host : request.host) host = request.nowhere;
    PTX_LANES {
      request.address[lane] &= (in_global >> lane & 1) ? ~u64{0} : kWindowMask;
    }
    const u32 remote = resolve_remote(in, in_shared, warp, bytes, request);
    in_shared &= ~remote;
    resolve_window(in, in_params, warp, bytes, block.launch->params.data(), 0,
                   block.launch->params.size(), Problem::parameter_out_of_bounds, request);
    resolve_window(in, in_shared, warp, bytes, block.shared, 0, block.launch->shared_bytes,
                   Problem::shared_out_of_bounds, request);
    resolve_window(in, in_local, warp, bytes, warp.local, block.kernel->local_bytes,
                   block.kernel->local_bytes, Problem::local_out_of_bounds, request);
    resolve_lanes(in, in_global, warp, bytes, is_write, request);
    if (!Observed || !block.observed) return;
    if (remote & request.mask)
      see_remote(in, remote & request.mask, warp, bytes, is_write, is_read, request);
    if (in_global & request.mask)
      see_global(in, in_global & request.mask, warp, bytes, is_write, is_read, request);
    if (in_shared & request.mask)
      see_shared(in, in_shared & request.mask, warp, bytes, is_write, is_read, request);
  }
}

#define PTX_RESOLVE(space, observed)                                                             \
  template void resolve_access<Space::space, observed>(u8*, const Instruction&, u32, Warp&, u32, \
                                                       bool, bool, Request&);                    \
  template void resolve<Space::space, observed>(u8*, const Instruction&, u32, Warp&, u32, bool,  \
                                                bool, Request&);                                 \
  template void resolve_addresses<Space::space, observed>(const Instruction&, u32, Warp&, u32,   \
                                                          bool, bool, Request&);
PTX_RESOLVE(global, true)
PTX_RESOLVE(global, false)
PTX_RESOLVE(shared, true)
PTX_RESOLVE(shared, false)
PTX_RESOLVE(local, true)
PTX_RESOLVE(local, false)
PTX_RESOLVE(generic, true)
PTX_RESOLVE(generic, false)
PTX_RESOLVE(constant, true)
PTX_RESOLVE(constant, false)
PTX_RESOLVE(param, true)
PTX_RESOLVE(param, false)
#undef PTX_RESOLVE

}  // namespace workbench::ptx
