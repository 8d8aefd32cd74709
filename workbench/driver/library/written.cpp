// The written bytes of allocations, followed while checks need them: copies and fills mark them
// here, kernels in the PTX machine.
#include <algorithm>
#include <atomic>
#include <bit>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr u64 kWord = 32;  // bytes per word of bits

bool followed(const Allocation& one) { return !one.written.empty() && !one.all_written; }

// Atomic, because another thread's launch may mark bytes of the same word.
void change(u32& word, u32 mask, u32 bits) {
  std::atomic_ref<u32> shared(word);
  if (const u32 set = mask & bits) shared.fetch_or(set, std::memory_order_relaxed);
  if (const u32 cleared = mask & ~bits) shared.fetch_and(~cleared, std::memory_order_relaxed);
}

// Calls `visit(word, its mask, offset of its first byte)` for a range of bytes.
template <class Words, class Visit>
void for_each_word(Words& written, u64 offset, u64 bytes, Visit&& visit) {
  const u64 end = offset + bytes;
  for (u64 at = offset / kWord; at * kWord < end; ++at) {
    const u64 first = std::max(offset, at * kWord) % kWord;
    const u64 last = std::min(end - at * kWord, kWord);
    const u64 mask = ((u64{1} << last) - 1) & ~((u64{1} << first) - 1);
    visit(written[at], static_cast<u32>(mask), at * kWord);
  }
}

// The 32 bits from bit `from` on; `from` may be negative.
u32 window(const std::vector<u32>& bits, s64 from) {
  const auto word = [&](s64 at) {
    const bool inside = at >= 0 && at < static_cast<s64>(bits.size());
    return inside ? u64{bits[static_cast<std::size_t>(at)]} : 0;
  };
  const s64 first = from >> 5;
  return static_cast<u32>((word(first) | word(first + 1) << kWord) >> (from & 31));
}

}  // namespace

void begin_unwritten(Allocation& made) {
  if (state().follows_writes) made.written.resize((made.size + kWord - 1) / kWord);
}

void mark_written(Allocation& target, u64 offset, u64 bytes) {
  if (!followed(target)) return;
  for_each_word(target.written, offset, bytes,
                [](u32& word, u32 mask, u64) { change(word, mask, ~0u); });
}

void mark_unwritten(Allocation& target, u64 offset, u64 bytes) {
  if (!followed(target)) return;
  for_each_word(target.written, offset, bytes,
                [](u32& word, u32 mask, u64) { change(word, mask, 0); });
}

u64 first_unwritten(const Allocation& source, u64 offset, u64 bytes) {
  u64 found = kNone;
  if (!followed(source)) return found;
  for_each_word(source.written, offset, bytes, [&](const u32& word, u32 mask, u64 first) {
    const u32 missing = mask & ~word;
    if (missing && found == kNone) found = first + static_cast<u64>(__builtin_ctz(missing));
  });
  return found;
}

void Unwritten::add(u64 begin, u64 size) {
  const bool goes_on = runs && begin == end_;
  if (!goes_on) ++runs;
  run_ = goes_on ? run_ + size : size;
  longest = std::max(longest, run_);
  if (first == kNone) first = begin;
  bytes += size;
  end_ = begin + size;
}

void find_unwritten(const Allocation& source, u64 offset, u64 bytes, Unwritten& found) {
  if (!followed(source)) return;
  for_each_word(source.written, offset, bytes, [&](const u32& word, u32 mask, u64 first) {
    for (u64 missing = mask & ~word; missing;) {
      const int from = std::countr_zero(missing);
      const int size = std::countr_one(missing >> from);
      found.add(first + static_cast<u64>(from), static_cast<u64>(size));
      missing &= ~(((u64{1} << size) - 1) << from);
    }
  });
}

void mark_copied(Allocation& target, u64 to, const Allocation* source, u64 from, u64 bytes) {
  if (!followed(target)) return;
  if (!source || !followed(*source)) return mark_written(target, to, bytes);
  std::vector<u32> before;  // a copy, because the ranges may overlap
  if (source == &target) before = source->written;
  const std::vector<u32>& known = source == &target ? before : source->written;
  const s64 distance = static_cast<s64>(from) - static_cast<s64>(to);
  for_each_word(target.written, to, bytes, [&](u32& word, u32 mask, u64 first) {
    change(word, mask, window(known, static_cast<s64>(first) + distance));
  });
}

}  // namespace workbench::driver

using namespace workbench::driver;

// For workbench.driver: sets whether written bytes are followed from here on. Existing allocations
// count as written, and so do followed ones after a launch without checks.
extern "C" __attribute__((visibility("default"))) void workbench_driver_follow_writes(int follow) {
  std::lock_guard lock(state().mutex);
  state().follows_writes = follow != 0;
  if (follow) return;
  for (const auto& [address, allocation] : state().allocations) allocation->all_written = true;
  ++state().generation;
}
