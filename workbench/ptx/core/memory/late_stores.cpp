#include "memory/late_stores.hpp"

#include <algorithm>

#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

u64 mixed(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

LateStores::LateStores(u64 seed, const Kernel& kernel, Owner owner, const std::vector<s32>& stores,
                       bool early)
    : seed_(mixed(seed + 0x9E3779B97F4A7C15u)),
      owner_(owner),
      early_(early && owner == Owner::block),
      kernel_(kernel),
      roles_(kernel.code.size()) {
  for (std::size_t pc = 0; pc < roles_.size(); ++pc)
    roles_[pc] = role_of(kernel.code[pc], kernel.effects[pc]);
  for (const s32 pc : stores) {
    const auto at = static_cast<std::size_t>(pc);
    const bool shared = kernel.effects.at(at).window == MemoryEffect::shared;
    if (shared == (owner == Owner::warp)) roles_[at] = Role::stores;
  }
}

u64 LateStores::owner_of(const Warp& warp) const {
  const u64 block = static_cast<u64>(warp.block->index);
  return owner_ == Owner::block ? block : block << kWarpBits | static_cast<u64>(warp.index);
}

void LateStores::end(s64 block) {
  if (owner_ == Owner::block) return;
  const u64 number = static_cast<u64>(block);
  if (inside_ >> kWarpBits == number) inside_ = kNobody;
  std::erase_if(stores_, [&](const Store& one) { return one.owner >> kWarpBits == number; });
}

// A store that may not be late becomes visible at once, which is always allowed; but what its lanes
// have written to the same place before must not come after it.
LateStores::Role LateStores::role_of(const Instruction& in, const MemoryEffect& effect) const {
  const bool blocks = owner_ == Owner::block, narrow = blocks && in.flags & kBlockScope;
  if (effect.fences) return narrow ? Role::nothing : early_ ? Role::orders : Role::shows;
  if (effect.effect == Effect::other) return in.kind == Kind::exit ? Role::nothing : Role::shows;
  if (in.kind == Kind::barrier) return owner_ == Owner::warp ? Role::shows : Role::nothing;
  const bool strong_load = effect.effect == Effect::reads && in.flags & kStrong;
  if (effect.effect != Effect::stores && !(early_ && strong_load)) return Role::nothing;
  if (early_ && in.flags & (kRelease | kAcquire) && !narrow) return Role::orders;
  if (in.flags & kRelease && !narrow) return Role::shows;
  if (blocks && effect.window == MemoryEffect::shared) return Role::nothing;
  if (blocks) return early_ && (strong_load || effect.reads) ? Role::meets : Role::changes;
  if (effect.window == MemoryEffect::generic) return Role::shows;
  return effect.window == MemoryEffect::shared ? Role::changes : Role::nothing;
}

void LateStores::Store::swap() {
  u8 here[kMostBytes];
  std::memcpy(here, host, bytes);
  std::memcpy(host, other, bytes);
  std::memcpy(other, here, bytes);
}

// Whether the owner that is inside sees a store that others may miss.
bool LateStores::sees(const Store& one) const {
  if (one.owner == inside_) return true;
  if (!one.released || inside_ == kNobody) return false;
  const auto known = known_.find(inside_);
  return known != known_.end() && known->second.acquired >= one.released;
}

void LateStores::swap_in() {
  for (Store& one : stores_)
    if (sees(one)) one.swap();
}

void LateStores::swap_out() {
  for (auto one = stores_.rbegin(); one != stores_.rend(); ++one)
    if (sees(*one)) one->swap();
}

// A block publishes its stores, and sees what others have published. About half of what it
// publishes others may still miss for a while.
void LateStores::order() {
  const u64 chosen = mixed(seed_ ^ mixed(inside_ << 32 ^ releases_));
  if (chosen & 1) show(inside_);
  swap_out();
  ++releases_;
  const u64 until = turn_ + (u64{1} << (chosen >> 1) % (kTurns + 1));
  for (Store& one : stores_)
    if (one.owner == inside_ && !one.released) one.released = releases_, one.until = until;
  next_ = std::min(next_, until);
  Known& known = known_[inside_];
  known.acquired = known.met;
  swap_in();
}

void LateStores::enter(const Warp& warp) {
  warp_ = &warp, ++turn_;
  const u64 owner = owner_of(warp);
  if (owner == inside_ && turn_ < next_) return;
  swap_out();
  inside_ = kNobody;
  while (turn_ >= next_) {
    const auto due = std::find_if(stores_.begin(), stores_.end(),
                                  [&](const Store& one) { return one.until <= turn_; });
    if (due != stores_.end()) {
      show(due->owner);
      continue;
    }
    next_ = ~u64{0};
    for (const Store& one : stores_) next_ = std::min(next_, one.until);
  }
  inside_ = owner;
  swap_in();
}

// Makes the stores of an owner visible to all, and with them all that are published: others may
// have come to know of these.
void LateStores::show(u64 owner) {
  const auto shown = [&](const Store& one) { return one.owner == owner || one.released; };
  swap_out();
  for (Store& one : stores_)
    if (shown(one)) one.swap();
  std::erase_if(stores_, shown);
  swap_in();
}

void LateStores::show_all() {
  swap_out();
  inside_ = kNobody;
  for (Store& one : stores_) one.swap();
  stores_.clear();
  next_ = ~u64{0};
}

u64 LateStores::address_of(const Instruction& in, u32 lane) const {
  u8* const registers = warp_->registers;
  if (in.flags & kNarrowBase)
    return at<const u32>(registers, in.address)[lane] + static_cast<u32>(in.offset);
  return at<const u64>(registers, in.address)[lane] + static_cast<u64>(in.offset);
}

// Whether lanes access a place that a store of the same owner, or a published one, waits for.
bool LateStores::touches(const Instruction& in, u32 bytes, u32 lanes) const {
  PTX_FOR_EACH_LANE (lane, lanes) {
    const u64 address = address_of(in, static_cast<u32>(lane));
    for (const Store& one : stores_)
      if ((one.owner == inside_ || one.released) && address < one.address + one.bytes &&
          one.address < address + bytes)
        return true;
  }
  return false;
}

void LateStores::act(Role role, s32 pc, u32 lanes) {
  if (role == Role::stores) return put(pc, lanes);
  if (stores_.empty()) return;
  const auto at = static_cast<std::size_t>(pc);
  const bool fences = kernel_.effects[at].fences;
  if (role == Role::meets || (role == Role::orders && !fences)) known_[inside_].met = releases_;
  if (role == Role::orders) order();
  if (fences && role == Role::orders) return;
  if (role == Role::shows || touches(kernel_.code[at], kernel_.effects[at].bytes, lanes))
    show(inside_);
}

void LateStores::put(s32 pc, u32 lanes) {
  const auto place = static_cast<std::size_t>(pc);
  const Instruction& in = kernel_.code[place];
  const u32 bytes = kernel_.effects[place].bytes;
  const Block& block = *warp_->block;
  const u64 chosen = mixed(seed_ ^ mixed(inside_ << 32 | place));
  if (bytes > Store::kMostBytes) return;
  if (!(chosen & 1) || stores_.size() + kLanes > kMost) {
    if (touches(in, bytes, lanes)) show(inside_);
    return;
  }
  const u64 until = turn_ + (u64{1} << (chosen >> 1) % (kTurns + 1));
  PTX_FOR_EACH_LANE (lane, lanes) {
    const u64 address = address_of(in, static_cast<u32>(lane));
    u8* host = nullptr;
    if (owner_ == Owner::block)
      host = block.host_of(address, bytes);
    else if (address + bytes <= block.launch->shared_bytes)
      host = block.shared + address;
    if (!host) continue;  // in another memory, or out of bounds
    Store& one = stores_.emplace_back();
    one.address = address, one.host = host, one.owner = inside_, one.until = until;
    one.released = 0, one.bytes = bytes;
    std::memcpy(one.other, host, bytes);
    next_ = std::min(next_, until);
  }
}

}  // namespace workbench::ptx
