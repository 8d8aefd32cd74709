// Codes of eight bits and less, in registers: conversions to them, and back.
#include <algorithm>

#include "matrices/small_float.hpp"
#include "numerics/errors.hpp"

namespace workbench::ptx::numerics {
namespace {

f64 decoded(Narrow format, u32 code) {
  const u8 bits = static_cast<u8>(code);
  switch (format) {
    case Narrow::e4m3: return f64{E4M3::decode(bits)};
    case Narrow::e5m2: return f64{E5M2::decode(bits)};
    case Narrow::e2m3: return f64{E2M3::decode(bits)};
    case Narrow::e3m2: return f64{E3M2::decode(bits)};
    case Narrow::e2m1: return f64{E2M1::decode(bits)};
    case Narrow::ue8m0: return f64{PowerOfTwo::decode(bits)};
    case Narrow::s8: return f64(static_cast<s8>(bits));
    default: return f64(bits);
  }
}

u32 code_bits(Narrow format) { return format == Narrow::e2m1 ? 4 : 8; }

Shadows<u16>& codes_of(RegisterShadows& shadows, u32 part) {
  Shadows<u16>& codes = shadows.codes[part];
  if (codes.bits.empty()) codes.resize(shadows.halves.bits.size());
  return codes;
}

// Conversions to codes in one register of 16 bits.
struct Encode {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite& how,
                  Handler original) {
    RegisterShadows& shadows = kernel.log->shadows(warp);
    const u32 parts = how.sources;
    Lanes sources[2];
    const bool packed = site.source[0].parts == 2;
    for (u32 i = 0; i < site.sources; ++i)
      read_lanes(shadows, registers + site.slot[i], site.slot[i], site.source[i], sources[i]);
    original(registers, in, mask, warp);
    const u16* const bits = at<const u16>(registers, site.destination);
    const auto format = static_cast<Narrow>(how.operation);
    Lanes results;
    f64 expected[Lanes::kMost], incoming[Lanes::kMost];
    for (u32 lane = 0; lane < kLanes; ++lane)
      for (u32 part = 0; part < parts; ++part) {
        // The first of two sources has the upper part.
        const Lanes& source = sources[packed ? 0 : parts - 1 - part];
        const u32 from = packed ? 2 * lane + part : lane, i = lane * parts + part;
        const u32 size = code_bits(format);
        results.value[i] = decoded(format, bits[lane] >> part * size & ((1u << size) - 1));
        results.shadow[i] = source.shadow[from], results.blame[i] = source.blame[from];
        expected[i] = source.value[from];
        incoming[i] = std::min(std::fabs(source.value[from] - source.shadow[from]) /
                                   std::max(std::fabs(source.shadow[from]), 1e-300),
                               1.0);
      }
    const s32 pc = warp.block->pc_of(in);
    add_errors(kernel.log->errors(pc), kernel.log->blame(pc), mask,
               {Float::none, static_cast<u8>(parts)}, results, expected, incoming);
    for (u32 part = 0; part < parts; ++part) {
      Shadows<u16>& codes = codes_of(shadows, part);
      PTX_FOR_EACH_LANE (lane, mask) {
        const u32 place = site.destination / 2 + lane;
        codes.bits[place] = bits[lane];
        codes.value[place] = results.shadow[lane * parts + part];
        codes.blame[place] = results.blame[lane * parts + part];
      }
    }
  }
};

// Conversions of such a register to f16x2, or of a byte to f32, which are exact.
struct Decode {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite&,
                  Handler original) {
    RegisterShadows& shadows = kernel.log->shadows(warp);
    const Slot from = in.elementwise.source[0];
    const u32 parts = site.result.parts;
    u16 bits[kLanes];
    std::memcpy(bits, registers + from, sizeof bits);
    Lanes results;
    const bool known[2] = {!shadows.codes[0].bits.empty(), !shadows.codes[1].bits.empty()};
    bool found[Lanes::kMost] = {};
    for (u32 lane = 0; lane < kLanes; ++lane)
      for (u32 part = 0; part < parts; ++part) {
        const u32 place = from / 2 + lane, i = lane * parts + part;
        found[i] = known[part] && shadows.codes[part].bits[place] == bits[lane];
        if (!found[i]) continue;
        results.shadow[i] = shadows.codes[part].value[place];
        results.blame[i] = shadows.codes[part].blame[place];
      }
    original(registers, in, mask, warp);
    f64 expected[Lanes::kMost], incoming[Lanes::kMost];
    for (u32 i = 0; i < kLanes * parts; ++i) {
      results.value[i] = number(registers + site.destination, site.result, i / parts, i % parts);
      if (!found[i]) results.shadow[i] = results.value[i], results.blame[i] = 0;
      expected[i] = results.value[i];
      incoming[i] = std::min(std::fabs(results.value[i] - results.shadow[i]) /
                                 std::max(std::fabs(results.shadow[i]), 1e-300),
                             1.0);
    }
    const s32 pc = warp.block->pc_of(in);
    add_errors(kernel.log->errors(pc), kernel.log->blame(pc), mask, site.result, results, expected,
               incoming);
    write_lanes(shadows, registers, site.destination, site.result, mask, results);
  }
};

}  // namespace

std::optional<Handlers> shadowed_code(const TableEntry& entry, const Site& site,
                                      ShadowSite& shadow) {
  const std::vector<std::string> words = words_of(entry.name);
  if (words[0] != "cvt") return {};
  const bool small = site.narrow >= Narrow::e4m3 && site.narrow <= Narrow::u8_;
  if (small && !site.result && entry.destinations == "b16" && site.sources <= 2) {
    shadow.operation = static_cast<u8>(site.narrow);
    shadow.sources = site.source[0].parts == 2 ? 2 : site.sources;
    return shadow_handlers<Encode>();
  }
  const std::string& from = words.back();
  const bool pair = from == "e4m3x2" || from == "e5m2x2" || from == "e2m3x2" || from == "e3m2x2" ||
                    from == "e2m1x2";
  if ((pair && site.result.parts == 2) ||
      (site.result == Type{Float::f32, 1} && (from == "s8" || from == "u8") &&
       entry.sources == "b16"))
    return shadow_handlers<Decode>();
  return {};
}

}  // namespace workbench::ptx::numerics
