// Instructions that move bits between registers: the events of infinities and NaN go with them.
#include <algorithm>

#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {
namespace {

bool is_special(u16 bits, u16 exponent) { return (bits & exponent) == exponent; }

// The event of these bits among one lane's units of the sources.
u32 event_of(Log& log, const Warp& warp, const Site& site, const Sources& sources, u32 lane,
             u16 bits) {
  for (u32 i = 0; i < site.sources; ++i) {
    const u32 units = site.bytes[i] / kUnit;
    for (u32 unit = lane * units; unit < (lane + 1) * units; ++unit) {
      if (reinterpret_cast<const u16*>(sources.from(i))[unit] != bits) continue;
      if (const u32 event = log.find(warp, site.slot[i] / kUnit + unit, bits)) return event;
    }
  }
  return 0;
}

struct Movement {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    Log& log = *kernel.log;
    if (!log.registers(warp)) return original(registers, in, mask, warp);
    const Sources sources(registers, site);
    original(registers, in, mask, warp);
    const u32 units = site.register_bytes / kUnit;
    u32 events[4 * kLanes];
    for (const Slot slot : site.results) {
      const u16* const bits = at<const u16>(registers, slot);
      if (!any_unit(registers + slot, units, kernel.exponent)) continue;
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 i = lane * units; i < (lane + 1) * units; ++i)
          events[i] = is_special(bits[i], kernel.exponent)
                          ? event_of(log, warp, site, sources, lane, bits[i])
                          : 0;
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 i = lane * units; i < (lane + 1) * units; ++i)
          if (is_special(bits[i], kernel.exponent)) log.put(warp, slot / kUnit + i, events[i]);
    }
  }
};

// Between lanes: shfl, and the largest or smallest of all. Any lane with the same bits is the
// source, which is right but for lanes that have equal bits by different ways.
struct Exchange {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    Log& log = *kernel.log;
    if (!log.registers(warp)) return original(registers, in, mask, warp);
    const Sources sources(registers, site);
    original(registers, in, mask, warp);
    const u16* const bits = at<const u16>(registers, site.results[0]);
    u32 events[2 * kLanes];
    for (u32 i = 0; i < 2 * kLanes; ++i) {
      events[i] = 0;
      if (!is_special(bits[i], kernel.exponent)) continue;
      for (u32 from = i % 2; from < 2 * kLanes && !events[i]; from += 2)
        if (reinterpret_cast<const u16*>(sources.from(0))[from] == bits[i])
          events[i] = log.find(warp, site.slot[0] / kUnit + from, bits[i]);
    }
    PTX_FOR_EACH_LANE (lane, mask)
      for (u32 i = 2 * lane; i < 2 * lane + 2; ++i)
        if (is_special(bits[i], kernel.exponent))
          log.put(warp, site.results[0] / kUnit + i, events[i]);
  }
};

u32 bytes_of(const std::string& width) {
  return width == "b64" ? 8 : width == "b32" ? 4 : width == "b16" ? 2 : 0;
}

}  // namespace

std::optional<Handlers> movement(const TableEntry& entry, const Instruction& in, Site& site) {
  constexpr const char* kBases[] = {"mov", "selp", "pack", "unpack", "prmt", "shl",
                                    "shr", "shf",  "and",  "or",     "xor",  "lop3"};
  const std::vector<std::string> words = words_of(entry.name);
  if (words[0] == "shfl" || (words[0] == "redux" && words.back() == "f32")) {
    site.results = {in.exchange.result};
    site.slot[0] = in.exchange.value, site.bytes[0] = 4, site.sources = 1;
    site.register_bytes = 4;
    return handlers<Exchange>();
  }
  if (std::find(std::begin(kBases), std::end(kBases), words[0]) == std::end(kBases)) return {};
  const std::vector<std::string> results = words_of(entry.destinations);
  const std::vector<std::string> sources = words_of(entry.sources);
  site.register_bytes = bytes_of(results[0]);
  if (!site.register_bytes) return {};
  if (words[0] == "unpack") {
    for (u32 i = 0; i < results.size(); ++i)
      if (in.unpacking.part[i] != kNoSlot) site.results.push_back(in.unpacking.part[i]);
    site.slot[0] = in.unpacking.source, site.bytes[0] = bytes_of(sources[0]), site.sources = 1;
    return handlers<Movement>();
  }
  site.results = {in.elementwise.destination};
  for (u32 i = 0; i < sources.size() && bytes_of(sources[i]); ++i) {
    site.slot[i] = in.elementwise.source[i];
    site.bytes[i] = bytes_of(sources[i]);
    site.sources = i + 1;
  }
  return handlers<Movement>();
}

}  // namespace workbench::ptx::numerics
