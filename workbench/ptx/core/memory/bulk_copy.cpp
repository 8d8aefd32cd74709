// cp.async.bulk and cp.async.bulk.tensor: copies between global and shared memory that one lane
// issues.
//
// A load brings the bytes that global memory held when it was issued, as on a GPU, and lands when a
// thread tests the phase of its mbarrier. A copy from shared memory reads and writes late: when its
// lane waits for its group. Nothing lands earlier, so that code without a wait sees the old bytes.
#include "memory/bulk_copy.hpp"

#include <algorithm>
#include <unordered_set>

#include "arithmetic/numeric.hpp"
#include "checks/float_sums.hpp"
#include "checks/global_shadow.hpp"
#include "checks/map_watch.hpp"
#include "checks/source_watch.hpp"
#include "checks/unread_copies.hpp"
#include "codes.hpp"
#include "debug/debugger.hpp"
#include "memory/access.hpp"
#include "memory/cluster.hpp"
#include "memory/mbarrier.hpp"
#include "memory/tensor_map.hpp"
#include "schedule.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kPieceBytes = 16;
constexpr u32 kRowsApart = 4;  // number of separate rows of .tile::gather4 and .tile::scatter4

void misuse(Warp& warp, const Instruction& in, u32 lane, const std::string& text) {
  warp.block->problem(Problem::bulk_misuse, in, warp.thread(lane), 0, 0, text);
}

u64 value_of(u8* registers, u32 slot, u32 lane, bool wide) {
  return wide ? at<const u64>(registers, slot)[lane] : at<const u32>(registers, slot)[lane];
}

// The shared-memory offset of an operand: slot, constant offset, and whether the register has 64
// bits.
u32 shared_offset(u8* registers, u32 slot, u32 constant, bool wide, u32 lane) {
  const u64 base = value_of(registers, slot, lane, wide);
  return static_cast<u32>((wide ? base & kWindowMask : base) +
                          static_cast<u64>(static_cast<s32>(constant)));
}

struct Operands {
  u32 shared, barrier;
  u64 global;

  Operands(u8* registers, const Instruction& in, u32 lane) {
    const u32 flags = in.flags;
    shared = shared_offset(registers, in.bulk.shared, in.bulk.shared_offset,
                           flags & BulkFlags::shared_wide, lane);
    barrier = in.bulk.mbarrier == kNoSlot
                  ? 0
                  : shared_offset(registers, in.bulk.mbarrier, in.bulk.mbarrier_offset,
                                  flags & BulkFlags::barrier_wide, lane);
    global = at<const u64>(registers, in.address)[lane] +
             static_cast<u64>(static_cast<s64>(static_cast<s32>(in.bulk.global_offset)));
  }
};

// Appends the pieces of a row: `bytes` bytes from a global address on (null: filled in), to shared
// memory from `offset` on.
void add_row(Warp& warp, const Instruction& in, u32 lane, bool is_write, u64 address, bool inside,
             u32 offset, const Swizzle& swizzle, u32 bytes, u32 piece, BulkCopy& copy) {
  Block& block = *warp.block;
  u8* host = nullptr;
  if (inside) {
    const Buffer* buffer = block.find(address, bytes);
    if (!buffer || (is_write && !buffer->writable)) {
      block.problem(buffer ? Problem::read_only : Problem::out_of_bounds, in, warp.thread(lane),
                    address, bytes);
      inside = false;
    } else {
      host = buffer->host + (address - buffer->address);
    }
  }
  for (u32 done = 0; done < bytes; done += piece)
    copy.pieces.push_back({inside ? host + done : nullptr, address + done, swizzle(offset + done),
                           std::min(piece, bytes - done)});
}

// Whether a range of shared memory exists; reports it otherwise.
bool in_shared(Warp& warp, const Instruction& in, u32 lane, u32 offset, u64 bytes, u32 alignment) {
  Block& block = *warp.block;
  if (offset + bytes > block.launch->shared_bytes) {
    block.problem(Problem::shared_out_of_bounds, in, warp.thread(lane), offset,
                  static_cast<u32>(bytes));
    return false;
  }
  if (offset % alignment) {
    misuse(warp, in, lane,
           "shared memory at offset " + std::to_string(offset) + ", where a multiple of " +
               std::to_string(alignment) + " belongs");
    return false;
  }
  return true;
}

bool plan_linear(u8* registers, const Instruction& in, u32 lane, Warp& warp, bool is_write,
                 const Operands& operands, BulkCopy& copy) {
  const u32 size = at<const u32>(registers, in.bulk.size)[lane];
  if (size % kPieceBytes || operands.global % kPieceBytes) {
    misuse(warp, in, lane,
           size % kPieceBytes ? std::to_string(size) + " bytes, where a multiple of 16 belongs"
                              : "a global address that is no multiple of 16");
    return false;
  }
  if (!in_shared(warp, in, lane, operands.shared, size, kPieceBytes)) return false;
  check_extent(warp, in, warp.block->launch->shared_extents, lane, operands.shared, size,
               !is_write);
  check_extent(warp, in, warp.block->launch->global_extents, lane, operands.global, size, is_write);
  if (warp.wrapped) check_wrapped(warp, in, lane, operands.global, size);
  copy.bytes = size;
  copy.type = static_cast<MapType>(in.bulk.type);
  if (in.bulk.bytes != kNoSlot) {
    const u32 chosen = at<const u16>(registers, in.bulk.bytes)[lane];
    for (u32 i = 0; i < size; ++i)
      if (chosen >> i % kPieceBytes & 1)
        add_row(warp, in, lane, is_write, operands.global + i, true, operands.shared + i,
                kSwizzles[0], 1, 1, copy);
    return true;
  }
  if (size)
    add_row(warp, in, lane, is_write, operands.global, true, operands.shared, kSwizzles[0], size,
            kPieceBytes, copy);
  return true;
}

