// tcgen05 without its products: allocation, loads, stores and copies of tensor memory, and the
// instructions that order them.
//
// The registers of ld and st follow CUTLASS (cute/atom/copy_traits_sm100.hpp). For lane t of the
// warp and register i: .32x32b has row t and column i; .16x64b row t / 4 + 8 (t % 2) and column 2 i
// + t / 2 % 2; .16x128b row t / 4 + 8 (i % 2) and column 4 (i / 2) + t % 4; .16x256b row t / 4 + 8
// (i / 2 % 2) and column 8 (i / 4) + 2 (t % 4) + i % 2; .16x32bx2 row t % 16 and column i, plus an
// offset for lanes from 16 on. With 16 bits of each column, a register's two halves are two
// columns.
#include "arithmetic/numeric.hpp"
#include "codes.hpp"
#include "matrices/tensor_memory.hpp"
#include "matrices/tensor_operand.hpp"
#include "memory/access.hpp"
#include "memory/cluster.hpp"
#include "memory/mbarrier.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kRows = TensorMemory::kRows;

void misuse(Warp& warp, const Instruction& in, const std::string& text) {
  warp.block->problem(Problem::tensor_misuse, in, warp.thread(0), 0, 0, text);
}

// Returns false, after reporting it, if lanes of the warp are missing or their operands differ.
template <class T>
bool by_all(Warp& warp, const Instruction& in, u32 mask, const T* values, const char* what) {
  if (mask != warp.all || warp.all != kAllLanes) {
    misuse(warp, in, "some lanes of the warp take no part, which .sync.aligned needs all 32 of");
    return false;
  }
  for (u32 lane = 1; lane < kLanes; ++lane) {
    if (values[lane] == values[0]) continue;
    misuse(warp, in, std::string(what) + " that differs between the lanes of a warp");
    return false;
  }
  return true;
}

void record_columns(const Warp& warp, const Instruction& in, RecordedEvent::Kind kind, u32 first,
                    u32 columns) {
  Block& block = *warp.block;
  if (!block.recorder) return;
  block.recorder->event({.warp = warp.index,
                         .pc = block.pc_of(in),
                         .kind = kind,
                         .at = first,
                         .phase = 0,
                         .count = columns,
                         .bytes = 0,
                         .to = 0,
                         .tick = warp.now});
}

bool is_size(u32 columns) {
  return columns >= TensorMemory::kUnit && columns <= TensorMemory::kColumns &&
         (columns & (columns - 1)) == 0;
}

void allocate(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  TensorMemory& tensor = *block.tensor;
  const u32* wanted = at<const u32>(registers, in.tensor_move.columns);
  if (!by_all(warp, in, mask, wanted, "a number of columns")) return;
  const u32 columns = wanted[0];
  if (!is_size(columns))
    return misuse(
        warp, in,
        std::to_string(columns) + " columns, where a power of two from 32 to 512 belongs");
  if (tensor.relinquished)
    return misuse(warp, in, "an allocation after tcgen05.relinquish_alloc_permit");
  if (columns > tensor.least() && block.shadow)
    misuse(warp, in,
           "an allocation of " + std::to_string(columns) + " columns after one of " +
               std::to_string(tensor.least()) + ": a block's allocations must not grow");
  const u32 first = tensor.allocate(columns, block.pc_of(in));
  if (first == TensorMemory::kNowhere) {
    block.polled = true;  // polls until other columns are freed
    return;
  }
  record_columns(warp, in, RecordedEvent::hold, first, columns);
  Request request;
  resolve<Space::shared>(registers, in, 1u, warp, sizeof first, true, false, request);
  if (request.mask) store_lane(warp, in, request, 0, &first, sizeof first);
}

void release(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  TensorMemory& tensor = *warp.block->tensor;
  const u32 *address = at<const u32>(registers, in.address),
            *columns = at<const u32>(registers, in.tensor_move.columns);
  if (!by_all(warp, in, mask, address, "an address") ||
      !by_all(warp, in, mask, columns, "a number of columns"))
    return;
  const u32 first = address[0] + static_cast<u32>(in.offset);
  if (!tensor.release(first, columns[0]))
    return misuse(warp, in,
                  std::to_string(columns[0]) + " columns from column " + std::to_string(first) +
                      " on, which were not allocated so");
  record_columns(warp, in, RecordedEvent::give_back, first, columns[0]);
  tensor.check_released(warp, in, first, columns[0]);
}

void relinquish(u8*, const Instruction&, u32, Warp& warp) {
  warp.block->tensor->relinquished = true;
}

// ---- loads and stores ----

struct Place {
  u32 row, column;
};

