#include "debug/undo.hpp"

#include <algorithm>
#include <cstring>

namespace workbench::ptx {

void UndoLog::begin(const Place& place) {
  if (exhausted_) return;
  parts_.push_back({.place = place});
  latest_ = nullptr;
  bytes_ += kPlaceCost;
  thin();
}

void UndoLog::keep(const Buffer& buffer, u64 offset, u64 bytes) {
  if (exhausted_ || parts_.empty() || offset >= buffer.size) return;
  const u64 end = std::min(buffer.size, offset + bytes);
  for (u64 begin = offset / kChunk * kChunk; begin < end; begin += kChunk) {
    u8* const host = buffer.host + begin;
    if (host == latest_) continue;
    latest_ = host;
    Part& part = parts_.back();
    if (!part.kept.insert(host).second) continue;
    const u32 size = static_cast<u32>(std::min(kChunk, buffer.size - begin));
    part.entries.push_back({host, size, part.old.size()});
    part.old.insert(part.old.end(), host, host + size);
    bytes_ += kEntryCost + size;
    if (bytes_ > budget_) thin();
  }
}

std::size_t UndoLog::bytes_of(const Part& part) const {
  return kPlaceCost + part.entries.size() * kEntryCost + part.old.size();
}

// Puts what `later` kept behind what `earlier` kept, unless that has it already.
void UndoLog::join(Part& earlier, Part& later) {
  for (const Entry& entry : later.entries) {
    if (!earlier.kept.insert(entry.host).second) continue;
    earlier.entries.push_back({entry.host, entry.bytes, earlier.old.size()});
    const u8* const from = later.old.data() + entry.from;
    earlier.old.insert(earlier.old.end(), from, from + entry.bytes);
  }
}

// Joins neighbours among the older half of the places, until the log fits. The latest place stays
// as long as others can be joined.
void UndoLog::thin() {
  while (bytes_ > budget_ && parts_.size() > 1) {
    const std::size_t count = parts_.size();
    const std::size_t old = std::max<std::size_t>(2, (count + 1) / 2);
    std::size_t to = 0;
    for (std::size_t from = 0; from < count;) {
      if (to != from) parts_[to] = std::move(parts_[from]);
      if (from + 1 < old) {
        join(parts_[to], parts_[from + 1]);
        from += 2;
      } else {
        ++from;
      }
      ++to;
    }
    parts_.resize(to);
    bytes_ = 0;
    for (const Part& part : parts_) bytes_ += bytes_of(part);
  }
  if (bytes_ <= budget_) return;
  exhausted_ = true;
  parts_.clear();
  bytes_ = 0;
}

UndoLog::Place UndoLog::restore(std::size_t number) {
  for (std::size_t i = parts_.size(); i-- > number;) {
    const Part& part = parts_[i];
    for (std::size_t j = part.entries.size(); j-- > 0;) {
      const Entry& entry = part.entries[j];
      std::memcpy(entry.host, part.old.data() + entry.from, entry.bytes);
    }
    bytes_ -= bytes_of(part);
  }
  const Place place = parts_[number].place;
  parts_.resize(number);
  latest_ = nullptr;
  return place;
}

std::vector<UndoLog::Place> UndoLog::places() const {
  std::vector<Place> all;
  for (const Part& part : parts_) all.push_back(part.place);
  return all;
}

}  // namespace workbench::ptx
