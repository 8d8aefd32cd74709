// Loads, stores, copies and atomics: the events of infinities and NaN lie in memory as well.
#include <algorithm>

#include "numerics/places.hpp"
#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {
namespace {

// Whether a unit holds an infinity or a NaN. Of 32 bits whose upper half is none, the lower half
// may be the end of a number: it counts if it is an infinity or a usual NaN of sixteen bits, in a
// kernel with such floats.
bool is_special(const u16* units, u32 unit, u32 count, const WatchedKernel& kernel) {
  const u16 bits = units[unit];
  if ((bits & kernel.exponent) != kernel.exponent) return false;
  if (count == 1 || unit % 2) return true;
  const u16 size = bits & 0x7fff;
  return kernel.halves &&
         (size == 0x7c00 || size == 0x7fff || size == 0x7e00 || size == 0x7f80 || size == 0x7fc0);
}

void describe(Happening& one, const Warp& warp, u32 lane, const Places& places, u64 offset) {
  one.block = warp.block->index, one.thread = warp.thread(lane);
  one.address = places.address[lane] + offset, one.shared = places.of_block;
}

// Gives a unit that was read its event.
void read(Log& log, Warp& warp, s32 pc, u32 lane, u32 unit, const Places& places, u64 offset) {
  if (!places.host[lane]) return log.put(warp, unit, 0);
  const u16 bits = Log::bits_at(warp, unit);
  const u32 parent =
      log.memory(*warp.block, places.of_block).find(places.host[lane] + offset, bits);
  // The address of a float, whose upper end the unit is.
  const u64 start = watched(warp).halves || offset % 4 == 0 ? offset : offset - kUnit;
  log.put(warp, unit,
          log.note(
              Event::load, pc, parent,
              [&](Happening& one) { describe(one, warp, lane, places, start); },
              parent ? 0 : places.address[lane] + start));
}

struct Load {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    Places places;
    const u32 bytes = site.memory_bytes * in.elements;
    const u64 offset = static_cast<u64>(in.offset);
    if (site.addresses_overwritten)
      find_places(registers, in.address, offset, in.flags, mask, warp, site.space, bytes, places);
    original(registers, in, mask, warp);
    bool found = site.addresses_overwritten;
    const u32 units = site.register_bytes / kUnit, filled = site.memory_bytes / kUnit;
    for (u32 i = 0; i < in.elements; ++i) {
      const Slot slot = in.access.data[i];
      if (slot == kNoSlot) continue;
      const u16* const bits = at<const u16>(registers, slot);
      if (!any_unit(registers + slot, units, kernel.exponent)) continue;
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 unit = 0; unit < filled; ++unit) {
          if (!is_special(bits + lane * units, unit, filled, kernel)) continue;
          if (!found)
            find_places(registers, in.address, offset, in.flags, mask, warp, site.space, bytes,
                        places);
          found = true;
          read(*kernel.log, warp, warp.block->pc_of(in), lane, slot / kUnit + lane * units + unit,
               places, i * site.memory_bytes + unit * kUnit);
        }
    }
  }
};

struct Store {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    original(registers, in, mask, warp);
    Log& log = *kernel.log;
    if (!log.registers(warp)) return;
    Places places;
    bool found = false;
    const u32 units = site.register_bytes / kUnit, filled = site.memory_bytes / kUnit;
    for (u32 i = 0; i < in.elements; ++i) {
      const Slot slot = in.access.data[i];
      const u16* const bits = at<const u16>(registers, slot);
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 unit = 0; unit < filled; ++unit) {
          const u32 place = lane * units + unit;
          if ((bits[place] & kernel.exponent) != kernel.exponent) continue;
          const u32 parent = log.find(warp, slot / kUnit + place, bits[place]);
          if (!parent) continue;
          if (!found)
            find_places(registers, in.address, static_cast<u64>(in.offset), in.flags, mask, warp,
                        site.space, site.memory_bytes * in.elements, places);
          found = true;
          if (!places.host[lane]) continue;
          const u64 offset = i * site.memory_bytes + unit * kUnit;
          const u32 event =
              log.note(Event::store, warp.block->pc_of(in), parent,
                       [&](Happening& one) { describe(one, warp, lane, places, offset); });
          if (!places.of_block) log.reach(event);
          log.memory(*warp.block, places.of_block)
              .put(places.host[lane] + offset, bits[place], event);
        }
    }
  }
};

// ldmatrix of 16-bit elements: lane 4r + c gets columns 2c and 2c + 1 of row r, or the other way
// round. Lanes 8m to 8m + 7 have the addresses of matrix m.
template <bool Transposed>
struct LoadMatrix {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    constexpr u32 kRowBytes = 16;
    Places rows;
    const auto find = [&] {
      find_places(registers, in.address, static_cast<u64>(in.offset), in.flags,
                  in.elements == 4 ? kAllLanes : (1u << 8 * in.elements) - 1, warp, Site::shared,
                  kRowBytes, rows);
    };
    if (site.addresses_overwritten) find();
    original(registers, in, mask, warp);
    bool found = site.addresses_overwritten;
    for (u32 matrix = 0; matrix < in.elements; ++matrix) {
      const u16* const bits = at<const u16>(registers, in.access.data[matrix]);
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 half = 0; half < 2; ++half) {
          if (!is_special(bits + 2 * lane, half, 2, kernel)) continue;
          if (!found) find();
          found = true;
          const u32 row = Transposed ? lane % 4 * 2 + half : lane / 4;
          const u32 column = Transposed ? lane / 4 : lane % 4 * 2 + half;
          Places one;
          one.of_block = true;
          one.host[lane] = rows.host[8 * matrix + row];
          one.address[lane] = rows.address[8 * matrix + row];
          read(*kernel.log, warp, warp.block->pc_of(in), lane,
               in.access.data[matrix] / kUnit + 2 * lane + half, one, column * kUnit);
        }
    }
  }
};