Place place_of(TensorShape shape, u32 lane, u32 i) {
  switch (shape) {
    case TensorShape::l16_b64: return {lane / 4 + 8 * (lane % 2), 2 * i + lane / 2 % 2};
    case TensorShape::l16_b128: return {lane / 4 + 8 * (i % 2), 4 * (i / 2) + lane % 4};
    case TensorShape::l16_b256:
      return {lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2};
    case TensorShape::l16_b32_x2: return {lane % 16, i};
    default: return {lane, i};
  }
}

// The number of columns of 32 bits (or of 16, if two are packed) that the registers cover.
u32 width_of(TensorShape shape, u32 registers) {
  const bool one_each = shape == TensorShape::l32_b32 || shape == TensorShape::l16_b32_x2;
  return one_each ? registers : 2 * registers;
}

template <bool Load>
void move(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  TensorMemory& tensor = *block.tensor;
  const u32* addresses = at<const u32>(registers, in.address);
  if (!by_all(warp, in, mask, addresses, "an address")) return;
  const u32 address = addresses[0] + static_cast<u32>(in.offset);
  const u32 row = address >> 16, first = address & 0xffff;
  const TensorShape shape = static_cast<TensorShape>(in.tensor_move.shape);
  const bool all_rows = shape == TensorShape::l32_b32, halves = shape == TensorShape::l16_b32_x2;
  const u32 own = static_cast<u32>(warp.index) % 4 * kLanes;
  if (row != own && (all_rows || row != own + 16))
    return misuse(warp, in,
                  "lane " + std::to_string(row) + " of tensor memory from warp " +
                      std::to_string(warp.index) + ", which reaches lanes " + std::to_string(own) +
                      " to " + std::to_string(own + kLanes - 1) + " alone");
  const std::vector<u32>& slots = block.kernel->fragments[static_cast<std::size_t>(in.target)];
  const u32 count = static_cast<u32>(slots.size()), pack = in.tensor_move.packed ? 2 : 1;
  const u32 columns = pack * width_of(shape, count), apart = halves ? in.tensor_move.apart : 0;
  if (!is_ours(warp, in, first, columns) || (halves && !is_ours(warp, in, first + apart, columns)))
    return;
  const u32 rows = all_rows ? kLanes : kLanes / 2;
  const TensorAccess kind = Load ? TensorAccess::load : TensorAccess::store;
  tensor.access(warp, in, kind, first, columns, row, rows, Load, !Load);
  if (halves) tensor.access(warp, in, kind, first + apart, columns, row, rows, Load, !Load);
  if (all_rows && pack == 1) {
    for (u32 i = 0; i < count; ++i) {
      u32 *there = tensor.column(first + i) + row, *here = at<u32>(registers, slots[i]);
      std::memcpy(Load ? here : there, Load ? there : here, kLanes * sizeof(u32));
    }
    return;
  }
  for (u32 i = 0; i < count; ++i) {
    u32* here = at<u32>(registers, slots[i]);
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const Place place = place_of(shape, lane, i);
      const u32 number = first + pack * place.column + (lane >= 16 ? apart : 0);
      u32* there = tensor.column(number) + row + place.row;
      if (pack == 1) {
        if (Load)
          here[lane] = *there;
        else
          *there = here[lane];
        continue;
      }
      if (Load) {
        here[lane] = (there[0] & 0xffff) | there[kRows] << 16;
      } else {
        there[0] = here[lane] & 0xffff;
        there[kRows] = here[lane] >> 16;
      }
    }
  }
}

template <class T, class F>
void reduce_registers(u8* registers, const std::vector<u32>& slots, u32* out, F function) {
  for (u32 lane = 0; lane < kLanes; ++lane) {
    T result = bits_as<T>(at<const u32>(registers, slots[0])[lane]);
    for (std::size_t i = 1; i < slots.size(); ++i)
      result = function(result, bits_as<T>(at<const u32>(registers, slots[i])[lane]));
    out[lane] = bits_as<u32>(result);
  }
}

// A load that also returns the minimum or maximum of each lane's values; .abs and .NaN as in
// redux.sync.
void move_reduced(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  using Flags = TensorReduction;
  move<true>(registers, in, mask, warp);
  const std::vector<u32>& slots =
      warp.block->kernel->fragments[static_cast<std::size_t>(in.target)];
  const u32 flags = in.tensor_move.reduction;
  const bool max = flags & Flags::max;
  alignas(64) u32 out[kLanes];
  const auto of_integers = [&](auto zero) {
    using T = decltype(zero);
    reduce_registers<T>(registers, slots, out,
                        [&](T a, T b) { return max ? std::max(a, b) : std::min(a, b); });
  };
  if (flags & Flags::of_floats) {
    reduce_registers<f32>(registers, slots, out, [&](f32 a, f32 b) {
      if (flags & Flags::absolute) {
        a = magnitude(a);
        b = magnitude(b);
      }
      if (flags & Flags::nan) return max ? maximum_nan(a, b) : minimum_nan(a, b);
      return max ? maximum(a, b) : minimum(a, b);
    });
  } else if (flags & Flags::of_signed) {
    of_integers(s32{});
  } else {
    of_integers(u32{});
  }
  write_lanes(registers, in.tensor_move.reduced, mask, out);
}