// The fault of a tensor map, in words, or null.
const char* fault_of(const TensorMap& map, int dimensions) {
  if (map.empty) return "a tensor map that nobody has encoded";
  if (map.strange || map.type >= static_cast<u8>(MapType::kCount))
    return "a tensor map with bits set that the machine does not know: no tensor map, or one of "
           "another kind than tiled";
  if (map.rank_less_one + 1 != dimensions)
    return "a tensor map of another rank than the instruction's";
  if (map.interleave)
    return "a tensor map with an interleaved layout, which the machine does not know";
  if (map.swizzle > 3 || map.atomicity >= static_cast<u8>(SwizzleAtoms::kCount))
    return "a tensor map with a swizzle that PTX does not have";
  if (map.atomicity && map.swizzle != 3)
    return "a tensor map with atoms that a swizzle of 128 bytes alone has";
  if (map.atomicity == static_cast<u8>(SwizzleAtoms::of_32_flipped))
    return "a tensor map with a flip of 8 bytes in every other line, of which no source says which "
           "lines those are: use atoms of 32 bytes without a flip";
  const MapType type = static_cast<MapType>(map.type);
  if (type == MapType::f32_ftz || type == MapType::tf32 || type == MapType::tf32_ftz)
    return "a tensor map that rounds or flushes its elements, which the machine does not know";
  if (type == MapType::b4x16_p64 || type == MapType::b6x16_p32)
    return "a tensor map that pads its elements of 4 or 6 bits, which the machine does not know";
  if (type == MapType::b4x16 && (map.sizes[0] % 2 || map.box[0] % 2 || map.steps[0] > 1))
    return "a tensor map of 4-bit elements that does not move whole bytes";
  if (map.address % 16) return "a tensor whose address is no multiple of 16";
  return nullptr;
}

// The index in kSwizzles for a map without a fault.
u32 swizzle_of(const TensorMap& map) {
  switch (static_cast<SwizzleAtoms>(map.atomicity)) {
    case SwizzleAtoms::of_32: return kSwizzleIn32;
    case SwizzleAtoms::of_64: return kSwizzleIn64;
    default: return map.swizzle;
  }
}

// Whether the ISA's table for cp.reduce.async.bulk.tensor allows the operation for the type.
bool reduces(Reduction operation, MapType type) {
  const bool is_integer = type == MapType::u32_ || type == MapType::s32_ || type == MapType::u64_ ||
                          type == MapType::s64_;
  const bool is_half = type == MapType::f16 || type == MapType::bf16;
  switch (operation) {
    case Reduction::none: return true;
    case Reduction::add:
      return (is_integer && type != MapType::s64_) || is_half || type == MapType::f32_;
    case Reduction::min:
    case Reduction::max: return is_integer || is_half;
    case Reduction::inc:
    case Reduction::dec: return type == MapType::u32_;
    default: return kMapTypeBytes[static_cast<u32>(type)] >= 4;
  }
}

u64 fill_of(const TensorMap& map) {
  if (!map.fill) return 0;
  switch (static_cast<MapType>(map.type)) {
    case MapType::f16:
    case MapType::bf16:
    case MapType::f32_:
    case MapType::f64_: return kOutside;
    default: return 0;
  }
}

// The memory at a generic address where a tensor map may be stored; null if it may not.
const u8* find_tensor_map(Warp& warp, u64 address) {
  Block& block = *warp.block;
  const u64 offset = address & kWindowMask;
  if (address % kMapAlignment) return nullptr;
  if (address >> 56 == kParamWindow >> 56)
    return offset + kMapUsedBytes <= block.launch->params.size()
               ? block.launch->params.data() + offset
               : nullptr;
  if (address >> 56 == kSharedWindow >> 56)
    return offset + kMapUsedBytes <= block.launch->shared_bytes ? block.shared + offset : nullptr;
  const Buffer* buffer = block.find(address, kMapUsedBytes);
  return buffer ? buffer->host + (address - buffer->address) : nullptr;
}

