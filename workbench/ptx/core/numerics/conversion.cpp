// Conversions to narrower formats: numbers that overflow, saturate, or become zero.
#include <algorithm>

#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {
namespace {

struct Format {
  const char* name;
  Narrow narrow;
  // A magnitude from which on numbers round to infinity, or beyond the largest finite number, and
  // the smallest number above 0.
  f64 limit, smallest;
  u32 bits;  // of a code
};
constexpr Format kFormats[] = {
    {"f16", Narrow::f16, 65520, 0x1p-24, 16},
    {"bf16", Narrow::bf16, 0x1.ffp127, 0x1p-133, 16},
    {"f32", Narrow::f32, 0x1.ffffffp127, 0x1p-149, 32},
    // 464 lies between 448 and the code of NaN, and rounds to the former.
    {"e4m3", Narrow::e4m3, 464.0000001, 0x1p-9, 8},
    {"e5m2", Narrow::e5m2, 61440, 0x1p-16, 8},
    {"e2m3", Narrow::e2m3, 7.75, 0x1p-3, 8},
    {"e3m2", Narrow::e3m2, 30, 0x1p-4, 8},
    {"e2m1", Narrow::e2m1, 7, 0.5, 4},
    {"ue8m0", Narrow::ue8m0, 0x1.0000001p127, 0x1p-127, 8},
    {"s8", Narrow::s8, 127, 0, 8},
    {"u8", Narrow::u8_, 255, 0, 8},
    {"s16", Narrow::s16, 32767, 0, 16},
    {"u16", Narrow::u16_, 65535, 0, 16},
    {"s32", Narrow::s32, 2147483647.0, 0, 32},
    {"u32", Narrow::u32_, 4294967295.0, 0, 32},
    {"s64", Narrow::s64, 0x1p63, 0, 64},
    {"u64", Narrow::u64_, 0x1p64, 0, 64}};

const Format& format_of(Narrow narrow) { return kFormats[static_cast<std::size_t>(narrow) - 1]; }

bool is_integer(Narrow narrow) { return narrow >= Narrow::s8; }
bool is_unsigned(Narrow narrow) {
  return is_integer(narrow) && (static_cast<int>(narrow) - static_cast<int>(Narrow::s8)) % 2;
}

// The f32 values of all lanes, if nothing happens to them. Returns false otherwise.
bool stay(const u32* bits, const Format& format, Narrowed& narrowed) {
  u32 top = 0, low = ~u32{0}, negative = 0;
  PTX_LANES {
    const u32 size = bits[lane] & 0x7fffffffu;
    top = std::max(top, size);
    low = std::min(low, size - 1);  // 0 counts as the largest
    negative |= size ? bits[lane] : 0;
  }
  if (top >= 0x7f800000u) return false;
  const f64 largest = f64{bits_as<f32>(top)};
  if (largest >= format.limit || (is_unsigned(format.narrow) && negative >> 31)) return false;
  if (low != ~u32{0} && f64{bits_as<f32>(low + 1)} < format.smallest) return false;
  narrowed.numbers += kLanes;
  narrowed.largest = std::max(narrowed.largest, largest);
  return true;
}

f64 rounded(f64 value, s64 mode) {
  switch (mode & 3) {
    case Rounding::rni: return std::rint(value);
    case Rounding::rzi: return std::trunc(value);
    case Rounding::rmi: return std::floor(value);
    default: return std::ceil(value);
  }
}

void count_integer(f64 value, const Format& format, s64 mode, Narrowed& narrowed) {
  const f64 whole = rounded(value, mode);
  const f64 least = is_unsigned(format.narrow) ? 0 : -format.limit - (format.bits < 64 ? 1 : 0);
  narrowed.saturated += format.bits < 64 ? whole > format.limit || whole < least
                                         : whole >= format.limit || whole < least;
}

// `code`: the result's bits without its sign; `infinite`: it is an infinity or a NaN.
void count_float(f64 value, const Format& format, u64 code, bool infinite, Narrowed& narrowed) {
  if (infinite) {
    narrowed.overflowed += std::isfinite(value);
    return;
  }
  narrowed.saturated += std::fabs(value) >= format.limit;
  if (format.narrow == Narrow::ue8m0)
    narrowed.flushed += value > 0 && value < format.smallest;
  else
    narrowed.flushed += value != 0 && code == 0;
}

void count(const u8* registers, const Instruction& in, u32 mask, const Site& site,
           const Sources& sources, Narrowed& narrowed) {
  const Format& format = format_of(site.narrow);
  const u32 values = site.sources * site.source[0].parts;
  const u32 lane_bits = site.register_bytes * 8;
  PTX_FOR_EACH_LANE (lane, mask) {
    for (u32 i = 0; i < values; ++i) {
      // The first source has the highest part.
      const u32 source = site.source[0].parts > 1 ? 0 : i;
      const u32 part = site.source[0].parts > 1 ? i : values - 1 - i;
      const f64 value =
          number(sources.from(source), site.source[0], lane, site.source[0].parts > 1 ? i : 0);
      u64 code = 0;
      std::memcpy(&code, registers + site.destination + lane * lane_bits / 8, lane_bits / 8);
      code = code >> part * format.bits & (~u64{0} >> (64 - format.bits));
      narrowed.numbers += 1;
      if (std::isfinite(value)) narrowed.largest = std::max(narrowed.largest, std::fabs(value));
      const bool integer = is_integer(format.narrow);
      const u64 size =
          format.narrow == Narrow::ue8m0 ? code : code & (~u64{0} >> (65 - format.bits));
      const bool infinite = format.narrow == Narrow::f16    ? size >= 0x7c00
                            : format.narrow == Narrow::bf16 ? size >= 0x7f80
                            : format.narrow == Narrow::f32  ? size >= 0x7f800000
                            : format.narrow == Narrow::e4m3 ? size == 0x7f
                            : format.narrow == Narrow::e5m2
                                ? size >= 0x7c
                                : format.narrow == Narrow::ue8m0 && size == 0xff;
      if (std::isnan(value))
        narrowed.nans += integer || !infinite;
      else if (integer)
        count_integer(value, format, in.immediate, narrowed);
      else
        count_float(value, format, size, infinite, narrowed);
    }
  }
}

struct Conversion {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, Handler original) {
    const Sources sources(registers, site);
    original(registers, in, mask, warp);
    if (site.narrow != Narrow::none) {
      Narrowed& narrowed = kernel.log->tallies(warp.block->pc_of(in)).narrowed;
      bool nothing = mask == kAllLanes && site.source[0] == Type{Float::f32, 1};
      const Narrowed before = narrowed;
      for (u32 i = 0; nothing && i < site.sources; ++i)
        nothing =
            stay(reinterpret_cast<const u32*>(sources.from(i)), format_of(site.narrow), narrowed);
      if (!nothing) {
        narrowed = before;
        count(registers, in, mask, site, sources, narrowed);
      }
    }
    if (site.result && any_special(registers + site.destination, site.result)) [[unlikely]]
      follow(warp, in, mask, site, sources);
  }
};

}  // namespace