// ---- copies from shared memory ----

// Widens sixteen elements of `bits` bits, from the first of sixteen bytes on, to a byte each (PTX
// ISA, "Optional Decompression"). Tensor memory stores the four bits of an E2M1 in the middle of a
// byte.
void widen_elements(u32 bits, const u8* from, u8* to) {
  for (u32 i = 0; i < 16; ++i) {
    const u32 bit = i * bits, two = from[bit / 8] | from[bit / 8 + 1] << 8;
    const u32 code = two >> bit % 8 & ((1u << bits) - 1);
    to[i] = static_cast<u8>(bits == 4 ? code << 2 : code);
  }
}

// The row of shared memory that is copied to a lane, for a shape that fills all lanes.
u32 row_of(TensorShape shape, u32 lane) {
  switch (shape) {
    case TensorShape::l64_b128_01_23: return lane / 64 * 32 + lane % 32;
    case TensorShape::l64_b128_02_13: return lane % 64;
    case TensorShape::l32_b128_x4: return lane % 32;
    default: return lane;
  }
}

u32 rows_of(TensorShape shape) {
  return shape == TensorShape::l4_b256 ? 4 : row_of(shape, kRows - 1) + 1;
}

// Copies a row of a matrix, `chunks` times 16 bytes, to a lane.
void copy_row(const Instruction& in, const TensorOperand& operand, u32 row, u32 lane, u32 first,
              Block& target) {
  const u32 bits = in.tensor_move.bits;
  for (u32 chunk = 0; chunk < operand.chunks; ++chunk) {
    u8 bytes[wgmma::kChunk];
    const u8* from = target.shared + operand.from.along_k(row, chunk);
    if (bits)
      widen_elements(bits, from, bytes);
    else
      std::memcpy(bytes, from, sizeof bytes);
    for (u32 i = 0; i < 4; ++i)
      std::memcpy(target.tensor->column(first + 4 * chunk + i) + lane, bytes + 4 * i, sizeof(u32));
  }
}

void copy(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const TensorShape shape = static_cast<TensorShape>(in.tensor_move.shape);
  const bool of_four = shape == TensorShape::l4_b256;
  const u32 chunks = shape == TensorShape::l128_b256 || of_four ? 2 : 1, columns = 4 * chunks;
  const u32 rows = rows_of(shape);
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 address = at<const u32>(registers, in.address)[lane] + static_cast<u32>(in.offset);
    const u32 first = address & 0xffff, top = address >> 16;
    // Four rows are copied to a lane of each warp's 32. Mostly it is the last lane, which a shift
    // leaves unchanged (CUTLASS, copy_traits_sm100.hpp, SM100_UTCCP_4dp256bit_1cta).
    if (of_four ? top >= kLanes : top != 0) {
      misuse(warp, in,
             "a copy to lane " + std::to_string(top) + ", where " +
                 (of_four ? "one of the lanes 0 to 31" : "lane 0") + " belongs");
      continue;
    }
    if (!is_ours(warp, in, first, columns)) continue;
    const u64 bits = at<const u64>(registers, in.tensor_move.matrix)[lane];
    const TensorOperand operand(bits, false, rows, chunks, 1);
    for (Block* target : blocks_of(warp, in, lane, in.tensor_move.two_blocks != 0)) {
      if (!operand.check(warp, in, lane, *target)) break;
      operand.look(warp, in, lane, *target);
      if (of_four) {
        for (u32 row = 0; row < rows; ++row) {
          const u32 to = row * kLanes + top;
          target->tensor->access(warp, in, TensorAccess::copy, first, columns,
                                 to / TensorMemory::kRowsTogether * TensorMemory::kRowsTogether,
                                 TensorMemory::kRowsTogether, false, true);
          copy_row(in, operand, row, to, first, *target);
        }
        continue;
      }
      target->tensor->access(warp, in, TensorAccess::copy, first, columns, 0, kRows, false, true);
      for (u32 to = 0; to < kRows; ++to)
        copy_row(in, operand, row_of(shape, to), to, first, *target);
    }
  }
}