bool plan_tile(u8* registers, const Instruction& in, u32 lane, Warp& warp, bool is_write,
               const Operands& operands, BulkCopy& copy) {
  const u8* bytes = find_tensor_map(warp, operands.global);
  if (!bytes) {
    misuse(warp, in, lane, "no tensor map at the address that it was given");
    return false;
  }
  TensorMap map = read_map(bytes);
  const int dimensions = static_cast<int>(in.bulk.dimensions);
  const char* fault = fault_of(map, dimensions);
  if (!fault && !reduces(static_cast<Reduction>(in.bulk.reduction), static_cast<MapType>(map.type)))
    fault = "a tensor map whose elements have a type that the reduction does not take";
  // Two elements of 4 bits count as one of a byte.
  const u32 packed = map.type == static_cast<u8>(MapType::b4x16) ? 2 : 1;
  map.sizes[0] /= packed;
  map.box[0] /= packed;
  const u32 element = fault ? 1 : kMapTypeBytes[map.type],
            row = ((map.box[0] + map.steps[0] - 1) / std::max(map.steps[0], 1u)) * element;
  const u32 swizzle_number = fault ? 0 : swizzle_of(map);
  const Swizzle& swizzle = kSwizzles[swizzle_number];
  const u32 span = swizzle.span;
  if (!fault && row % 16) fault = "a box whose rows are no multiple of 16 bytes";
  if (!fault && span && row > span) fault = "a box whose rows are longer than its swizzle";
  if (!fault && span && row < span)
    fault = "a box whose rows are shorter than its swizzle, whose layout the machine does not know";
  const bool by_rows = in.flags & BulkFlags::rows;
  if (!fault && by_rows && map.box[1] != 1)
    fault = "a box of several rows, where .tile::gather4 and .tile::scatter4 take one of one row";
  if (fault) {
    misuse(warp, in, lane, fault);
    return false;
  }
  u32 counts[TensorMap::kMostDimensions] = {1, 1, 1, 1, 1};
  u64 rows = 1;
  for (int d = 0; d < dimensions; ++d) counts[d] = (map.box[d] + map.steps[d] - 1) / map.steps[d];
  for (int d = 1; d < dimensions; ++d) rows *= counts[d];
  if (by_rows) rows = kRowsApart;
  if (!in_shared(warp, in, lane, operands.shared, rows * row, 128)) return false;
  copy.bytes = static_cast<u32>(rows) * row;
  check_extent(warp, in, warp.block->launch->shared_extents, lane, operands.shared, copy.bytes,
               false);
  copy.element = element;
  copy.fill = fill_of(map);
  copy.swizzle = static_cast<u8>(swizzle_number);
  copy.type = static_cast<MapType>(map.type);
  s64 start[TensorMap::kMostDimensions] = {};
  for (int d = 0; d < dimensions; ++d)
    start[d] = at<const s32>(registers, in.bulk.coordinate[d])[lane];
  if (start[0] % static_cast<s64>(packed)) {
    misuse(warp, in, lane, "an odd coordinate in elements of 4 bits");
    return false;
  }
  start[0] /= static_cast<s64>(packed);
  // Elements [first, last) of a row lie inside the tensor.
  const s64 left = map.steps[0];
  const s64 first = std::clamp<s64>(start[0] < 0 ? (-start[0] + left - 1) / left : 0, 0, counts[0]);
  const s64 last = std::clamp<s64>((static_cast<s64>(map.sizes[0]) - start[0] + left - 1) / left,
                                   first, counts[0]);
  u32 index[TensorMap::kMostDimensions] = {};
  for (u32 r = 0; r < rows; ++r) {
    if (by_rows) start[1] = at<const s32>(registers, in.bulk.coordinate[1 + r])[lane];
    u64 address = map.address;
    bool inside = first < last;
    for (int d = 1; d < dimensions; ++d) {
      const s64 at = start[d] + s64{index[d]} * map.steps[d];
      inside &= at >= 0 && at < static_cast<s64>(map.sizes[d]);
      address += static_cast<u64>(at) * map.strides[d - 1];
    }
    const u32 offset = operands.shared + r * row;
    const auto add = [&](s64 from, s64 to, bool real) {
      if (from == to) return;
      const u64 begins = address + static_cast<u64>((start[0] + from * left) * element);
      const u32 there = offset + static_cast<u32>(from) * element,
                size = static_cast<u32>(to - from) * element;
      // The largest piece that the alignment of both sides and the swizzle allow.
      const u64 odd = begins | there | size | kPieceBytes;
      const u32 piece = left > 1 && real ? element : static_cast<u32>(odd & (~odd + 1));
      if (left > 1 && real)
        for (s64 i = from; i < to; ++i)
          add_row(warp, in, lane, is_write,
                  address + static_cast<u64>((start[0] + i * left) * element), true,
                  offset + static_cast<u32>(i) * element, swizzle, element, element, copy);
      else
        add_row(warp, in, lane, is_write, begins, real, there, swizzle, size, piece, copy);
    };
    if (!inside) {
      add(0, counts[0], false);
    } else {
      add(0, first, false), add(first, last, true), add(last, counts[0], false);
    }
    for (int d = 1; d < dimensions && ++index[d] == counts[d]; ++d) index[d] = 0;
  }
  return true;
}

// Calls function(addresses, mask, bytes) for the pieces inside the tensor, up to 32 at a time.
template <class F>
void for_requests(const BulkCopy& copy, F function) {
  u64 addresses[kLanes] = {};
  std::size_t begin = 0;
  while (begin < copy.pieces.size()) {
    u32 count = 0;
    const u32 bytes = copy.pieces[begin].bytes;
    const std::size_t first = begin;
    for (; begin < copy.pieces.size() && count < kLanes && copy.pieces[begin].bytes == bytes;
         ++begin)
      if (copy.pieces[begin].host) addresses[count++] = copy.pieces[begin].address;
    if (!count) continue;
    for (u32 lane = count; lane < kLanes; ++lane) addresses[lane] = addresses[0];
    function(addresses, count == kLanes ? kAllLanes : (1u << count) - 1, bytes, first);
  }
}

void observe(Warp& warp, const Instruction& in, const BulkCopy& copy, bool is_write) {
  if (!warp.block->observed) return;
  for_requests(copy, [&](const u64* addresses, u32 mask, u32 bytes, std::size_t) {
    observe_global(warp, in, addresses, mask, bytes, is_write, !is_write);
    if (warp.block->shadow && !is_write)
      check_global(warp, in, addresses, mask, bytes, false, true);
  });
}

