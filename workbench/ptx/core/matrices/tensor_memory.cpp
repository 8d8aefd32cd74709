#include "matrices/tensor_memory.hpp"

#include <algorithm>

#include "warp.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 units_of(u32 first, u32 columns) {
  const u32 count = columns / TensorMemory::kUnit;
  return static_cast<u32>(((u64{1} << count) - 1) << first / TensorMemory::kUnit);
}

constexpr const char* kFences =
    "put tcgen05.fence::before_thread_sync before and tcgen05.fence::after_thread_sync behind what "
    "the threads synchronise by, and ";

// The instruction or wait that is needed after an access of this kind, for the message.
const char* remedy(TensorAccess earlier) {
  switch (earlier) {
    case TensorAccess::load:
      return "wait for the load with tcgen05.wait::ld before the threads meet";
    case TensorAccess::store:
      return "wait for the store with tcgen05.wait::st before the threads meet";
    case TensorAccess::product:
      return "wait at the mbarrier of a tcgen05.commit behind the product";
    case TensorAccess::copy: return "wait at the mbarrier of a tcgen05.commit behind the copy";
    case TensorAccess::shift: return "wait at the mbarrier of a tcgen05.commit behind the shift";
    case TensorAccess::none: break;
  }
  return "";
}

constexpr bool is_issued(TensorAccess kind) { return kind >= TensorAccess::product; }

constexpr std::size_t number_of(TensorAccess kind) { return kind == TensorAccess::store; }

constexpr Clocks::Part part_of(TensorAccess kind) {
  return kind == TensorAccess::store ? Clocks::tensor_stores : Clocks::tensor_loads;
}

}  // namespace

TensorMemory::TensorMemory(bool checks)
    : cells_(reinterpret_cast<u32*>(aligned_bytes(kRows * kColumns * sizeof(u32)).release())) {
  if (!cells_) throw OutOfMemory("%u bytes of tensor memory", u32{kRows * kColumns * sizeof(u32)});
  if (!checks) return;
  shadow_.resize(kColumns * (kRows / kRowsTogether));
  orders_.resize(Clocks::kWarps);
}

void TensorMemory::begin() {
  allocations_.clear();
  used_ = 0;
  least_ = kColumns;
  relinquished = false;
  std::fill(shadow_.begin(), shadow_.end(), Cell{});
  std::fill(orders_.begin(), orders_.end(), WarpOrder{});
  open_.clear();
  commits_.clear();
}

u32 TensorMemory::allocate(u32 columns, s32 pc) {
  for (u32 first = 0; first + columns <= kColumns; first += kUnit) {
    const u32 units = units_of(first, columns);
    if (used_ & units) continue;
    used_ |= units;
    least_ = std::min(least_, columns);
    allocations_.push_back({first, columns, pc});
    // NaNs and -1, as in shared memory, so that a read before any write shows.
    std::memset(column(first), 0xff, columns * kRows * sizeof(u32));
    if (!shadow_.empty()) std::fill(cells_of(first, 0), cells_of(first + columns, 0), Cell{});
    return first;
  }
  return kNowhere;
}

bool TensorMemory::release(u32 first, u32 columns) {
  const auto found = std::find_if(
      allocations_.begin(), allocations_.end(),
      [&](const Allocation& one) { return one.first == first && one.columns == columns; });
  if (found == allocations_.end()) return false;
  used_ &= ~units_of(first, columns);
  allocations_.erase(found);
  return true;
}

bool TensorMemory::is_allocated(u32 first, u32 columns) const {
  if (first + columns > kColumns) return false;
  for (u32 unit = first / kUnit; unit * kUnit < first + columns; ++unit)
    if (!(used_ >> unit & 1)) return false;
  return true;
}

void TensorMemory::report_leaks(Block& block) const {
  for (const Allocation& one : allocations_)
    block.note({.problem = Problem::tensor_misuse,
                .pc = one.pc,
                .block = block.index,
                .text = std::to_string(one.columns) +
                        " columns are still allocated when the block ends: give them back with "
                        "tcgen05.dealloc"});
}

