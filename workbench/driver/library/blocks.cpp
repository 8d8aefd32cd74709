// Blocks of a client's caching allocator, such as torch's: the parts of an allocation that are in
// use, in the sizes that were requested. Kernels are checked against them instead of the whole.
#include <algorithm>

#include "recording.hpp"

namespace workbench::driver {
namespace {

constexpr std::size_t kRemembered = 1024;  // freed blocks of an allocation

// The last of `blocks` that begins at or before an address, or the end.
std::map<u64, Part>::const_iterator before(const std::map<u64, Part>& blocks, u64 address) {
  const auto after = blocks.upper_bound(address);
  return after == blocks.begin() ? blocks.end() : std::prev(after);
}

void take_back(const Allocation& allocation, u64 address) {
  Blocks& blocks = *allocation.blocks;
  const auto found = blocks.live.find(address);
  if (found == blocks.live.end()) return;
  keep_partly_written(allocation, address, found->second);
  if (blocks.freed.size() >= kRemembered) blocks.freed.erase(blocks.freed.begin());
  blocks.freed.insert_or_assign(address, found->second);
  blocks.live.erase(found);
}

}  // namespace

std::string describe_block(const Allocation& allocation, u64 address) {
  const Blocks& blocks = *allocation.blocks;
  const auto freed = before(blocks.freed, address);
  if (freed != blocks.freed.end() && address - freed->first < freed->second.bytes) {
    return "byte " + std::to_string(address - freed->first) + " of a block of " +
           std::to_string(freed->second.bytes) + " bytes that was freed";
  }
  const auto live = before(blocks.live, address);
  if (live == blocks.live.end()) return "memory that its allocator has not given out";
  return std::to_string(address - live->first - live->second.bytes) +
         " bytes past the end of a block of " + std::to_string(live->second.bytes) + " bytes";
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Called for the client's allocator: it handed out a block of `bytes` at an address (1), or took it
// back (0); or it may hand it out again (2).
extern "C" __attribute__((visibility("default"))) void workbench_driver_block(u64 address,
                                                                              u64 bytes, int live) {
  answer_or(0, [&] {
    const auto allocation = find_allocation(address, 1);
    if (!allocation) return 0;
    if (live == 2) {
      order_free_again(address, bytes);
      return 0;
    }
    log(Logged::block, {address, bytes, live ? u64{1} : u64{0}});
    if (!allocation->blocks) allocation->blocks = std::make_shared<Blocks>();
    Blocks& blocks = *allocation->blocks;
    if (live) {
      mark_unwritten(*allocation, address - allocation->address,
                     std::min(bytes, allocation->address + allocation->size - address));
      // A log that is repeated hands out again what it never took back.
      auto other = blocks.live.lower_bound(address);
      if (const auto last = before(blocks.live, address);
          last != blocks.live.end() && last->first + last->second.bytes > address)
        other = blocks.live.find(last->first);
      while (other != blocks.live.end() && other->first < address + bytes)
        other = blocks.live.erase(other);
      blocks.live.emplace(address, Part{bytes});
      const auto overlapping = before(blocks.freed, address + bytes);
      if (overlapping != blocks.freed.end() && overlapping->first >= address) {
        blocks.freed.erase(overlapping);
      }
    } else {
      take_back(*allocation, address);
      order_freed(address, bytes);
    }
    ++state().generation;
    return 0;
  });
}