// Counts the bytes that land in a block, and how many of them come from outside the tensor.
void count_landing(const Block& block, const BulkCopy& copy) {
  if (!block.counts) return;
  Counts& counts = block.counts[copy.pc];
  counts.landed_bytes += copy.bytes;
  for (const BulkPiece& piece : copy.pieces) counts.filled_bytes += piece.host ? 0 : piece.bytes;
}

// Calls function(offset) for the 16 bytes of shared memory around each piece, once for adjacent
// pieces. `real`: only for pieces inside the tensor.
template <class F>
void for_units(const BulkCopy& copy, bool real, F function) {
  u32 last = 1;
  for (const BulkPiece& piece : copy.pieces) {
    const u32 unit = piece.offset / kPieceBytes * kPieceBytes;
    if (unit != last && (piece.host || !real)) function(last = unit);
  }
}

// `block`: the block of the mbarrier.
void land(const BulkCopy& copy, Block& block) {
  Block& home = copy.to ? *copy.to : block;
  if (copy.from && copy.from->ended) {
    copy.from->note({.problem = Problem::bulk_misuse,
                     .pc = copy.pc,
                     .block = copy.from->index,
                     .thread = copy.warp->thread(copy.lane),
                     .text = "the block has ended while its shared memory is still to be read: "
                             "wait with barrier.cluster until the other block has it"});
  }
  const u8* read = copy.values.empty() ? nullptr : copy.values.data();
  for (const BulkPiece& piece : copy.pieces) {
    u8* to = home.shared + piece.offset;
    if (!piece.host)
      for (u32 i = 0; i < piece.bytes; i += copy.element)
        std::memcpy(to + i, &copy.fill, copy.element);
    else if (read)
      std::memcpy(to, read, piece.bytes), read += piece.bytes;
    else
      std::memcpy(to, piece.host, piece.bytes);
    if (Debugger* const debugger = block.launch->debugger)
      debugger->lands(home, copy.pc, copy.warp->thread(copy.lane), piece.offset, piece.bytes);
  }
  if (!block.shadow) return;
  const Instruction& in = block.kernel->code[static_cast<std::size_t>(copy.pc)];
  const u32 clock = copy.seen[copy.warp->agent];
  // A thread that waits in another block than the destination comes after the copy by its clocks
  // only.
  const s32 landing = copy.to ? Shadow::kNoLanding : block.shadow->landing(copy.barrier);
  for_units(copy, false, [&](u32 offset) {
    home.shadow->async_write_landed(*copy.warp, in, copy.lane, offset, kPieceBytes, clock,
                                    copy.swizzle, landing);
  });
  block.shadow->clocks.publish(block.flag(copy.barrier), copy.seen);
  if (!copy.from) return;
  for (const BulkPiece& piece : copy.pieces)
    copy.from->shadow->let_go(static_cast<u32>(piece.host - copy.from->shared), piece.bytes);
}

// ---- stores and reductions, in groups of the lane that issued them; and loads that wait for some
// of them ----

template <class T>
T reduced(Reduction operation, T old, T value) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    const Bits x = static_cast<Bits>(old), y = static_cast<Bits>(value);
    switch (operation) {
      case Reduction::add: return static_cast<T>(x + y);
      case Reduction::min: return std::min(old, value);
      case Reduction::max: return std::max(old, value);
      case Reduction::inc: return old >= value ? T{0} : static_cast<T>(x + 1);
      case Reduction::dec: return old == 0 || old > value ? value : static_cast<T>(x - 1);
      case Reduction::and_: return old & value;
      case Reduction::or_: return old | value;
      case Reduction::xor_: return old ^ value;
      case Reduction::none: break;
    }
    return value;
  } else if constexpr (std::is_same_v<T, f32>) {
    return flush(
        flush(old) +
        flush(value));  // ISA, cp.reduce.async.bulk: .add.f32 flushes subnormal inputs and results
  } else {
    return old + value;
  }
}

template <class T>
T reduced_half(Reduction operation, T old, T value) {
  const f32 a = to_f32(old), b = to_f32(value);
  return from_f32<T>(operation == Reduction::add   ? a + b
                     : operation == Reduction::min ? minimum(a, b)
                                                   : maximum(a, b));
}

