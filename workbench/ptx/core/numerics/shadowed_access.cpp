// Loads, stores and copies of floats with their shadows.
#include <algorithm>

#include "numerics/errors.hpp"
#include "numerics/places.hpp"

namespace workbench::ptx::numerics {
namespace {

using Page = MemoryShadows::Page;

inline bool has(const u64* marks, u32 i) { return marks[i / 64] >> i % 64 & 1; }
inline void mark(u64* marks, u32 i, bool on) {
  marks[i / 64] = (marks[i / 64] & ~(u64{1} << i % 64)) | u64{on} << i % 64;
}

// Brings `bytes` bytes with their shadows from memory to a place in the register file.
void bring(MemoryShadows& memory, const u8* from, RegisterShadows& shadows, const u8* registers,
           u32 to, u32 bytes) {
  for (u32 byte = 0; byte < bytes; byte += kUnit) {
    const Page* const page = memory.page(from + byte, false);
    const u32 half =
        static_cast<u32>(reinterpret_cast<std::uintptr_t>(from + byte) % MemoryShadows::kPage / 2);
    const u32 place = (to + byte) / 2;
    const u16 bits = *reinterpret_cast<const u16*>(registers + to + byte);
    const bool known = page && has(page->has_half, half) && page->half_bits[half] == bits;
    shadows.halves.bits[place] = known ? bits : static_cast<u16>(~bits);
    if (known)
      shadows.halves.value[place] = page->half[half],
      shadows.halves.blame[place] = page->half_blame[half];
    if (half % 2 || bytes - byte < 4) continue;
    const u32 single = half / 2, there = (to + byte) / 4;
    const u32 word = *reinterpret_cast<const u32*>(registers + to + byte);
    const bool whole = page && has(page->has_single, single) && page->single_bits[single] == word;
    shadows.singles.bits[there] = whole ? word : ~word;
    if (whole)
      shadows.singles.value[there] = page->single[single],
      shadows.singles.blame[there] = page->single_blame[single];
  }
}

// The other way round.
void put(MemoryShadows& memory, u8* to, const RegisterShadows& shadows, const u8* registers,
         u32 from, u32 bytes) {
  for (u32 byte = 0; byte < bytes; byte += kUnit) {
    const u32 place = (from + byte) / 2, single = (from + byte) / 4;
    const u16 bits = *reinterpret_cast<const u16*>(registers + from + byte);
    const bool half_known = shadows.halves.bits[place] == bits;
    const bool whole = byte % 4 == 0 && bytes - byte >= 4;
    const u32 word = whole ? *reinterpret_cast<const u32*>(registers + from + byte) : 0;
    const bool single_known = whole && shadows.singles.bits[single] == word;
    Page* const page = memory.page(to + byte, half_known || single_known);
    if (!page) continue;
    const u32 half =
        static_cast<u32>(reinterpret_cast<std::uintptr_t>(to + byte) % MemoryShadows::kPage / 2);
    mark(page->has_half, half, half_known);
    if (half_known)
      page->half[half] = shadows.halves.value[place], page->half_bits[half] = bits,
      page->half_blame[half] = shadows.halves.blame[place];
    if (!whole || half % 2) continue;
    mark(page->has_single, half / 2, single_known);
    if (single_known)
      page->single[half / 2] = shadows.singles.value[single], page->single_bits[half / 2] = word,
                          page->single_blame[half / 2] = shadows.singles.blame[single];
  }
}

// Takes the shadows of registers away, which a load has filled.
void forget(RegisterShadows& shadows, const u8* registers, const Instruction& in, u32 mask,
            const Site& site) {
  for (u32 i = 0; i < in.elements; ++i) {
    const Slot slot = in.access.data[i];
    if (slot == kNoSlot) continue;
    const auto invert = [&]<class Bits>(Shadows<Bits>& all) {
      const Bits* const bits = reinterpret_cast<const Bits*>(registers + slot);
      const u32 in_lane = site.register_bytes / static_cast<u32>(sizeof(Bits));
      Bits* const kept = all.bits.data() + slot / sizeof(Bits);
      for (u32 at = 0; at < kLanes * in_lane; ++at)
        kept[at] = mask >> at / in_lane & 1 ? static_cast<Bits>(~bits[at]) : kept[at];
    };
    if (site.register_bytes >= 4) invert(shadows.singles);
    invert(shadows.halves);
  }
}

struct ShadowedLoad {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite&,
                  Handler original) {
    Log& log = *kernel.log;
    const bool of_block = site.space == Site::shared || site.space == Site::local;
    if (site.space != Site::generic && log.shadows(*warp.block, of_block).empty()) {
      original(registers, in, mask, warp);
      return forget(log.shadows(warp), registers, in, mask, site);
    }
    Places places;
    find_places(registers, in.address, static_cast<u64>(in.offset), in.flags, mask, warp,
                site.space, site.memory_bytes * in.elements, places);
    original(registers, in, mask, warp);
    RegisterShadows& shadows = log.shadows(warp);
    MemoryShadows& memory = log.shadows(*warp.block, places.of_block);
    const u8 *low = nullptr, *high = nullptr;
    PTX_FOR_EACH_LANE (lane, mask) {
      const u8* const at = places.host[lane];
      if (!at) continue;
      low = low && low < at ? low : at, high = high > at ? high : at;
    }
    if (!low || !memory.meets(low, high + site.memory_bytes * in.elements))
      return forget(shadows, registers, in, mask, site);
    for (u32 i = 0; i < in.elements; ++i)
      if (in.access.data[i] != kNoSlot)
        PTX_FOR_EACH_LANE (lane, mask)
          if (places.host[lane])
            bring(memory, places.host[lane] + i * site.memory_bytes, shadows, registers,
                  in.access.data[i] + lane * site.register_bytes, site.memory_bytes);
  }
};

struct ShadowedStore {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite&,
                  Handler original) {
    original(registers, in, mask, warp);
    Log& log = *kernel.log;
    Places places;
    find_places(registers, in.address, static_cast<u64>(in.offset), in.flags, mask, warp,
                site.space, site.memory_bytes * in.elements, places);
    const RegisterShadows& shadows = log.shadows(warp);
    MemoryShadows& memory = log.shadows(*warp.block, places.of_block);
    for (u32 i = 0; i < in.elements; ++i)
      PTX_FOR_EACH_LANE (lane, mask)
        if (places.host[lane]) {
          const u32 from = in.access.data[i] + lane * site.register_bytes;
          put(memory, places.host[lane] + i * site.memory_bytes, shadows, registers, from,
              site.memory_bytes);
          if (!places.of_block) blame_stored(log, shadows, registers, from, site.memory_bytes);
        }
  }

