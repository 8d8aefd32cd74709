// Moves between registers and lanes, of floats with their shadows.
#include <algorithm>

#include "numerics/errors.hpp"

namespace workbench::ptx::numerics {
namespace {

enum class Way : u8 { copy, select, pack, unpack, any, up, down, butterfly, index };

// Copies the shadows of one lane's register: `from` and `to` are bytes in the register file.
void copy_bytes(RegisterShadows& shadows, u32 from, u32 to, u32 bytes) {
  const auto copy = [&]<class Bits>(Shadows<Bits>& all) {
    constexpr u32 size = sizeof(Bits);
    for (u32 i = 0; i < bytes / size; ++i) {
      all.value[to / size + i] = all.value[from / size + i];
      all.bits[to / size + i] = all.bits[from / size + i];
      all.blame[to / size + i] = all.blame[from / size + i];
    }
  };
  if (bytes >= 4) copy(shadows.singles);
  copy(shadows.halves);
  for (Shadows<u16>& codes : shadows.codes)
    if (!codes.bits.empty()) copy(codes);
}

// All lanes of a register.
void copy_register(RegisterShadows& shadows, Slot from, Slot to, u32 bytes) {
  const auto copy = [&]<class Bits>(Shadows<Bits>& all) {
    const u32 a = from / static_cast<u32>(sizeof(Bits)), b = to / static_cast<u32>(sizeof(Bits));
    const u32 count = kLanes * bytes / static_cast<u32>(sizeof(Bits));
    std::memmove(all.value.data() + b, all.value.data() + a, count * sizeof(f64));
    std::memmove(all.bits.data() + b, all.bits.data() + a, count * sizeof(Bits));
    std::memmove(all.blame.data() + b, all.blame.data() + a, count * sizeof(u32));
  };
  if (bytes >= 4) copy(shadows.singles);
  copy(shadows.halves);
  for (Shadows<u16>& codes : shadows.codes)
    if (!codes.bits.empty()) copy(codes);
}

// The shadow of sixteen bits among one lane's sources; null if none has it.
struct Found {
  f64 value;
  u32 blame;
};
bool find_half(const RegisterShadows& before, const Site& site, u32 lane, u16 bits, Found& found) {
  for (u32 i = 0; i < site.sources; ++i)
    for (u32 at = 0; at < site.bytes[i] / 2; ++at) {
      const u32 place = (site.slot[i] + lane * site.bytes[i]) / 2 + at;
      if (before.halves.bits[place] != bits) continue;
      found = {before.halves.value[place], before.halves.blame[place]};
      return true;
    }
  return false;
}

struct ShadowedMovement {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite& how,
                  Handler original) {
    RegisterShadows& shadows = kernel.log->shadows(warp);
    const Way way = static_cast<Way>(how.operation);
    const Slot to = site.results[0];
    const u32 bytes = site.register_bytes;
    if (way >= Way::up) return exchange(registers, in, mask, warp, site, way, shadows, original);
    const u32 choice = way == Way::select ? *at<u32>(registers, in.elementwise.source[2]) : 0;
    if (way == Way::any) return any(registers, in, mask, warp, site, shadows, original);
    original(registers, in, mask, warp);
    if (way == Way::copy && mask == kAllLanes)
      return copy_register(shadows, site.slot[0], to, bytes);
    if (way == Way::copy || way == Way::select) {
      PTX_FOR_EACH_LANE (lane, mask)
        copy_bytes(shadows, site.slot[way == Way::select && !(choice >> lane & 1)] + lane * bytes,
                   to + lane * bytes, bytes);
      return;
    }
    if (way == Way::pack) {
      const u32 part = site.bytes[0];
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 i = 0; i < site.sources; ++i)
          copy_bytes(shadows, site.slot[i] + lane * part, to + lane * bytes + i * part, part);
      return;
    }
    const u32 whole = site.bytes[0];
    for (u32 i = 0; i < std::size(in.unpacking.part); ++i) {
      if (i * bytes >= whole || in.unpacking.part[i] == kNoSlot) continue;
      PTX_FOR_EACH_LANE (lane, mask)
        copy_bytes(shadows, site.slot[0] + lane * whole + i * bytes,
                   in.unpacking.part[i] + lane * bytes, bytes);
    }
  }

