#include "memory/device_heap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace workbench::ptx {
namespace {

constexpr u64 kUnit = 16, kGap = 16;
constexpr std::size_t kMost = 4096;  // limit of freed blocks that are remembered
constexpr u64 kNone = ~u64{0};

u64 round_up(u64 value) { return (value + kUnit - 1) / kUnit * kUnit; }

void* pages(u64 bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void change(u32& word, u32 mask, bool set) {
  std::atomic_ref<u32> shared(word);
  if (set)
    shared.fetch_or(mask, std::memory_order_relaxed);
  else
    shared.fetch_and(~mask, std::memory_order_relaxed);
}

// Calls `visit(index of a word, its mask)` for a range of bytes until it returns false.
template <class Visit>
bool for_each_word(u64 offset, u64 bytes, Visit&& visit) {
  const u64 end = offset + bytes;
  for (u64 at = offset / 32; at * 32 < end; ++at) {
    const u64 first = std::max(offset, at * 32) % 32, last = std::min<u64>(end - at * 32, 32);
    const u64 mask = ((u64{1} << last) - 1) & ~((u64{1} << first) - 1);
    if (!visit(at, static_cast<u32>(mask))) return false;
  }
  return true;
}

std::string of_block(u64 bytes) { return " a block of " + std::to_string(bytes) + " bytes"; }

}  // namespace

DeviceHeap::DeviceHeap(u64 address, u64 limit)
    : address_(address),
      limit_(round_up(std::max(limit, kUnit))),
      size_(limit_ < kNone / (2 * kSpan) ? kSpan * limit_ : throw std::bad_alloc()) {
  // One mapping holds the bytes, and two bits for each of them.
  const u64 words = size_ / 32;
  host_ = static_cast<u8*>(pages(size_ + 2 * words * sizeof(u32)));
  live_ = reinterpret_cast<u32*>(host_ + size_);
  written_ = live_ + words;
}

DeviceHeap::~DeviceHeap() { ::munmap(host_, size_ + size_ / 32 * 2 * sizeof(u32)); }

// The first offset, from `offset` on, that is followed by `span` free bytes.
u64 DeviceHeap::room_from(u64 offset, u64 span) const {
  auto next = blocks_.lower_bound(offset);
  if (next != blocks_.begin()) {
    const auto& [begin, before] = *std::prev(next);
    offset = std::max(offset, begin + round_up(before.bytes) + kGap);
  }
  for (; next != blocks_.end() && next->first < offset + span; ++next)
    offset = next->first + round_up(next->second.bytes) + kGap;
  return offset + span <= size_ ? offset : kNone;
}

void DeviceHeap::mark(u64 offset, u64 bytes, bool live) {
  for_each_word(offset, bytes, [&](u64 at, u32 mask) {
    change(live_[at], mask, live);
    change(written_[at], mask, false);
    return true;
  });
}

u64 DeviceHeap::take(u64 bytes, Origin origin) {
  std::lock_guard lock(mutex_);
  if (bytes > limit_) return 0;
  const u64 own = std::max(round_up(bytes), kUnit), span = own + kGap;
  if (used_ + own > limit_) return 0;
  u64 offset = room_from(next_, span);
  if (offset == kNone) offset = room_from(0, span);
  if (offset == kNone) return 0;
  for (auto old = freed_.lower_bound(offset); old != freed_.end() && old->first < offset + span;)
    old = freed_.erase(old);
  blocks_.insert_or_assign(offset, Place{bytes, origin});
  mark(offset, bytes, true);
  used_ += own;
  next_ = offset + span;
  return address_ + offset;
}

bool DeviceHeap::give_back(u64 address) {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address - address_);
  if (found == blocks_.end()) return false;
  mark(found->first, found->second.bytes, false);
  used_ -= std::max(round_up(found->second.bytes), kUnit);
  freed_.insert_or_assign(found->first, found->second);
  if (freed_.size() > kMost) freed_.erase(freed_.begin());
  blocks_.erase(found);
  return true;
}

bool DeviceHeap::holds(u64 address, u64 bytes) const {
  const u64 offset = address - address_;
  if (offset > size_ || bytes > size_ - offset) return false;
  return for_each_word(offset, bytes, [&](u64 at, u32 mask) {
    const u32 live = std::atomic_ref<u32>(live_[at]).load(std::memory_order_relaxed);
    return (live & mask) == mask;
  });
}

// The last place that begins at or before an offset.
DeviceHeap::Places::const_iterator DeviceHeap::around(const Places& places, u64 offset) {
  const auto after = places.upper_bound(offset);
  return after == places.begin() ? places.end() : std::prev(after);
}

std::string DeviceHeap::describe(u64 address) const {
  std::lock_guard lock(mutex_);
  const u64 offset = address - address_;
  const auto old = around(freed_, offset), live = around(blocks_, offset);
  if (old != freed_.end() && offset - old->first < std::max(old->second.bytes, kUnit)) {
    return "byte " + std::to_string(offset - old->first) + " of" + of_block(old->second.bytes) +
           " of the device heap that was freed";
  }
  if (live != blocks_.end()) {
    const u64 at = offset - live->first, bytes = live->second.bytes;
    const std::string where = at < bytes ? "byte " + std::to_string(at) + " of"
                                         : std::to_string(at - bytes) + " bytes past the end of";
    return where + of_block(bytes) + " that malloc gave";
  }
  return "in the device heap, where malloc gave nothing";
}

std::vector<DeviceHeap::Leak> DeviceHeap::leaks() const {
  std::lock_guard lock(mutex_);
  std::map<std::pair<u64, s32>, Leak> found;
  for (const auto& [_, place] : blocks_) {
    Leak& one = found.try_emplace({place.origin.kernel, place.origin.pc}, Leak{place.origin, 0, 0})
                    .first->second;
    ++one.blocks;
    one.bytes += place.bytes;
  }
  std::vector<Leak> all;
  for (const auto& [_, one] : found) all.push_back(one);
  return all;
}

}  // namespace workbench::ptx
