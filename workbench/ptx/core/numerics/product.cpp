// Products of matrices: which factors made a result infinite or no number.
#include <algorithm>

#include "matrices/small_float.hpp"
#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {
namespace {

// A factor in a register of a fragment, in words of 32 bits; the f64 of m8n8k4 in 64.
struct Factor {
  Type type;  // none: of 8 bits and less
  f64 at(const u8* registers, Slot slot, u32 lane, u32 part) const {
    return number(registers + slot, type, lane, part);
  }
};

struct Cause {
  bool nan = false, infinite = false;
  u32 event = 0;
  f64 left = 0, right = 0;
};

// Looks through the products that make up D[row][column]. Lane 4r + c of a register of A holds some
// K of row r, and of B the same K of column r; registers of A alternate between the upper and the
// lower eight rows.
Cause find_cause(const Warp& warp, const Instruction& in, const Site& site, u32 row, u32 column,
                 Log& log) {
  Cause cause;
  const Type type = site.factor[0];
  const bool tall = in.product.a[1] != kNoSlot;
  for (u32 i = row / 8; i < 4 && in.product.a[i] != kNoSlot; i += tall ? 2 : 1) {
    const Slot a = in.product.a[i], b = in.product.b[tall ? i / 2 : i];
    for (u32 k = 0; k < 4 * type.parts; ++k) {
      const u32 part = k % type.parts, left_lane = row % 8 * 4 + k / type.parts,
                right_lane = column * 4 + k / type.parts;
      const f64 left = number(warp.registers + a, type, left_lane, part);
      const f64 right = number(warp.registers + b, site.factor[1], right_lane, part);
      if (std::isfinite(left) && std::isfinite(right)) {
        // Of numbers, the largest product is the one to name.
        const bool larger = std::fabs(left * right) > std::fabs(cause.left * cause.right);
        if (larger && !cause.nan && !cause.infinite) cause.left = left, cause.right = right;
        continue;
      }
      const bool of_left = std::isnan(left) || (!std::isnan(right) && !std::isfinite(left));
      const bool nan = std::isnan(left) || std::isnan(right), better = nan && !cause.nan;
      if ((cause.nan || cause.infinite) && !better) continue;
      const u32 unit = of_left ? unit_of(a, type, left_lane, part)
                               : unit_of(b, site.factor[1], right_lane, part);
      cause.left = left, cause.right = right;
      cause.event = log.find(warp, unit, Log::bits_at(warp, unit));
      cause.nan |= nan, cause.infinite |= !nan;
    }
  }
  return cause;
}

struct Product {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    // The sums before, which the results often overwrite.
    alignas(64) u8 old[4][8 * kLanes];
    u32 sums = 0;
    for (; sums < 4 && site.slot[sums] != kNoSlot; ++sums)
      std::memcpy(old[sums], registers + site.slot[sums], std::size_t{site.bytes[0]} * kLanes);
    original(registers, in, mask, warp);
    bool any = false;
    for (const Slot slot : site.results) any |= any_special(registers + slot, site.result);
    if (any) [[unlikely]]
      look(in, mask, warp, *kernel.log, site, old, sums);
  }

  static void look(const Instruction& in, u32 mask, Warp& warp, Log& log, const Site& site,
                   const u8 (*old)[8 * kLanes], u32 sums) {
    const s32 pc = warp.block->pc_of(in);
    const Type type = site.result, of_sums = site.source[0];
    std::vector<std::pair<u32, u32>> events;  // unit, event
    // Results as pairs of columns: two registers, or one with two parts.
    const u32 in_pair = type.parts == 2 ? 1 : 2;
    for (u32 i = 0; i < site.results.size(); ++i)
      for (u32 part = 0; part < type.parts; ++part)
        PTX_FOR_EACH_LANE (lane, mask) {
          const f64 value = number(warp.registers + site.results[i], type, lane, part);
          if (std::isfinite(value)) continue;
          const u32 half = i / in_pair, right = type.parts == 2 ? part : i % 2;
          f64 before = 0;
          u32 of_old = 0;
          if (sums) {
            const u32 index = of_sums.parts == 2 ? half : 2 * half + right;
            const u32 place = of_sums.parts == 2 ? right : 0;
            before = number(old[index], of_sums, lane, place);
            const u32 unit = unit_of(0, of_sums, lane, place);
            of_old = log.find(warp, site.slot[index] / kUnit + unit,
                              reinterpret_cast<const u16*>(old[index])[unit]);
          }
          Cause cause;
          if (site.factor[0])
            cause = find_cause(warp, in, site, lane / 4 + 8 * half, lane % 4 * 2 + right, log);
          const bool is_nan = std::isnan(value);
          const bool by_sum = is_nan ? std::isnan(before) : std::isinf(before);
          const bool through = by_sum || (is_nan ? cause.nan : cause.infinite);
          const u32 parent = by_sum ? of_old : cause.event ? cause.event : of_old;
          const u32 id =
              log.note(through  ? Event::through
                       : is_nan ? Event::nan
                                : Event::infinity,
                       pc, parent, [&](Happening& one) {
                         one.block = warp.block->index, one.thread = warp.thread(lane);
                         one.operands = sums ? 3 : site.factor[0] ? 2 : 0, one.result = value;
                         one.operand[0] = cause.left, one.operand[1] = cause.right;
                         one.operand[2] = before;
                       });
          log.tallies(pc).count(id, is_nan, through);
          events.emplace_back(unit_of(site.results[i], type, lane, part), id);
        }
    for (const auto& [unit, id] : events) log.put(warp, unit, id);
  }
};