  // prmt, shifts, and, or: halves go where their bits go, and bf16 becomes f32 as an upper half.
  static void any(u8* registers, const Instruction& in, u32 mask, Warp& warp, const Site& site,
                  RegisterShadows& shadows, Handler original) {
    original(registers, in, mask, warp);
    const u32* const bits = at<const u32>(registers, site.results[0]);
    Shadows<u16>& halves = shadows.halves;
    PTX_FOR_EACH_LANE (lane, mask) {
      Found found[2];
      bool has[2];
      for (u32 half = 0; half < 2; ++half)
        has[half] =
            find_half(shadows, site, lane, static_cast<u16>(bits[lane] >> 16 * half), found[half]);
      const u32 place = site.results[0] / 2 + 2 * lane;
      for (u32 half = 0; half < 2; ++half) {
        const u16 one = static_cast<u16>(bits[lane] >> 16 * half);
        halves.bits[place + half] = has[half] ? one : static_cast<u16>(~one);
        if (has[half])
          halves.value[place + half] = found[half].value,
                               halves.blame[place + half] = found[half].blame;
      }
      const u32 single = site.results[0] / 4 + lane;
      shadows.singles.bits[single] = ~bits[lane];
      // A float that a half has widened to differs from the half's shadow by that one's error
      // alone.
      if (!(bits[lane] & 0xffff) && has[1] &&
          std::fabs(found[1].value - f64{bits_as<f32>(bits[lane])}) <=
              std::fabs(f64{bits_as<f32>(bits[lane])}))
        shadows.singles.bits[single] = bits[lane], shadows.singles.value[single] = found[1].value,
        shadows.singles.blame[single] = found[1].blame;
    }
  }

  static void exchange(u8* registers, const Instruction& in, u32 mask, Warp& warp, const Site& site,
                       Way way, RegisterShadows& shadows, Handler original) {
    u32 from[kLanes];
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 operand = at<const u32>(registers, in.exchange.lane)[lane] & 31,
                segment = at<const u32>(registers, in.exchange.control)[lane] >> 8 & 31;
      from[lane] = (way == Way::up          ? lane - operand
                    : way == Way::down      ? lane + operand
                    : way == Way::butterfly ? lane ^ operand
                                            : (lane & segment) | (operand & ~segment)) %
                   kLanes;
    }
    Shadows<u32> singles;
    Shadows<u16> halves;
    const auto keep = [&]<class Bits>(const Shadows<Bits>& all, Shadows<Bits>& kept) {
      const auto first = static_cast<std::ptrdiff_t>(site.slot[0] / sizeof(Bits)),
                 end = first + static_cast<std::ptrdiff_t>(4 * kLanes / sizeof(Bits));
      kept.value.assign(all.value.begin() + first, all.value.begin() + end);
      kept.bits.assign(all.bits.begin() + first, all.bits.begin() + end);
      kept.blame.assign(all.blame.begin() + first, all.blame.begin() + end);
    };
    keep(shadows.singles, singles), keep(shadows.halves, halves);
    original(registers, in, mask, warp);
    // Where a lane kept its own value, or got another one, its bits do not fit.
    PTX_FOR_EACH_LANE (lane, mask) {
      const u32 single = site.results[0] / 4 + lane, half = site.results[0] / 2 + 2 * lane;
      shadows.singles.value[single] = singles.value[from[lane]];
      shadows.singles.bits[single] = singles.bits[from[lane]];
      shadows.singles.blame[single] = singles.blame[from[lane]];
      for (u32 i = 0; i < 2; ++i) {
        shadows.halves.value[half + i] = halves.value[2 * from[lane] + i];
        shadows.halves.bits[half + i] = halves.bits[2 * from[lane] + i];
        shadows.halves.blame[half + i] = halves.blame[2 * from[lane] + i];
      }
    }
  }
};

}  // namespace

std::optional<Handlers> shadowed_movement(const TableEntry& entry, const Site& site,
                                          ShadowSite& shadow) {
  const std::vector<std::string> words = words_of(entry.name);
  const auto way = [&](Way one) {
    shadow.operation = static_cast<u8>(one);
    return shadow_handlers<ShadowedMovement>();
  };
  if (words[0] == "mov") return way(Way::copy);
  if (words[0] == "selp") return way(Way::select);
  if (words[0] == "pack" && site.bytes[0] >= 2 &&
      site.bytes[0] * site.sources == site.register_bytes)
    return way(Way::pack);
  if (words[0] == "unpack" && site.register_bytes >= 2 && words[1] != "b16" &&
      entry.name != "unpack.b32.4")
    return way(Way::unpack);
  if (words[0] == "shfl")
    return way(words[1] == "up"     ? Way::up
               : words[1] == "down" ? Way::down
               : words[1] == "bfly" ? Way::butterfly
                                    : Way::index);
  constexpr const char* kAny[] = {"prmt", "shl", "shr", "and", "or", "lop3"};
  if (std::find(std::begin(kAny), std::end(kAny), words[0]) != std::end(kAny) &&
      site.register_bytes == 4)
    return way(Way::any);
  return {};
}

}  // namespace workbench::ptx::numerics
