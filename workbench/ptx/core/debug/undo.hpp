// The way back of a launch under a debugger: what global memory held before each block, or before
// each group of blocks that run together, wrote to it.
#pragma once
#include <unordered_set>
#include <vector>

#include "machine.hpp"

namespace workbench::ptx {

class UndoLog {
 public:
  // A place from which the launch can be repeated. `turn` is the next block or cluster to start,
  // `index` the number of instructions before; the rest of it are results of the worker so far.
  struct Place {
    s64 turn = 0;
    u64 index = 0;
    u64 instructions = 0, lanes = 0;
    std::size_t printed = 0;
  };

  explicit UndoLog(std::size_t budget) : budget_(budget) {}
  // From now on changes belong to a place of their own.
  void begin(const Place& place);
  // Keeps the bytes of a buffer that are about to be written.
  void keep(const Buffer& buffer, u64 offset, u64 bytes);
  // Restores memory as it was at a place, and forgets what came after it.
  Place restore(std::size_t number);
  // Bytes of the log. It joins places where it grows beyond its budget.
  std::size_t bytes() const { return bytes_; }
  // Whether even one place for the whole launch is beyond the budget; then there is no way back.
  bool is_exhausted() const { return exhausted_; }
  // Index of each place, ascending; empty without a way back.
  std::vector<Place> places() const;

 private:
  static constexpr u64 kChunk = 256;
  // Of an entry of a list, of the set of kept chunks, and of a place, roughly.
  static constexpr std::size_t kEntryCost = 64, kPlaceCost = 256;

  struct Entry {
    u8* host;
    u32 bytes;
    std::size_t from;  // in Part::old
  };
  struct Part {
    Place place;
    std::vector<Entry> entries = {};
    std::vector<u8> old = {};
    std::unordered_set<const u8*> kept = {};  // chunks
  };

  void thin();
  static void join(Part& earlier, Part& later);
  std::size_t bytes_of(const Part& part) const;

  const std::size_t budget_;
  std::vector<Part> parts_;
  const u8* latest_ = nullptr;  // the chunk that was kept last
  std::size_t bytes_ = 0;
  bool exhausted_ = false;
};

}  // namespace workbench::ptx
