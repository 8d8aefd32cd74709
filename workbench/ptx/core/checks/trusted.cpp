#include "checks/trusted.hpp"

#include <algorithm>

#include "checks/written.hpp"
#include "memory/access.hpp"

namespace workbench::ptx {

void WrittenShared::resize(u32 shared_bytes, u32 granule) {
  shift_ = static_cast<u32>(__builtin_ctz(granule));
  flags_.assign((shared_bytes >> shift_) + 1, 0);
}

void WrittenShared::begin_block() {
  std::fill(flags_.begin(), flags_.end(), u8{0});
  left_ = static_cast<u32>(flags_.size()) - 1;
}

[[gnu::always_inline]] inline void WrittenShared::mark(u32 at, u32 count) {
  u8* const from = &flags_[at];
  u32 known = 0;
  for (u32 i = 0; i < count; ++i) known += from[i], from[i] = 1;
  left_ -= count - known;
}

[[gnu::always_inline]] inline void WrittenShared::write(u32 offset, u32 bytes) {
  mark(offset >> shift_, std::max(bytes >> shift_, 1u));
}

[[gnu::always_inline]] inline bool WrittenShared::holds(u32 offset, u32 bytes) const {
  const u8* const from = &flags_[offset >> shift_];
  const u32 count = std::max(bytes >> shift_, 1u);
  u32 at = 0;
  u64 all = ~u64{0};
  for (; at + 8 <= count; at += 8) {
    u64 eight;
    std::memcpy(&eight, from + at, sizeof eight);
    all &= eight;
  }
  u8 rest = 1;
  for (; at < count; ++at) rest &= from[at];
  return rest && (all & 0x0101010101010101) == 0x0101010101010101;
}

void WrittenShared::write(u32 first, const LaneOffsets& lanes, u32 bytes) {
  if (lanes.order == LaneOffsets::Order::row) return write(first, kLanes * bytes);
  if (lanes.order == LaneOffsets::Order::same) return write(first, bytes);
  for (u32 lane = 0; lane < kLanes; ++lane)
    write(first + static_cast<u32>(lanes.from_first[lane]), bytes);
}

bool WrittenShared::holds(u32 first, const LaneOffsets& lanes, u32 bytes) const {
  const u32 begin = first + static_cast<u32>(lanes.lowest),
            reach = static_cast<u32>(lanes.highest - lanes.lowest) + bytes;
  if (reach >> shift_ <= kCompared && holds(begin, reach)) return true;
  if (lanes.order != LaneOffsets::Order::other) return false;
  if (bytes >> shift_ <= 1) {
    u8 all = 1;
    for (u32 lane = 0; lane < kLanes; ++lane)
      all &= flags_[(first + static_cast<u32>(lanes.from_first[lane])) >> shift_];
    return all;
  }
  bool all = true;
  for (u32 lane = 0; lane < kLanes && all; ++lane)
    all = holds(first + static_cast<u32>(lanes.from_first[lane]), bytes);
  return all;
}

namespace {

u64 address_of(u8* registers, Slot base, u32 flags, s64 offset, u32 lane) {
  if (flags & kNarrowBase) return at<const u32>(registers, base)[lane] + static_cast<u32>(offset);
  return at<const u64>(registers, base)[lane] + static_cast<u64>(offset);
}

void note(Warp& warp, const Instruction& in, Problem problem, u32 lane, u64 address, u32 bytes) {
  warp.block->note({.problem = problem,
                    .pc = warp.block->pc_of(in),
                    .block = warp.block->index,
                    .thread = warp.thread(lane),
                    .address = address,
                    .bytes = bytes});
}

// Marks or looks up one lane's bytes of shared memory. An access outside is reported by the
// handler itself.
template <bool Writes>
void see_shared(Warp& warp, const Instruction& in, u32 lane, u64 offset, u32 bytes) {
  Block& block = *warp.block;
  if (offset + bytes > block.launch->shared_bytes) return;
  if (Writes)
    block.written->write(static_cast<u32>(offset), bytes);
  else if (!block.written->holds(static_cast<u32>(offset), bytes))
    note(warp, in, Problem::uninitialised_shared, lane, offset, bytes);
}

// Marks a range of global memory as written, or returns whether it is.
template <bool Writes>
bool see_range(const Buffer& buffer, u64 address, u32 bytes) {
  const u64 end = address + bytes;
  u32 unknown = 0;
  for (u64 sector = address >> 5; sector << 5 < end; ++sector) {
    u32 part = ~0u;
    if (sector << 5 < address) part &= ~0u << (address & 31);
    if (end - (sector << 5) < 32) part &= ~0u >> (32 - (end & 31));
    if (Writes)
      mark_written(buffer, sector, part);
    else
      unknown |= part & ~written_of(buffer, sector);
  }
  return !unknown;
}

template <bool Writes>
void see_global(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes) {
  const Buffer* const buffer = warp.block->find(address, bytes);
  if (buffer && buffer->written && !see_range<Writes>(*buffer, address, bytes))
    note(warp, in, Problem::uninitialised_global, lane, address, bytes);
}

// Addresses that were computed from an index that has wrapped, in a warp with such indexes.
void see_wrapped(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes) {
  PTX_FOR_EACH_LANE (lane, mask)
    check_wrapped(warp, in, lane, address_of(registers, in.address, in.flags, in.offset, lane),
                  bytes);
}

template <Space S>
constexpr bool is_shared(u64 address) {
  return S == Space::shared || (S == Space::generic && in_shared(address));
}

template <Space S, bool Writes>
void see_located(u8* registers, const Instruction& in, Warp& warp, u32 bytes,
                 const Located& located) {
  Block& block = *warp.block;
  const u64 first = first_address(registers, in);
  const LaneOffsets& lanes = *located.offsets;
  if (is_shared<S>(first)) {
    const u32 offset = static_cast<u32>(first & kWindowMask);
    if (block.written->full()) return;
    if (Writes) return block.written->write(offset, lanes, bytes);
    if (__builtin_expect(block.written->holds(offset, lanes, bytes), 1)) return;
    PTX_FOR_EACH_LANE (lane, kAllLanes)
      see_shared<Writes>(warp, in, lane, offset + lanes.from_first[lane], bytes);
    return;
  }
  const Buffer& buffer = *block.last_buffer[static_cast<std::size_t>(block.pc_of(in))];
  if (!buffer.written) return;
  if (lanes.order == LaneOffsets::Order::row && see_range<Writes>(buffer, first, kLanes * bytes))
    return;
  PTX_FOR_EACH_LANE (lane, kAllLanes)
    see_global<Writes>(warp, in, lane, first + lanes.from_first[lane], bytes);
}

template <Space S, bool Writes>
void access(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if (S == Space::shared && warp.block->written->full()) return in.run(registers, in, mask, warp);
  const u32 bytes = u32{in.bytes} * in.elements;
  if (S != Space::shared && __builtin_expect(warp.wrapped != nullptr, 0))
    see_wrapped(registers, in, mask, warp, bytes);
  Located located;
  if (mask == kAllLanes) located = locate<S>(registers, in, warp, bytes, Writes);
  if (located.first) {
    see_located<S, Writes>(registers, in, warp, bytes, located);
  } else {
    PTX_FOR_EACH_LANE (lane, mask) {
      const u64 address = address_of(registers, in.address, in.flags, in.offset, lane);
      if (is_shared<S>(address))
        see_shared<Writes>(warp, in, lane, address & kWindowMask, bytes);
      else
        see_global<Writes>(warp, in, lane, address, bytes);
    }
  }
  in.run(registers, in, mask, warp);
}

void unmarked(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if (__builtin_expect(warp.wrapped != nullptr, 0))
    see_wrapped(registers, in, mask, warp, u32{in.bytes} * in.elements);
  in.run(registers, in, mask, warp);
}

// Each of the first lanes, eight for each matrix, has the address of a row of 16 bytes.
template <bool Writes>
void matrix(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if (warp.block->written->full()) return in.run(registers, in, mask, warp);
  constexpr u32 kRow = 16;
  for (u32 lane = 0; lane < 8u * in.elements; ++lane)
    see_shared<Writes>(warp, in, lane,
                       address_of(registers, in.address, in.flags, in.offset, lane) & kWindowMask,
                       kRow);
  in.run(registers, in, mask, warp);
}

// cp.async. Its destination counts as written from its issue on: that no thread reads it before the
// copy has landed is proved.
void copy(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if (__builtin_expect(warp.wrapped != nullptr, 0))
    see_wrapped(registers, in, mask, warp, in.bytes);
  if (warp.block->written->full()) return in.run(registers, in, mask, warp);
  const u32 flags = in.copy.flags & kWideBase ? kWideBase : kNarrowBase;
  PTX_FOR_EACH_LANE (lane, mask)
    see_shared<true>(
        warp, in, lane,
        address_of(registers, in.copy.destination, flags, in.copy.offset, lane) & kWindowMask,
        in.bytes);
  in.run(registers, in, mask, warp);
}

Handler handler_of(const Kernel& kernel, u32 pc, Trusted way) {
  switch (way) {
    case Trusted::unmarked: return &unmarked;
    case Trusted::load_matrix: return &matrix<false>;
    case Trusted::store_matrix: return &matrix<true>;
    case Trusted::copy: return &copy;
    default: break;
  }
  const bool writes = way == Trusted::store;
  switch (kernel.effects[pc].window) {
    case MemoryEffect::shared:
      return writes ? &access<Space::shared, true> : &access<Space::shared, false>;
    case MemoryEffect::generic:
      return writes ? &access<Space::generic, true> : &access<Space::generic, false>;
    default: return writes ? &access<Space::global, true> : &access<Space::global, false>;
  }
}

}  // namespace

void trust(Kernel& kernel, const std::vector<std::pair<u32, Trusted>>& rows) {
  for (const auto& [pc, way] : rows) kernel.code.at(pc).run_observed = handler_of(kernel, pc, way);
  kernel.trusts = true;
}

}  // namespace workbench::ptx