  // Adds the errors of floats that reach global memory to the instructions that they come from.
  static void blame_stored(Log& log, const RegisterShadows& shadows, const u8* registers, u32 from,
                           u32 bytes) {
    const auto blame = [&](f64 value, f64 shadow, u32 source) {
      const f64 difference = std::fabs(value - shadow), size = std::fabs(shadow);
      if (!(difference > 0) || !source) return;
      const f64 error = difference < size ? difference / size : 1;
      log.blamed(source) += error * error;
    };
    for (u32 byte = 0; byte + 4 <= bytes; byte += 4) {
      const u32 place = (from + byte) / 4;
      const u32 bits = *reinterpret_cast<const u32*>(registers + from + byte);
      if (shadows.singles.bits[place] == bits)
        blame(f64{bits_as<f32>(bits)}, shadows.singles.value[place], shadows.singles.blame[place]);
    }
    for (u32 byte = 0; byte + 2 <= bytes; byte += 2) {
      const u32 place = (from + byte) / 2;
      const u16 bits = *reinterpret_cast<const u16*>(registers + from + byte);
      if (shadows.halves.bits[place] != bits) continue;
      const f64 shadow = shadows.halves.value[place];
      // Whichever format is nearer.
      const f64 half = f64{to_f32(Half{bits})}, brain = f64{to_f32(Bfloat{bits})};
      blame(std::fabs(half - shadow) < std::fabs(brain - shadow) ? half : brain, shadow,
            shadows.halves.blame[place]);
    }
  }
};

