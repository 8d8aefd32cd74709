#include "checks/waits.hpp"

#include <time.h>

#include <algorithm>
#include <bit>

#include "memory/access.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {
namespace {

constexpr std::size_t kMostReads = 8;  // limit for each warp, each at another instruction

// Mixes a word into a hash (the finaliser of SplitMix64).
u64 mixed(u64 hash, u64 word) {
  u64 x = hash ^ (word + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

u64 hash_of(const u8* bytes, std::size_t size, u64 hash) {
  std::size_t at = 0;
  for (; at + sizeof(u64) <= size; at += sizeof(u64)) {
    u64 word;
    std::memcpy(&word, bytes + at, sizeof word);
    hash = std::rotl(hash ^ word, 27) * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
  }
  u64 rest = 0;
  std::memcpy(&rest, bytes + at, size - at);
  return mixed(hash, rest);
}

}  // namespace

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Proof::begin() {
  changed_ = false, turns_ = 0, next_mark_ = 1;
  words_.clear();
  reads_.resize(block_.warps->size());
  ticks_.clear();
  for (const Warp& one : *block_.warps) ticks_.push_back(one.tick);
  mark_ = state();
}

u64 Proof::state() const {
  const Kernel& kernel = *block_.kernel;
  u64 all = block_.exited;
  for (const Warp& one : *block_.warps) {
    if (one.splits.empty()) continue;
    u64 hash = hash_of(one.registers, kernel.image.size(), one.agent);
    if (kernel.local_bytes)
      hash = hash_of(one.local, std::size_t{kernel.local_bytes} * kLanes, hash);
    u64 groups = 0;  // combined so that the order of groups does not matter
    for (const Split& split : one.splits)
      groups += mixed(u64{static_cast<u32>(split.pc)} << 32 | split.mask,
                      u64{split.state} << 32 | split.need);
    if (kernel.frame_slot != kNoSlot)
      for (u32 lane = 0; lane < kLanes; ++lane) {
        for (const s32 back : one.calls.returns[lane]) hash = mixed(hash, static_cast<u32>(back));
        const std::vector<u8>& saved = one.calls.saved[lane];
        hash = hash_of(saved.data(), saved.size(), hash);
      }
    all = mixed(mixed(all, hash), groups);
  }
  return all;
}

bool Proof::recurs() {
  settle();
  ++turns_;
  if (changed_) return false;
  const u64 now = state();
  const auto& warps = *block_.warps;
  // A group of lanes that did not run may be the one that ends the wait.
  const auto all_ran = [&](std::size_t i) {
    return std::all_of(warps[i].splits.begin(), warps[i].splits.end(), [&](const Split& split) {
      return split.state > Split::polled || split.last_run > ticks_[i];
    });
  };
  if (now == mark_) {
    for (std::size_t i = 0; i < warps.size(); ++i)
      if (!all_ran(i)) return false;
    return true;
  }
  // Brent's method to find a cycle.
  if (turns_ == next_mark_) {
    next_mark_ *= 2;
    mark_ = now;
    for (std::size_t i = 0; i < warps.size(); ++i) ticks_[i] = warps[i].tick;
  }
  return false;
}

void Proof::hurry() {
  constexpr u64 kShort = 256;
  const bool apart = std::any_of(block_.warps->begin(), block_.warps->end(),
                                 [](const Warp& one) { return one.splits.size() > 1; });
  quantum = apart ? kQuantum : kShort;
}

void Proof::look(s32 pc, u32 lanes) {
  if (!words_.empty()) settle();
  if (!lanes || changed_) return;
  const Kernel& kernel = *block_.kernel;
  switch (kernel.effects[static_cast<std::size_t>(pc)].effect) {
    case Effect::nothing: return;
    case Effect::other: changed_ = true; return;
    case Effect::reads:
    case Effect::stores: return keep(*warp, kernel.code[static_cast<std::size_t>(pc)], lanes);
  }
}

// The host address of a lane's access, or null if it is not known.
u8* Proof::place_of(const Warp& who, const Instruction& in, u32 lane, u32 bytes,
                    u64& address) const {
  if (in.flags & kNarrowBase)
    address = at<const u32>(who.registers, in.address)[lane] + static_cast<u32>(in.offset);
  else
    address = at<const u64>(who.registers, in.address)[lane] + static_cast<u64>(in.offset);
  const auto window = block_.kernel->effects[static_cast<std::size_t>(block_.pc_of(in))].window;
  u64 offset = address;
  if (window == MemoryEffect::generic) {
    if (in_shared(address))
      offset = address & kWindowMask;
    else
      return address >> 56 ? nullptr : block_.host_of(address, bytes);
  } else if (window == MemoryEffect::global) {
    return block_.host_of(address, bytes);
  }
  if (is_remote(block_, offset)) return nullptr;
  offset = plain(block_, offset);
  return offset + bytes <= block_.launch->shared_bytes ? block_.shared + offset : nullptr;
}

void Proof::keep(const Warp& who, const Instruction& in, u32 lanes) {
  const s32 pc = block_.pc_of(in);
  const MemoryEffect& effect = block_.kernel->effects[static_cast<std::size_t>(pc)];
  const u32 bytes = effect.bytes;
  const u32 first = static_cast<u32>(first_lane(lanes));
  u64 address = 0;
  if (effect.reads) {
    auto& known = reads_[static_cast<std::size_t>(who.index)];
    auto found = std::find_if(known.begin(), known.end(),
                              [&](const WaitingRead& one) { return one.pc == pc; });
    if (found == known.end() && known.size() < kMostReads)
      found = known.insert(found, WaitingRead{});
    if (found != known.end()) {
      u8* host = place_of(who, in, first, bytes, address);
      *found = {pc, first, address, host, bytes};
    }
  }
  if (effect.effect != Effect::stores) return;
  PTX_FOR_EACH_LANE (lane, lanes) {
    Word word{place_of(who, in, static_cast<u32>(lane), bytes, address), bytes, {}};
    if (!word.host || bytes > sizeof word.before) {
      changed_ = true;
      return;
    }
    std::memcpy(word.before, word.host, bytes);
    words_.push_back(word);
  }
}

void Proof::settle() {
  for (const Word& word : words_) changed_ |= std::memcmp(word.before, word.host, word.bytes) != 0;
  words_.clear();
}

WaitingRead Proof::read_of(const Warp& who) const {
  // A wait reads with a strong or atomic access what others may change.
  WaitingRead best;
  int rank = -1;
  for (const WaitingRead& one : reads_[static_cast<std::size_t>(who.index)]) {
    const std::size_t pc = static_cast<std::size_t>(one.pc);
    const bool strong = block_.kernel->code[pc].flags & kStrong;
    const int own = block_.kernel->effects[pc].effect == Effect::stores ? 1 : strong ? 2 : 0;
    if (own > rank) best = one, rank = own;
  }
  return best;
}

Waits::Step Waits::waits(Worker& worker, bool proved, const std::vector<WaitingBlock>& blocks) {
  std::lock_guard lock(mutex_);
  if (!worker.waits) {
    worker.waits = true;
    ++waiting_;
  }
  if (waiting_ < working_) return Step::go_on;
  if (!round_) round_ = ++rounds_;
  if (worker.round != round_) {
    worker.round = round_, worker.confirmed = false;
    return Step::prove_again;
  }
  if (!proved) return Step::go_on;
  if (!worker.confirmed) {
    worker.confirmed = true;
    ++confirmed_;
    rows_.insert(rows_.end(), blocks.begin(), blocks.end());
  }
  if (confirmed_ < working_) return Step::go_on;
  if (found_.empty()) found_ = rows_;
  return Step::deadlock;
}

void Waits::forget(Worker& worker) {
  std::lock_guard lock(mutex_);
  worker = {};
  --waiting_;
  begin_again();
}

void Waits::done(Worker& worker) {
  std::lock_guard lock(mutex_);
  --working_;
  if (worker.waits) --waiting_;
  worker = {};
  begin_again();
}

std::vector<WaitingBlock> Waits::blocks() {
  std::lock_guard lock(mutex_);
  return found_;
}

std::atomic<int>& running_launches() {
  static std::atomic<int> count{0};
  return count;
}

}  // namespace workbench::ptx