template <class Bits, class F>
void change(u8* where, const u8* from, F function) {
  Bits value, old = __atomic_load_n(reinterpret_cast<Bits*>(where), __ATOMIC_RELAXED);
  std::memcpy(&value, from, sizeof value);
  while (!__atomic_compare_exchange_n(reinterpret_cast<Bits*>(where), &old, function(old, value),
                                      true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
}

template <class T, class Bits>
void reduce_as(u8* where, const u8* from, Reduction operation) {
  change<Bits>(where, from, [&](Bits old, Bits value) {
    return bits_as<Bits>(reduced(operation, bits_as<T>(old), bits_as<T>(value)));
  });
}

template <class T>
void reduce_half(u8* where, const u8* from, Reduction operation) {
  change<u16>(where, from,
              [&](u16 old, u16 value) { return reduced_half(operation, T{old}, T{value}).bits; });
}

void reduce_element(u8* where, const u8* from, Reduction operation, MapType type) {
  const bool of_bits =
      operation == Reduction::and_ || operation == Reduction::or_ || operation == Reduction::xor_;
  if (of_bits && kMapTypeBytes[static_cast<u32>(type)] == 8)
    return reduce_as<u64, u64>(where, from, operation);
  if (of_bits) return reduce_as<u32, u32>(where, from, operation);
  switch (type) {
    case MapType::u32_: return reduce_as<u32, u32>(where, from, operation);
    case MapType::s32_: return reduce_as<s32, u32>(where, from, operation);
    case MapType::u64_: return reduce_as<u64, u64>(where, from, operation);
    case MapType::s64_: return reduce_as<s64, u64>(where, from, operation);
    case MapType::f16: return reduce_half<Half>(where, from, operation);
    case MapType::bf16: return reduce_half<Bfloat>(where, from, operation);
    case MapType::f32_: return reduce_as<f32, u32>(where, from, operation);
    case MapType::f64_: return reduce_as<f64, u64>(where, from, operation);
    default: return;
  }
}

template <class T>
f64 element(const u8* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::is_same_v<T, f64>)
    return value;
  else
    return f64{to_f32(value)};
}

// An addition of floats, with checks; `add` computes it.
template <class T, class F>
void watch_sum(const BulkCopy& copy, u64 address, u8* where, const u8* from, F add) {
  const f64 old = element<T>(where), value = element<T>(from);
  add();
  copy.warp->block->launch->float_sums->add(*copy.warp, copy.pc,
                                            {.where = where,
                                             .address = address,
                                             .bytes = sizeof(T),
                                             .lane = copy.lane,
                                             .old = old,
                                             .value = value,
                                             .sum = element<T>(where),
                                             .digits = kDigits<T>});
}

void reduce_watched(const BulkCopy& copy, u64 address, u8* where, const u8* from) {
  const auto add = [&] { reduce_element(where, from, Reduction::add, copy.type); };
  switch (copy.type) {
    case MapType::f16: return watch_sum<Half>(copy, address, where, from, add);
    case MapType::bf16: return watch_sum<Bfloat>(copy, address, where, from, add);
    case MapType::f32_: return watch_sum<f32>(copy, address, where, from, add);
    case MapType::f64_: return watch_sum<f64>(copy, address, where, from, add);
    default: return add();
  }
}

// Reads the source, unless that has been done.
void take(const Warp& warp, BulkCopy& copy) {
  if (!copy.values.empty()) return;
  const u8* const shared = warp.block->shared;
  for (const BulkPiece& piece : copy.pieces)
    if (piece.host)
      copy.values.insert(copy.values.end(), shared + piece.offset,
                         shared + piece.offset + piece.bytes);
}

// Reports copies that still read the destination of a store, which may write at any time from its
// issue until it is over.
void check_target(Warp& warp, const BulkCopy& copy) {
  const Block& block = *warp.block;
  const Instruction& in = block.kernel->code[static_cast<std::size_t>(copy.pc)];
  const bool reduces = static_cast<Reduction>(in.bulk.reduction) != Reduction::none;
  for_requests(copy, [&](const u64* addresses, u32 mask, u32 bytes, std::size_t first) {
    u32 changed = 0, lane = 0;
    for (std::size_t i = first; lane < static_cast<u32>(count_lanes(mask)); ++i) {
      const BulkPiece& piece = copy.pieces[i];
      if (!piece.host) continue;
      const bool changes =
          reduces || std::memcmp(piece.host, block.shared + piece.offset, bytes) != 0;
      changed |= (changes ? 1u : 0u) << lane++;
    }
    block.launch->global_shadow->check_sources(warp, in, addresses, changed, bytes,
                                               static_cast<int>(copy.lane));
  });
}

// Notes that the issuing lane has waited until the source was read: threads that come after that
// may write it.
void release(Warp& warp, BulkCopy& copy) {
  if (copy.released) return;
  copy.released = true;
  take(warp, copy);
  Block& block = *warp.block;
  if (!block.shadow) return;
  const Instruction& in = block.kernel->code[static_cast<std::size_t>(copy.pc)];
  const bool handed_on = block.shadow->clocks.now(warp.agent) != copy.clock;
  Shadow::AsyncReader reader(*block.shadow, warp, in, 1u << copy.lane);
  for_units(copy, true, [&](u32 offset) {
    block.shadow->let_go(offset, kPieceBytes);
    if (handed_on) reader.read_again(offset, kPieceBytes);
  });
}

void perform(Warp& warp, BulkCopy& copy) {
  if (copy.performed) return;
  copy.performed = true;
  Block& block = *warp.block;
  if (block.shadow) check_target(warp, copy);
  take(warp, copy);
  read_sources(*block.worker);
  const Instruction& in = block.kernel->code[static_cast<std::size_t>(copy.pc)];
  const Reduction operation = static_cast<Reduction>(in.bulk.reduction);
  if (Debugger* const debugger = block.launch->debugger)
    for (const BulkPiece& piece : copy.pieces)
      if (piece.host)
        debugger->writes(block, copy.pc, warp.thread(copy.lane), piece.address, piece.bytes);
  const u8* from = copy.values.data();
  const auto held =
      block.shadow ? block.launch->global_shadow->hold() : std::unique_lock<std::recursive_mutex>();
  if (operation != Reduction::none) {
    const u32 size = kMapTypeBytes[static_cast<u32>(copy.type)];
    const FloatSums* sums = operation == Reduction::add ? block.launch->float_sums : nullptr;
    for (const BulkPiece& piece : copy.pieces) {
      if (!piece.host) continue;
      for (u32 i = 0; i < piece.bytes; i += size) {
        if (sums && sums->watches(copy.pc))
          reduce_watched(copy, piece.address + i, piece.host + i, from + i);
        else
          reduce_element(piece.host + i, from + i, operation, copy.type);
      }
      from += piece.bytes;
    }
    if (!block.shadow) return;
    for_requests(copy, [&](const u64* addresses, u32 mask, u32 bytes, std::size_t) {
      block.launch->global_shadow->strong(warp, in, addresses, mask, bytes, true, true);
    });
    return;
  }
  if (!block.shadow) {
    for (const BulkPiece& piece : copy.pieces)
      if (piece.host) std::memcpy(piece.host, from, piece.bytes), from += piece.bytes;
    return;
  }
  for_requests(copy, [&](const u64* addresses, u32 mask, u32 bytes, std::size_t first) {
    u32 changed = 0, lane = 0;
    for (std::size_t i = first; lane < static_cast<u32>(count_lanes(mask)); ++i) {
      u8* host = copy.pieces[i].host;
      if (!host) continue;
      changed |= (std::memcmp(host, from, bytes) != 0 ? 1u : 0u) << lane++;
      std::memcpy(host, from, bytes), from += bytes;
    }
    block.launch->global_shadow->write(warp, in, addresses, mask, bytes, changed);
  });
}

bool overlap(const BulkCopy& a, const BulkCopy& b) {
  std::unordered_set<u64> chunks;
  for (const BulkPiece& piece : a.pieces)
    if (piece.host)
      for (u64 chunk = piece.address / kPieceBytes;
           chunk * kPieceBytes < piece.address + piece.bytes; ++chunk)
        chunks.insert(chunk);
  return std::any_of(b.pieces.begin(), b.pieces.end(), [&](const BulkPiece& piece) {
    return piece.host && chunks.contains(piece.address / kPieceBytes);
  });
}

// Performs an earlier store of the same lane before a load of its destination, if the lane has only
// waited until the store's source was read. PTX orders the two only by wait_group without .read;
// GPUs keep their order, and Triton relies on it.
void perform_before(Warp& warp, const Instruction& in, u32 lane, const BulkCopy& load) {
  std::erase_if(warp.bulk_stores, [&](BulkCopy& store) {
    if (store.lane != lane || !store.released || store.performed || !overlap(store, load))
      return false;
    Block& block = *warp.block;
    block.note({.problem = Problem::store_unawaited,
                .pc = block.pc_of(in),
                .other_pc = store.pc,
                .block = block.index,
                .thread = warp.thread(lane),
                .address = load.pieces.front().address,
                .bytes = load.bytes});
    perform(warp, store);
    return true;
  });
}

// A copy to shared memory that an mbarrier counts.
template <bool Tensor>
void load(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  PTX_FOR_EACH_LANE (lane, mask) {
    Operands operands(registers, in, lane);
    Block& home = home_of(block, in, warp.thread(lane), operands.shared);
    // In a pair of blocks the mbarrier is that of the even or the odd one. CUTLASS clears the bit
    // for the odd one in an address of its own block, so an address without a rank means the even
    // one's.
    const bool pair = in.flags & BulkFlags::pair;
    const u32 named = operands.barrier >> kRankShift, parity = named ? (named - 1) & 1 : 0;
    operands.shared = static_cast<u32>(plain(block, operands.shared)),
    operands.barrier = static_cast<u32>(plain(block, operands.barrier));
    BulkCopy copy{.pc = block.pc_of(in), .warp = &warp, .lane = lane, .barrier = operands.barrier};
    const bool fine = Tensor ? plan_tile(registers, in, lane, warp, false, operands, copy)
                             : plan_linear(registers, in, lane, warp, false, operands, copy);
    if (!fine || !in_shared(warp, in, lane, operands.barrier, 8, 8)) continue;
    perform_before(warp, in, lane, copy);
    observe(warp, in, copy, false);
    const u32 ranks = in.bulk.multicast == kNoSlot
                          ? 1u << home.rank
                          : at<const u16>(registers, in.bulk.multicast)[lane];
    const auto counting = [&](Block& target) -> Block& {
      const std::size_t rank = (target.rank & ~1u) | parity;
      return pair && rank < block.cluster->blocks.size() ? *block.cluster->blocks[rank] : target;
    };
    if (block.shadow) {
      bool reported = false;
      for (Block* target : block.cluster->blocks) {
        if (!(ranks >> target->rank & 1)) continue;
        for_units(copy, false, [&](u32 offset) {
          target->shadow->async_write_issued(warp, in, lane, offset, kPieceBytes, reported);
        });
        counting(*target).shadow->check_initialised(warp, in, lane, copy.barrier);
      }
      if (Tensor && block.launch->maps)
        block.launch->maps->copied(warp, in, lane, operands.global, home,
                                   counting(home).shadow->landing(copy.barrier));
      Clocks& clocks = block.shadow->clocks;
      copy.seen = clocks.seen(warp.agent);
      clocks.fence(warp.agent);
    }
    for (u32 rank = 0; ranks >> rank; ++rank) {
      if (!(ranks >> rank & 1)) continue;
      if (rank >= block.cluster->blocks.size()) {
        misuse(warp, in, lane,
               "a multicast to rank " + std::to_string(rank) + " of a cluster of " +
                   std::to_string(block.cluster->blocks.size()) + " blocks");
        continue;
      }
      Block& target = *block.cluster->blocks[rank];
      if (&target != &block) home_of(block, in, warp.thread(lane), u64{rank + 1} << kRankShift);
      count_landing(block, copy);
      Block& counts = counting(target);
      copy.to = &counts == &target ? nullptr : &target;
      if (block.sources) block.sources->add(copy, counts, counts.shadow->landing(copy.barrier));
      record_event(counts, in, warp, RecordedEvent::copy, copy.barrier, 0, copy.bytes,
                   operands.shared);
      if (lands_early(block)) {
        land(copy, counts);
        complete_bytes(counts, in, warp.thread(lane), copy.barrier, copy.bytes);
      } else {
        counts.bulk_loads.push_back(copy);
        counts.bulk_loads.back().unread = true;
        expect_read(counts, counts.bulk_loads.back());
      }
    }
  }
}

// A copy from a block's shared memory to that of a block of its cluster, where an mbarrier counts
// it.
void send(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  PTX_FOR_EACH_LANE (lane, mask) {
    const s32 thread = warp.thread(lane);
    const u32 size = at<const u32>(registers, in.bulk.size)[lane];
    const u32 to = shared_offset(registers, in.bulk.shared, in.bulk.shared_offset,
                                 in.flags & BulkFlags::shared_wide, lane),
              counted = shared_offset(registers, in.bulk.mbarrier, in.bulk.mbarrier_offset,
                                      in.flags & BulkFlags::barrier_wide, lane),
              from = static_cast<u32>(
                  plain(block, shared_offset(registers, in.address, in.bulk.global_offset,
                                             !(in.flags & kNarrowBase), lane)));
    Block& home = home_of(block, in, thread, to);
    if (&home_of(block, in, thread, counted) != &home) {
      misuse(warp, in, lane, "an mbarrier of another block than the one that gets the bytes");
      continue;
    }
    if (size % kPieceBytes) {
      misuse(warp, in, lane, std::to_string(size) + " bytes, where a multiple of 16 belongs");
      continue;
    }
    const u32 into = static_cast<u32>(plain(block, to)),
              barrier = static_cast<u32>(plain(block, counted));
    if (!in_shared(warp, in, lane, into, size, kPieceBytes) ||
        !in_shared(warp, in, lane, from, size, kPieceBytes) ||
        !in_shared(warp, in, lane, barrier, 8, 8))
      continue;
    check_extent(warp, in, block.launch->shared_extents, lane, into, size, true);
    BulkCopy copy{.pc = block.pc_of(in), .warp = &warp, .lane = lane, .barrier = barrier};
    copy.from = &block;
    copy.bytes = size;
    for (u32 done = 0; done < size; done += kPieceBytes)
      copy.pieces.push_back({block.shared + from + done, 0, into + done, kPieceBytes});
    if (block.shadow) {
      bool reported = false, overwritten = false;
      Shadow::AsyncReader reader(*block.shadow, warp, in, 1u << lane);
      for (u32 done = 0; done < size; done += kPieceBytes) {
        reader.read(from + done, kPieceBytes, reported);
        block.shadow->keep(warp, in, lane, from + done, kPieceBytes);
        home.shadow->async_write_issued(warp, in, lane, into + done, kPieceBytes, overwritten);
      }
      home.shadow->check_initialised(warp, in, lane, barrier);
      copy.seen = block.shadow->clocks.seen(warp.agent);
      block.shadow->clocks.fence(warp.agent);
    }
    count_landing(block, copy);
    record_event(home, in, warp, RecordedEvent::copy, barrier, 0, size, into);
    if (lands_early(block)) {
      land(copy, home);
      complete_bytes(home, in, thread, barrier, size);
    } else {
      home.bulk_loads.push_back(std::move(copy));
    }
  }
}

// clusterlaunchcontrol.try_cancel: takes a cluster that has not started from the launch. PTX leaves
// the answer opaque; here it is x, y and z of the cluster's first block, then 1; or zeros if there
// is none. The immediate: whether every block of the caller's cluster gets the answer.
void try_cancel(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 to = shared_offset(registers, in.bulk.shared, in.bulk.shared_offset,
                                 in.flags & BulkFlags::shared_wide, lane);
    const u32 barrier = shared_offset(registers, in.bulk.mbarrier, in.bulk.mbarrier_offset,
                                      in.flags & BulkFlags::barrier_wide, lane);
    constexpr u32 bytes = kPieceBytes;
    if (!in_shared(warp, in, lane, to, bytes, bytes) || !in_shared(warp, in, lane, barrier, 8, 8))
      continue;
    u32 answer[4] = {};
    // It may fail at any time, so with checks it does fail in one of the two orders of warps.
    const bool refused = block.launch->checks && block.launch->last_warp_first;
    const s64 first = refused ? -1 : take_cluster(*block.launch);
    if (first >= 0) {
      const u32* grid = block.launch->grid;
      answer[0] = static_cast<u32>(first % grid[0]);
      answer[1] = static_cast<u32>(first / grid[0] % grid[1]);
      answer[2] = static_cast<u32>(first / grid[0] / grid[1]);
      answer[3] = 1;
    }
    for (Block* target : block.cluster->blocks) {
      if (!in.immediate && target != &block) continue;
      BulkCopy copy{.pc = block.pc_of(in), .warp = &warp, .lane = lane, .barrier = barrier};
      copy.bytes = bytes;
      copy.values.resize(bytes);
      std::memcpy(copy.values.data(), answer, bytes);
      copy.pieces.push_back({copy.values.data(), 0, to, bytes});
      if (block.shadow) {
        bool reported = false;
        target->shadow->async_write_issued(warp, in, lane, to, bytes, reported);
        target->shadow->check_initialised(warp, in, lane, barrier);
        copy.seen = block.shadow->clocks.seen(warp.agent);
      }
      record_event(*target, in, warp, RecordedEvent::copy, barrier, 0, bytes, to);
      if (lands_early(block)) {
        land(copy, *target);
        complete_bytes(*target, in, warp.thread(lane), barrier, bytes);
      } else {
        target->bulk_loads.push_back(std::move(copy));
      }
    }
    if (block.shadow) block.shadow->clocks.fence(warp.agent);
  }
}

