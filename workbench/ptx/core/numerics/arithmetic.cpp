// Arithmetic: which results are infinite or no number, and which operands made them so.
#include <algorithm>
#include <string>

#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {
namespace {

struct Arithmetic {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp, const WatchedKernel&,
                  const Site& site, Handler original) {
    const Sources sources(registers, site);
    original(registers, in, mask, warp);
    if (any_special(registers + site.destination, site.result)) [[unlikely]]
      follow(warp, in, mask, site, sources);
  }
};

// The usual case: an f32, and no source that it overwrites.
struct Single {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp, const WatchedKernel&,
                  const Site& site, Handler original) {
    original(registers, in, mask, warp);
    if (any_exponent<u32, 0x7f800000>(registers + site.destination)) [[unlikely]]
      follow(warp, in, mask, site, Sources(registers, site));
  }
};

// The part of source `i` from which a part of the result is computed; negative: none. Two or four
// values that are narrowed to one register stand in it from the highest part down.
int part_of(const Site& site, u32 i, u32 part, u32 narrowed) {
  if (!site.source[i]) return -1;
  if (site.source[i].parts == site.result.parts) return static_cast<int>(part);
  return i + part + 1 == narrowed ? 0 : -1;
}

struct Operand {
  f64 value;
  u32 event;
};

}  // namespace

void follow(Warp& warp, const Instruction& in, u32 mask, const Site& site, const Sources& sources) {
  Log& log = *watched(warp).log;
  const s32 pc = warp.block->pc_of(in);
  const u8* const result = warp.registers + site.destination;
  u32 narrowed = 0;
  for (u32 i = 0; i < site.sources; ++i) narrowed += site.source[i] ? 1u : 0u;
  // Registers may be the same, so that all are read before an event is put.
  u32 events[2][kLanes] = {};
  for (u32 part = 0; part < site.result.parts; ++part) {
    PTX_FOR_EACH_LANE (lane, mask) {
      const f64 made = number(result, site.result, lane, part);
      if (std::isfinite(made)) continue;
      f64 values[5];
      u8 count = 0;
      u32 of_nan = 0, of_infinity = 0;
      bool nan = false, infinite = false;
      for (u32 i = 0; i < site.sources; ++i) {
        const int from = part_of(site, i, part, narrowed);
        if (from < 0) continue;
        const u32 place = static_cast<u32>(from);
        const f64 value = number(sources.from(i), site.source[i], lane, place);
        values[count++] = value;
        if (std::isfinite(value)) continue;
        const u32 unit = unit_of(0, site.source[i], lane, place);
        const u32 event = log.find(warp, site.slot[i] / kUnit + unit,
                                   reinterpret_cast<const u16*>(sources.from(i))[unit]);
        if (std::isnan(value)) {
          if (!nan || !of_nan) of_nan = event;
          nan = true;
        } else {
          if (!infinite || !of_infinity) of_infinity = event;
          infinite = true;
        }
      }
      const bool is_nan = std::isnan(made), through = is_nan ? nan : infinite || nan;
      const Event event = through ? Event::through : is_nan ? Event::nan : Event::infinity;
      const u32 parent = is_nan && nan ? of_nan : of_infinity;
      const u32 id = log.note(event, pc, parent, [&](Happening& one) {
        one.block = warp.block->index, one.thread = warp.thread(lane);
        one.operands = std::min<u8>(count, 4), one.result = made;
        std::copy_n(values, one.operands, one.operand);
      });
      events[part][lane] = id;
      log.tallies(pc).count(id, is_nan, through);
    }
  }
  for (u32 part = 0; part < site.result.parts; ++part)
    PTX_FOR_EACH_LANE (lane, mask)
      if (events[part][lane])
        log.put(warp, unit_of(site.destination, site.result, lane, part), events[part][lane]);
}

std::optional<Handlers> arithmetic(const TableEntry& entry, const Instruction& in, Site& site) {
  constexpr const char* kBases[] = {"add",  "sub",   "mul",  "fma",  "contract", "div", "rcp",
                                    "sqrt", "rsqrt", "ex2",  "lg2",  "sin",      "cos", "tanh",
                                    "min",  "max",   "min3", "max3", "abs",      "neg", "copysign"};
  const std::vector<std::string> words = words_of(entry.name);
  if (std::find(std::begin(kBases), std::end(kBases), words[0]) == std::end(kBases)) return {};
  const Type last = type_named(words.back()), before = type_named(words[words.size() - 2]);
  if (!last) return {};
  site.result = before ? before : last;
  site.destination = in.elementwise.destination;
  const std::vector<std::string> sources = words_of(entry.sources);
  for (u32 i = 0; i < sources.size() && sources[i] != "imm"; ++i) {
    site.slot[i] = in.elementwise.source[i];
    site.source[i] = before && sources[i] == "b16" ? last : site.result;
    site.bytes[i] = site.source[i].bytes();
    site.sources = i + 1;
  }
  for (u32 i = 0; i < site.sources; ++i)
    if (in.elementwise.source[i] == site.destination || site.bytes[i] != 4)
      return handlers<Arithmetic>();
  return site.result == Type{Float::f32, 1} ? handlers<Single>() : handlers<Arithmetic>();
}

}  // namespace workbench::ptx::numerics
