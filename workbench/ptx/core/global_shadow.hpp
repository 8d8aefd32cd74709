// Shadow state of global memory: which block wrote and read each word, to find races between blocks and reads of what
// nobody wrote. 12 bytes for 4 of the buffer.
//
// Blocks of one launch run in any order. Two of them race on a byte if one writes it with a plain store that changes it
// and the other touches it with a plain access, unless one came after the other: it used an atomic or a volatile load
// since, and the first one had fenced and then stored or swapped a flag. Atomics and volatile accesses themselves do not
// race. A word keeps its last writer and its first reader; bytes of a word that different blocks use stay apart.
#pragma once
#include <cstdlib>
#include <memory>
#include <vector>

#include "machine.hpp"

namespace workbench::ptx {

struct GlobalWord {
  u32 writer;    // bits 0-23: the last block that wrote, plus one; 24-27: the bytes it wrote; 28-31: bytes ever written
  u32 reader;    // bits 0-23: the first block that read, plus one; 24-27: the bytes; 28: other blocks read them too
  u16 write_pc;  // low bits of the pc; kUnknownPc where it does not fit
  u16 read_pc;
};
static_assert(sizeof(GlobalWord) == 12);

class GlobalShadow {
 public:
  // One map per buffer of the launch, which must outlive this.
  explicit GlobalShadow(Launch& launch);

  void read(Warp& warp, const Instruction& instruction, u32 lane, u64 address, u32 bytes);
  void read_lanes(Warp& warp, const Instruction& instruction, const u64* addresses, u32 mask, u32 bytes);
  void write(Warp& warp, const Instruction& instruction, u32 lane, u64 address, u32 bytes, bool changes);
  // Atomics and other strong accesses: they only count as writes that others may read.
  void strong(Warp& warp, const Instruction& instruction, u32 lane, u64 address, u32 bytes, bool is_write, bool is_read);

  // The block published what it did: a fence, then a strong write.
  void release(s64 block) { __atomic_store_n(&released_[static_cast<std::size_t>(block)], 1, __ATOMIC_RELAXED); }

 private:
  struct Free {
    void operator()(GlobalWord* words) const { std::free(words); }
  };
  struct Place {
    const Buffer* buffer;
    GlobalWord* words;  // null: a launch with more blocks than a word can name
    u64 first;          // index of the word that holds the first byte
  };

  Place place(Warp& warp, const Instruction& instruction, u64 address, u32 bytes) const;
  bool ordered(const Warp& warp, u32 other) const;
  void check_written(Warp& warp, const Instruction& instruction, u32 lane, u64 address, u32 bytes, const Place& place) const;

  std::vector<std::unique_ptr<GlobalWord, Free>> maps_;
  std::vector<u8> released_;  // by block
};

}  // namespace workbench::ptx