template <bool Tensor>
void store(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  PTX_FOR_EACH_LANE (lane, mask) {
    const Operands operands(registers, in, lane);
    BulkCopy copy{.pc = block.pc_of(in), .warp = &warp, .lane = lane};
    const bool fine = Tensor ? plan_tile(registers, in, lane, warp, true, operands, copy)
                             : plan_linear(registers, in, lane, warp, true, operands, copy);
    if (!fine) continue;
    observe(warp, in, copy, true);
    if (block.shadow) {
      if (Tensor && block.launch->maps) {
        block.launch->maps->copied(warp, in, lane, operands.global, block, Shadow::kNoLanding);
        copy.map = operands.global;
      }
      copy.clock = block.shadow->clocks.now(warp.agent);
      bool reported = false;
      Shadow::AsyncReader reader(*block.shadow, warp, in, 1u << lane);
      for_units(copy, true, [&](u32 offset) {
        reader.read(offset, kPieceBytes, reported);
        block.shadow->keep(warp, in, lane, offset, kPieceBytes);
      });
    }
    if (lands_early(block))
      perform(warp, copy);
    else if (block.shadow)
      check_target(warp, copy);
    warp.bulk_stores.push_back(std::move(copy));
  }
}

void commit(u8*, const Instruction&, u32 mask, Warp& warp) {
  for (BulkCopy& copy : warp.bulk_stores)
    if (copy.group == BulkCopy::kOpen && mask >> copy.lane & 1)
      copy.group = warp.bulk_committed[copy.lane];
  PTX_FOR_EACH_LANE (lane, mask) warp.bulk_committed[lane] += 1;
}