std::optional<Handlers> conversion(const TableEntry& entry, const Instruction& in, Site& site) {
  const std::vector<std::string> words = words_of(entry.name);
  if (words[0] != "cvt" || words.size() < 3) return {};
  const std::string& to = words[words.size() - 2];
  const Type from = type_named(words.back());
  site.result = type_named(to);
  if (!from && !site.result) return {};
  const std::string base =
      to.ends_with("x2") || to.ends_with("x4") ? to.substr(0, to.size() - 2) : to;
  for (const Format& format : kFormats)
    if (base == format.name) site.narrow = format.narrow;
  const bool narrows = from && (!site.result || site.result.float_bytes() < from.float_bytes() ||
                                (from.format == Float::bf16 && site.narrow == Narrow::f16));
  if (!narrows) site.narrow = Narrow::none;
  if (!site.result && !narrows) return {};
  site.destination = in.elementwise.destination;
  const std::vector<std::string> sources = words_of(entry.sources);
  // Behind the values may stand random bits or scales.
  const u32 values = to.ends_with("x4") ? 4 : to.ends_with("x2") && from.parts == 1 ? 2 : 1;
  for (u32 i = 0; from && i < std::min<std::size_t>(values, sources.size()); ++i) {
    site.slot[i] = in.elementwise.source[i];
    site.source[i] = from, site.bytes[i] = from.bytes();
    site.sources = i + 1;
  }
  site.register_bytes = entry.destinations == "b64" ? 8 : entry.destinations == "b32" ? 4 : 2;
  return handlers<Conversion>();
}

}  // namespace workbench::ptx::numerics
