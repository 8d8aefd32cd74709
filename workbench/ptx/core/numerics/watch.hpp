// Handlers that look at the floats which an instruction makes, beside the one that executes it.
//
// A watched kernel is a copy of another one, made for one launch. Its handlers call those of the
// other one, so that what it computes is the same.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "numerics/log.hpp"

namespace workbench::ptx::numerics {

// The formats to which conversions narrow.
enum class Narrow : u8 {
  none,
  f16,
  bf16,
  f32,
  e4m3,
  e5m2,
  e2m3,
  e3m2,
  e2m1,
  ue8m0,
  s8,
  u8_,
  s16,
  u16_,
  s32,
  u32_,
  s64,
  u64_
};

// An instruction that is watched, and where its floats are.
struct alignas(64) Site {
  // What every execution looks at, in one line of the cache.
  Handlers original{nullptr};
  Type result;
  Slot destination = kNoSlot;
  u32 sources = 0;
  u32 overwritten = 0;  // bit mask of the sources whose register the result takes
  Type source[5];
  Slot slot[5] = {kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  u32 bytes[5] = {};  // of a lane of each source, also where it is no float
  Narrow narrow = Narrow::none;
  // Of a product of matrices: the results' registers; the factors' formats.
  std::vector<Slot> results;
  Type factor[2];
  // Of a load or store, and of a conversion.
  u32 memory_bytes = 0, register_bytes = 0;  // of an element
  bool addresses_overwritten = false;
  enum Space : u8 { global, shared, local, generic } space = global;
};

// The same instruction, where errors are followed.
struct ShadowSite {
  Handlers original{nullptr};
  u8 operation = 0;  // of its file's own list
  u32 sources = 0;
  bool saturates = false, positive = false;  // .sat, .relu
  bool rounds = false;                       // to whole numbers, by adding a constant
};

struct WatchedKernel : Kernel {
  std::vector<Site> sites;  // by instruction
  std::vector<ShadowSite> shadow_sites;
  Log* log = nullptr;
  bool halves = false;    // it computes with floats of sixteen bits
  u16 exponent = 0x7f80;  // the bits that all ones mean an infinity or a NaN in a unit
};

inline const WatchedKernel& watched(const Warp& warp) {
  return static_cast<const WatchedKernel&>(*warp.block->kernel);
}

// Puts handlers that watch in the place of a kernel's own. `names`: of its instructions.
void watch(WatchedKernel& kernel, const std::vector<const TableEntry*>& names, Log& log);

// A handler that runs F in the place of a site's own.
template <class F, bool Observed>
void at_site(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const WatchedKernel& kernel = watched(warp);
  const Site& site = kernel.sites[static_cast<std::size_t>(warp.block->pc_of(in))];
  const Handler original = Observed ? site.original.observed : site.original.bare;
  F::run(registers, in, mask, warp, kernel, site, original);
}
template <class F>
Handlers handlers() {
  return {&at_site<F, false>, &at_site<F, true>};
}

// The same for a handler that follows errors.
template <class F, bool Observed>
void at_shadow(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const WatchedKernel& kernel = watched(warp);
  const auto pc = static_cast<std::size_t>(warp.block->pc_of(in));
  const ShadowSite& shadow = kernel.shadow_sites[pc];
  const Handler original = Observed ? shadow.original.observed : shadow.original.bare;
  F::run(registers, in, mask, warp, kernel, kernel.sites[pc], shadow, original);
}
template <class F>
Handlers shadow_handlers() {
  return {&at_shadow<F, false>, &at_shadow<F, true>};
}

// The sources of an instruction as they were before it: copies of those that it overwrites.
class Sources {
 public:
  Sources(const u8* registers, const Site& site) : registers_(registers), site_(site) {
    for_each_bit(site.overwritten, [&](u32 i) {
      std::memcpy(copies_[i], registers + site.slot[i], std::size_t{site.bytes[i]} * kLanes);
    });
  }
  Sources(const Sources&) = delete;
  const u8* from(u32 i) const {
    return site_.overwritten >> i & 1 ? copies_[i] : registers_ + site_.slot[i];
  }

 private:
  const u8* const registers_;
  const Site& site_;
  alignas(64) u8 copies_[5][8 * kLanes];
};

// ---- what each kind of instruction does: one file for each ----

std::optional<Handlers> arithmetic(const TableEntry& entry, const Instruction& in, Site& site);
std::optional<Handlers> conversion(const TableEntry& entry, const Instruction& in, Site& site);
std::optional<Handlers> movement(const TableEntry& entry, const Instruction& in, Site& site);
std::optional<Handlers> access(const TableEntry& entry, const Instruction& in, Site& site);
std::optional<Handlers> product(const TableEntry& entry, const Kernel& kernel,
                                const Instruction& in, Site& site);

// Counts and follows the infinities and NaN of a result, after the instruction.
void follow(Warp& warp, const Instruction& in, u32 mask, const Site& site, const Sources& sources);

// The words of a name between its points, or of a list between its commas.
std::vector<std::string> words_of(const std::string& name);

}  // namespace workbench::ptx::numerics