// Waits until each lane has at most a given number of groups pending. `ReadOnly`: waits only until
// their sources have been read.
template <bool ReadOnly>
void wait(u8*, const Instruction& in, u32 mask, Warp& warp) {
  const u32 keep = static_cast<u32>(in.groups);
  const auto due = [&](const BulkCopy& copy) {
    return mask >> copy.lane & 1 && copy.group != BulkCopy::kOpen &&
           copy.group + keep < warp.bulk_committed[copy.lane];
  };
  for (BulkCopy& copy : warp.bulk_stores) {
    if (!due(copy)) continue;
    release(warp, copy);
    if (!ReadOnly) perform(warp, copy);
  }
  if (!ReadOnly) std::erase_if(warp.bulk_stores, due);
}

}  // namespace

s64 bytes_under_way(const Block& block, u32 barrier) {
  s64 sum = 0;
  for (const BulkCopy& copy : block.bulk_loads)
    if (copy.barrier == barrier) sum += copy.bytes;
  return sum;
}

void land_bulk_loads(Block& block, u32 barrier) {
  for (const BulkCopy& copy : block.bulk_loads)
    if (copy.barrier == barrier) land(copy, block);
  std::erase_if(block.bulk_loads, [&](const BulkCopy& copy) { return copy.barrier == barrier; });
}