bool TensorMemory::is_strict(const Warp& warp) { return warp.block->launch->strict; }

void TensorMemory::wait(Warp& warp, TensorAccess kind) {
  if (!warp.block->shadow) return;
  Clocks& clocks = warp.block->shadow->clocks;
  if (!is_strict(warp)) return clocks.complete(warp.agent, {part_of(kind)});
  WarpOrder& order = orders_[static_cast<std::size_t>(warp.index)];
  order.waited[number_of(kind)] = clocks.now(warp.agent);
  order.issued[number_of(kind)] = false;
  clocks.complete(warp.agent, {});
}

void TensorMemory::fence_before(Warp& warp) {
  if (!warp.block->shadow) return;
  Clocks& clocks = warp.block->shadow->clocks;
  if (is_strict(warp))
    for (const TensorAccess kind : {TensorAccess::load, TensorAccess::store})
      if (!orders_[static_cast<std::size_t>(warp.index)].issued[number_of(kind)])
        clocks.complete(warp.agent, {part_of(kind)});
  clocks.complete(warp.agent, {Clocks::issued_products});
}

void TensorMemory::fence_after(Warp& warp) {
  if (warp.block->shadow && is_strict(warp))
    orders_[static_cast<std::size_t>(warp.index)].fenced =
        warp.block->shadow->clocks.seen(warp.agent);
}

// Whether an earlier access comes before a warp's later one, by the clocks that the warp has seen.
bool TensorMemory::is_before(const Warp& warp, const Access& earlier, const Access& later) {
  const Clocks& clocks = warp.block->shadow->clocks;
  if (earlier.kind == TensorAccess::none || earlier.clock < clocks.start()) return true;
  const auto seen = [&](Clocks::Part part) {
    return clocks.seen_of(later.agent, part, earlier.agent) >= earlier.clock;
  };
  if (!is_issued(earlier.kind)) return seen(part_of(earlier.kind));
  if (seen(Clocks::products)) return true;
  return is_issued(later.kind) && (earlier.agent == later.agent || seen(Clocks::issued_products));
}

// The same, by the clocks that it had seen at its last fence.
bool TensorMemory::is_fenced(const Warp& warp, const Access& earlier, const Access& later) {
  const Clocks& clocks = warp.block->shadow->clocks;
  if (earlier.kind == TensorAccess::none || earlier.clock < clocks.start()) return true;
  // The order of the later access' own block; a pair's product may involve the other block.
  const WarpOrder& order = warp.block->tensor->orders_[static_cast<std::size_t>(warp.index)];
  const auto seen = [&](Clocks::Part part) {
    return !order.fenced.empty() &&
           order.fenced[part * clocks.agents() + earlier.agent] >= earlier.clock;
  };
  const bool own = earlier.agent == later.agent;
  if (!is_issued(earlier.kind))
    return own ? order.waited[number_of(earlier.kind)] >= earlier.clock
               : seen(part_of(earlier.kind));
  if (seen(Clocks::products)) return true;
  return is_issued(later.kind) && (own || seen(Clocks::issued_products));
}

void TensorMemory::report(Warp& warp, const Instruction& in, const Access& earlier, u32 column,
                          u32 row) {
  warp.block->note({.problem = Problem::tensor_race,
                    .pc = warp.block->pc_of(in),
                    .other_pc = earlier.pc,
                    .block = warp.block->index,
                    .thread = warp.thread(0),
                    .other_thread = earlier.agent == warp.agent ? -1 : earlier.warp * kLanes,
                    .address = u64{row} << 16 | column,
                    .bytes = sizeof(u32),
                    .text = std::string(is_strict(warp) ? kFences : "") + remedy(earlier.kind)});
}