template <bool Transposed>
struct ShadowedMatrix {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site&, const ShadowSite&, Handler original) {
    Log& log = *kernel.log;
    Places rows;
    find_places(registers, in.address, static_cast<u64>(in.offset), in.flags,
                in.elements == 4 ? kAllLanes : (1u << 8 * in.elements) - 1, warp, Site::shared, 16,
                rows);
    original(registers, in, mask, warp);
    RegisterShadows& shadows = log.shadows(warp);
    MemoryShadows& memory = log.shadows(*warp.block, true);
    for (u32 matrix = 0; matrix < in.elements; ++matrix)
      PTX_FOR_EACH_LANE (lane, mask)
        for (u32 half = 0; half < 2; ++half) {
          const u32 row = Transposed ? lane % 4 * 2 + half : lane / 4;
          const u32 column = Transposed ? lane / 4 : lane % 4 * 2 + half;
          if (const u8* const from = rows.host[8 * matrix + row])
            bring(memory, from + 2 * column, shadows, registers,
                  in.access.data[matrix] + 4 * lane + 2 * half, 2);
        }
  }
};

// cp.async: at once, as shadows only count where the bits do.
struct ShadowedCopy {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site&, const ShadowSite&, Handler original) {
    original(registers, in, mask, warp);
    Log& log = *kernel.log;
    MemoryShadows& global = log.shadows(*warp.block, false);
    if (global.empty()) return;
    Places from, to;
    find_places(registers, in.address, static_cast<u64>(in.offset), in.flags, mask, warp,
                Site::global, in.bytes, from);
    find_places(registers, in.copy.destination, in.copy.offset, in.copy.flags, mask, warp,
                Site::shared, in.bytes, to);
    MemoryShadows& shared = log.shadows(*warp.block, true);
    PTX_FOR_EACH_LANE (lane, mask) {
      if (!from.host[lane] || !to.host[lane]) continue;
      for (u32 byte = 0; byte < in.bytes; byte += kUnit) {
        const Page* const page = global.page(from.host[lane] + byte, false);
        const u32 half = in_page(from.host[lane] + byte);
        if (!page) continue;
        if (has(page->has_half, half)) {
          Page* const there = shared.page(to.host[lane] + byte, true);
          const u32 place = in_page(to.host[lane] + byte);
          there->half[place] = page->half[half], there->half_bits[place] = page->half_bits[half];
          there->half_blame[place] = page->half_blame[half], mark(there->has_half, place, true);
        }
        if (half % 2 == 0 && has(page->has_single, half / 2)) {
          Page* const there = shared.page(to.host[lane] + byte, true);
          const u32 place = in_page(to.host[lane] + byte) / 2;
          there->single[place] = page->single[half / 2];
          there->single_bits[place] = page->single_bits[half / 2];
          there->single_blame[place] = page->single_blame[half / 2];
          mark(there->has_single, place, true);
        }
      }
    }
  }
  static u32 in_page(const u8* at) {
    return static_cast<u32>(reinterpret_cast<std::uintptr_t>(at) % MemoryShadows::kPage / 2);
  }
};

}  // namespace

std::optional<Handlers> shadowed_access(const TableEntry& entry, const Site& site, ShadowSite&) {
  if (entry.name == "cp.async") return shadow_handlers<ShadowedCopy>();
  if (entry.name == "ldmatrix") return shadow_handlers<ShadowedMatrix<false>>();
  if (entry.name == "ldmatrix.trans") return shadow_handlers<ShadowedMatrix<true>>();
  if (site.memory_bytes < kUnit || site.memory_bytes > site.register_bytes) return {};
  if (entry.name.starts_with("ld.")) return shadow_handlers<ShadowedLoad>();
  if (entry.name.starts_with("st.")) return shadow_handlers<ShadowedStore>();
  return {};
}

}  // namespace workbench::ptx::numerics