void finish_bulk_stores(Warp& warp) {
  Block& block = *warp.block;
  for (BulkCopy& copy : warp.bulk_stores) {
    if (!copy.released) {
      const Instruction& in = block.kernel->code[static_cast<std::size_t>(copy.pc)];
      block.note({.problem = Problem::bulk_misuse,
                  .pc = block.pc_of(in),
                  .block = block.index,
                  .thread = warp.thread(copy.lane),
                  .text = "the block ends while its shared memory is still to be read: wait with "
                          "cp.async.bulk.wait_group.read"});
    }
    perform(warp, copy);
  }
  warp.bulk_stores.clear();
}

void add_bulk_copies(Table& table) {
  const auto add = [&](const char* name, Handler run, Class group, const char* sources) {
    table.push_back({name, run, Kind::timed, group, "", sources});
  };
  add("cp.async.bulk.shared.global", &load<false>, Class::global, "address,address,b32,address");
  add("cp.async.bulk.shared.shared", &send, Class::shared, "address,address,b32,address");
  add("cp.async.bulk.global.shared", &store<false>, Class::global, "address,address,b32");
  add("cp.async.bulk.tensor.shared.global", &load<true>, Class::global,
      "address,address,b32,address");
  add("cp.async.bulk.tensor.global.shared", &store<true>, Class::global, "address,b32,address");
  add("clusterlaunchcontrol.try_cancel", &try_cancel, Class::sync, "address,address");
  add("cp.async.bulk.commit_group", &commit, Class::sync, "");
  add("cp.async.bulk.wait_group", &wait<false>, Class::sync, "imm");
  add("cp.async.bulk.wait_group.read", &wait<true>, Class::sync, "imm");
}

}  // namespace workbench::ptx