// Results of a product whose factors are not looked at (in memory, sparse or with scales), and what
// is loaded from tensor memory: `sums` are the old values.
struct Opaque {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    u64 was[2] = {};  // results that were special before
    for (std::size_t i = 0; i < site.results.size() && i < 128; ++i)
      was[i / 64] |= u64{any_special(registers + site.results[i], site.result)} << i % 64;
    original(registers, in, mask, warp);
    Log& log = *kernel.log;
    const s32 pc = warp.block->pc_of(in);
    for (std::size_t i = 0; i < site.results.size(); ++i) {
      const u8* const lanes = registers + site.results[i];
      if (!any_special(lanes, site.result)) continue;
      const bool before = i < 128 && was[i / 64] >> i % 64 & 1;
      for (u32 part = 0; part < site.result.parts; ++part)
        PTX_FOR_EACH_LANE (lane, mask) {
          const f64 value = number(lanes, site.result, lane, part);
          if (std::isfinite(value)) continue;
          const u32 unit = unit_of(site.results[i], site.result, lane, part);
          const u32 parent = before ? log.find(warp, unit, Log::bits_at(warp, unit)) : 0;
          const bool is_nan = std::isnan(value), through = before || site.space == Site::generic;
          const u32 id = log.note(site.space == Site::generic ? Event::load
                                  : through                   ? Event::through
                                  : is_nan                    ? Event::nan
                                                              : Event::infinity,
                                  pc, parent, [&](Happening& one) {
                                    one.block = warp.block->index, one.thread = warp.thread(lane),
                                    one.result = value;
                                    one.shared = true;
                                  });
          Tallies& tallies = log.tallies(pc);
          if (!through) {
            (is_nan ? tallies.nans : tallies.infinities) += 1;
            u32& first = is_nan ? tallies.first_nan : tallies.first_infinity;
            if (!first) first = id;
          }
          log.put(warp, unit, id);
        }
    }
  }
};

// The registers of a fragment, without those that are missing.
template <std::size_t N>
std::vector<Slot> slots(const Slot (&from)[N]) {
  std::vector<Slot> found;
  for (const Slot slot : from)
    if (slot != kNoSlot) found.push_back(slot);
  return found;
}

// f16 results share a register.
Type packed(Type type) {
  return type.format == Float::f16 || type.format == Float::bf16 ? Type{type.format, 2} : type;
}

}  // namespace

std::optional<Handlers> product(const TableEntry& entry, const Kernel& kernel,
                                const Instruction& in, Site& site) {
  const std::vector<std::string> words = words_of(entry.name);
  if (words[0] != "mma" && words[0] != "wgmma" && entry.name != "tcgen05.ld") return {};
  if (entry.name == "tcgen05.ld") {
    site.result = {Float::f32, 1}, site.space = Site::generic;
    site.results = kernel.fragments[static_cast<std::size_t>(in.target)];
    return handlers<Opaque>();
  }
  for (const std::string& word : words)
    if (const Type type = type_named(word); type && !site.result) site.result = packed(type);
  if (!site.result) return {};
  if (words[0] == "wgmma" || words[1] == "sp") {
    site.results = kernel.fragments[static_cast<std::size_t>(in.target)];
    return handlers<Opaque>();
  }
  site.results = slots(in.product.d);
  const bool scaled = words[2] == "block_scale";
  const Slot* const sums = scaled ? in.scaled_product.c : in.product.c;
  const Type of_sums = scaled ? site.result : packed(type_named(words[5]));
  if (!of_sums) return {};
  for (u32 i = 0; i < 4; ++i) site.slot[i] = sums[i];
  site.source[0] = of_sums, site.bytes[0] = of_sums.bytes();
  if (!scaled)
    for (u32 i = 0; i < 2; ++i) site.factor[i] = packed(type_named(words[3 + i]));
  return handlers<Product>();
}

}  // namespace workbench::ptx::numerics