// tcgen05.shift: replaces 32 bytes of every lane by those of the next lane, except in the last lane
// of each warp's 32, which a copy of .4x256b fills (see copy).
void shift(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  constexpr u32 columns = 8;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 address = at<const u32>(registers, in.address)[lane] + static_cast<u32>(in.offset);
    const u32 first = address & 0xffff;
    if (address >> 16) {
      misuse(warp, in,
             "a shift from lane " + std::to_string(address >> 16) +
                 " on, of which PTX does not say what it moves: begin at lane 0");
      continue;
    }
    if (!is_ours(warp, in, first, columns)) continue;
    for (Block* target : blocks_of(warp, in, lane, in.tensor_move.two_blocks != 0)) {
      TensorMemory& tensor = *target->tensor;
      tensor.access(warp, in, TensorAccess::shift, first, columns, 0, kRows, true, true);
      for (u32 column = first; column < first + columns; ++column)
        for (u32 row = 0; row < kRows; row += kLanes)
          std::memmove(tensor.column(column) + row, tensor.column(column) + row + 1,
                       (kLanes - 1) * sizeof(u32));
    }
  }
}

// ---- order ----

template <TensorAccess Kind>
void wait(u8*, const Instruction&, u32, Warp& warp) {
  warp.block->tensor->wait(warp, Kind);
}

// The wait that the assembler inserts before registers of a load are used (tensor_loads.py).
void wait_unless_strict(u8*, const Instruction&, u32, Warp& warp) {
  if (!TensorMemory::is_strict(warp)) warp.block->tensor->wait(warp, TensorAccess::load);
}

template <bool Before>
void fence(u8*, const Instruction&, u32, Warp& warp) {
  TensorMemory& tensor = *warp.block->tensor;
  Before ? tensor.fence_before(warp) : tensor.fence_after(warp);
}

// Arrives at mbarriers immediately, as every earlier operation has been performed.
void commit(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  const std::vector<Block*>& blocks = block.cluster->blocks;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 address =
        in.flags & kNarrowBase
            ? at<const u32>(registers, in.address)[lane] + static_cast<u32>(in.offset)
            : (at<const u64>(registers, in.address)[lane] & kWindowMask) +
                  static_cast<u64>(in.offset);
    Block& home = home_of(block, in, warp.thread(lane), address);
    const u32 offset = static_cast<u32>(plain(block, address));
    const u32 ranks = in.tensor_commit.blocks == kNoSlot
                          ? 1u << home.rank
                          : at<const u16>(registers, in.tensor_commit.blocks)[lane];
    if (offset % 8 || offset + 8 > block.launch->shared_bytes) {
      misuse(warp, in, "no mbarrier at offset " + std::to_string(offset) + " of shared memory");
      continue;
    }
    std::vector<TensorMemory::Phase> arrivals;
    for (u32 rank = 0; ranks >> rank; ++rank) {
      if (!(ranks >> rank & 1)) continue;
      if (rank >= blocks.size()) {
        misuse(warp, in,
               "an arrival at rank " + std::to_string(rank) + " of a cluster of " +
                   std::to_string(blocks.size()) + " blocks");
        continue;
      }
      Block& target = *blocks[rank];
      arrivals.push_back({target.flag(offset), MbarrierWord(target.shared + offset).parity()});
      if (target.shadow)
        target.shadow->clocks.complete_for(warp.agent, target.flag(offset),
                                           {Clocks::products, Clocks::issued_products});
      arrive_committed(target, in, warp, warp.thread(lane), offset);
    }
    if (block.shadow) block.tensor->committed(warp, std::move(arrivals));
  }
}

}  // namespace

void add_tensor_memory(Table& table) {
  const auto add = [&](const char* name, Handler run, Kind kind, Class group,
                       const char* destinations, const char* sources) {
    table.push_back({std::string("tcgen05.") + name, run, kind, group, destinations, sources});
  };
  add("alloc", &allocate, Kind::wait, Class::sync, "", "address,b32");
  add("dealloc", &release, Kind::collective, Class::sync, "", "b32,b32");
  add("relinquish_alloc_permit", &relinquish, Kind::collective, Class::sync, "", "");
  add("ld", &move<true>, Kind::collective, Class::other, "fragment", "b32");
  add("ld.red", &move_reduced, Kind::collective, Class::other, "fragment,b32", "b32");
  add("st", &move<false>, Kind::collective, Class::other, "", "b32,fragment");
  add("cp", &copy, Kind::timed, Class::other, "", "b32,b64");
  add("shift", &shift, Kind::timed, Class::other, "", "b32");
  add("wait.ld", &wait<TensorAccess::load>, Kind::collective, Class::sync, "", "");
  add("wait.st", &wait<TensorAccess::store>, Kind::collective, Class::sync, "", "");
  add("wait.assembler", &wait_unless_strict, Kind::plain, Class::sync, "", "");
  add("fence.before_thread_sync", &fence<true>, Kind::timed, Class::sync, "", "");
  add("fence.after_thread_sync", &fence<false>, Kind::timed, Class::sync, "", "");
  add("commit", &commit, Kind::timed, Class::sync, "", "address");
}

}  // namespace workbench::ptx