void TensorMemory::record_read(const Warp& warp, Cell& cell, const Access& access) {
  Access* place = &cell.reads[1];
  for (Access& read : cell.reads)
    if ((read.agent == access.agent && read.kind == access.kind) ||
        is_ordered(warp, read, access)) {
      place = &read;
      break;
    }
  *place = access;
}

void TensorMemory::access(Warp& warp, const Instruction& in, TensorAccess kind, u32 first,
                          u32 columns, u32 row, u32 rows, bool reads, bool writes) {
  if (shadow_.empty()) return;
  Block& block = *warp.block;
  const Access access{block.shadow->clocks.now(warp.agent), block.pc_of(in),
                      static_cast<u16>(warp.agent), kind, static_cast<u8>(warp.index)};
  if (!is_issued(kind))
    orders_[static_cast<std::size_t>(warp.index)].issued[number_of(kind)] = true;
  bool reported = false, unwritten = false;
  for (u32 number = first; number < first + columns; ++number) {
    Cell* cell = cells_of(number, row);
    for (u32 done = 0; done < rows; done += kRowsTogether, ++cell) {
      if (reads && cell->write.kind == TensorAccess::none && !unwritten) {
        unwritten = true;
        block.note({.problem = Problem::unwritten_tensor,
                    .pc = block.pc_of(in),
                    .block = block.index,
                    .thread = warp.thread(0),
                    .address = u64{row + done} << 16 | number,
                    .bytes = sizeof(u32)});
      }
      if (!reported && !is_ordered(warp, cell->write, access)) {
        reported = true;
        report(warp, in, cell->write, number, row + done);
      }
      if (writes) {
        for (const Access& read : cell->reads) {
          if (reported || is_ordered(warp, read, access)) continue;
          reported = true;
          report(warp, in, read, number, row + done);
        }
        *cell = Cell{access, {}};
      } else {
        record_read(warp, *cell, access);
      }
    }
  }
}

void TensorMemory::check_released(Warp& warp, const Instruction& in, u32 first, u32 columns) {
  if (shadow_.empty()) return;
  const Clocks& clocks = warp.block->shadow->clocks;
  const Access access{clocks.now(warp.agent), 0, static_cast<u16>(warp.agent), TensorAccess::none,
                      0};
  for (u32 number = first; number < first + columns; ++number) {
    for (u32 row = 0; row < kRows; row += kRowsTogether) {
      const Cell& cell = *cells_of(number, row);
      for (const Access* earlier : {&cell.write, &cell.reads[0], &cell.reads[1]})
        if (!is_before(warp, *earlier, access) && !is_ordered(warp, *earlier, access))
          return report(warp, in, *earlier, number, row);
    }
  }
}

void TensorMemory::keep(Block& home, const Warp& issuer, u32 offset, u32 bytes) {
  open_.push_back({.home = &home, .agent = issuer.agent, .offset = offset, .bytes = bytes});
}

void TensorMemory::committed(const Warp& issuer, std::vector<Phase> arrivals) {
  for (Commit& earlier : commits_) {
    if (earlier.agent != issuer.agent) continue;
    for (const Phase& phase : arrivals)
      if (std::find(earlier.arrivals.begin(), earlier.arrivals.end(), phase) ==
          earlier.arrivals.end())
        earlier.arrivals.push_back(phase);
  }
  Commit commit{issuer.agent, std::move(arrivals), {}};
  std::erase_if(open_, [&](const Reading& reading) {
    if (reading.agent != issuer.agent) return false;
    commit.readings.push_back(reading);
    return true;
  });
  if (!commit.readings.empty()) commits_.push_back(std::move(commit));
}

void TensorMemory::waited(Phase phase) {
  std::erase_if(commits_, [&](const Commit& commit) {
    const auto& arrivals = commit.arrivals;
    if (std::find(arrivals.begin(), arrivals.end(), phase) == arrivals.end()) return false;
    for (const Reading& reading : commit.readings)
      reading.home->shadow->let_go(reading.offset, reading.bytes);
    return true;
  });
}

}  // namespace workbench::ptx