// cp.async: the events go to shared memory at once, as they only count there when the bits do.
struct Copy {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site&, Handler original) {
    original(registers, in, mask, warp);
    Log& log = *kernel.log;
    if (log.memory(*warp.block, false).empty()) return;
    Places from, to;
    find_places(registers, in.address, static_cast<u64>(in.offset), in.flags, mask, warp,
                Site::global, in.bytes, from);
    find_places(registers, in.copy.destination, in.copy.offset, in.copy.flags, mask, warp,
                Site::shared, in.bytes, to);
    const Origins& global = log.memory(*warp.block, false);
    Origins& shared = log.memory(*warp.block, true);
    PTX_FOR_EACH_LANE (lane, mask) {
      if (!from.host[lane] || !to.host[lane]) continue;
      for (u32 byte = 0; byte < in.bytes; byte += kUnit) {
        u16 bits;
        std::memcpy(&bits, from.host[lane] + byte, sizeof bits);
        if ((bits & kernel.exponent) != kernel.exponent) continue;
        if (const u32 event = global.find(from.host[lane] + byte, bits))
          shared.put(to.host[lane] + byte, bits, event);
      }
    }
  }
};

// Sums of floats by atom and red.
struct Atomic {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    const Type type = site.result;
    Places places;
    find_places(registers, in.address, static_cast<u64>(in.offset), in.flags, mask, warp,
                site.space, type.bytes(), places);
    alignas(64) u8 old[8 * kLanes] = {}, operand[8 * kLanes], made[8 * kLanes] = {};
    const auto look = [&](u8* to) {
      PTX_FOR_EACH_LANE (lane, mask)
        if (places.host[lane])
          std::memcpy(to + lane * type.bytes(), places.host[lane], type.bytes());
    };
    look(old);
    std::memcpy(operand, registers + in.atomic.operand, type.bytes() * kLanes);
    original(registers, in, mask, warp);
    look(made);
    if (!any_special(made, type)) return;
    Log& log = *kernel.log;
    const s32 pc = warp.block->pc_of(in);
    Origins& memory = log.memory(*warp.block, places.of_block);
    for (u32 part = 0; part < type.parts; ++part)
      PTX_FOR_EACH_LANE (lane, mask) {
        const f64 value = number(made, type, lane, part);
        if (std::isfinite(value) || !places.host[lane]) continue;
        const f64 before = number(old, type, lane, part), added = number(operand, type, lane, part);
        const u32 unit = unit_of(0, type, lane, part);
        const u32 of_operand = log.find(warp, in.atomic.operand / kUnit + unit,
                                        reinterpret_cast<const u16*>(operand)[unit]);
        const u64 in_lane = (part + 1) * type.float_bytes() - kUnit;
        u8* const where = places.host[lane] + in_lane;
        const u32 of_old = memory.find(where, reinterpret_cast<const u16*>(old)[unit]);
        const bool nan = std::isnan(value);
        const bool through = nan ? std::isnan(before) || std::isnan(added)
                                 : !std::isfinite(before) || !std::isfinite(added);
        const u32 id = log.note(through ? Event::through
                                : nan   ? Event::nan
                                        : Event::infinity,
                                pc, of_operand && !std::isfinite(added) ? of_operand : of_old,
                                [&](Happening& one) {
                                  describe(one, warp, lane, places, in_lane);
                                  one.operands = 2, one.operand[0] = before, one.operand[1] = added;
                                  one.result = value;
                                });
        log.tallies(pc).count(id, nan, through);
        if (!places.of_block) log.reach(id);
        memory.put(where, reinterpret_cast<const u16*>(made)[unit], id);
      }
  }
};

Site::Space space_of(const std::string& name) {
  return name == "global"   ? Site::global
         : name == "shared" ? Site::shared
         : name == "local"  ? Site::local
                            : Site::generic;
}

}  // namespace

std::optional<Handlers> access(const TableEntry& entry, const Instruction&, Site& site) {
  const std::vector<std::string> words = words_of(entry.name);
  if (entry.name == "cp.async") return handlers<Copy>();
  if (words[0] == "ldmatrix" && words.size() == (entry.name.ends_with("trans") ? 2 : 1)) {
    site.memory_bytes = site.register_bytes = 4;
    return words.size() == 2 ? handlers<LoadMatrix<true>>() : handlers<LoadMatrix<false>>();
  }
  if (words.size() < 3 || (words[1] != "global" && words[1] != "shared" && words[1] != "local" &&
                           words[1] != "generic"))
    return {};
  site.space = space_of(words[1]);
  if (words[0] == "atom") {
    site.result = type_named(words.back());
    if (!site.result || words[2] == "exch" || words[2] == "cas") return {};
    return handlers<Atomic>();
  }
  if ((words[0] != "ld" && words[0] != "st") || words.size() != 3) return {};
  const std::size_t slash = words[2].find('/');
  site.memory_bytes = static_cast<u32>(std::stoul(words[2].substr(1, slash - 1))) / 8;
  site.register_bytes = static_cast<u32>(std::stoul(words[2].substr(slash + 1))) / 8;
  if (site.memory_bytes < kUnit) return {};
  if (words[0] == "st") return handlers<Store>();
  return handlers<Load>();
}

}  // namespace workbench::ptx::numerics
