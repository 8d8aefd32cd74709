#include "global_shadow.hpp"

#include "warp.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kBlockBits = 24, kBlock = (1u << kBlockBits) - 1, kMany = 1u << 28;
constexpr u16 kUnknownPc = 0xffff;

inline u32 mask_of(u32 word) { return word >> kBlockBits & 15; }
inline u16 short_pc(s32 pc) { return pc < kUnknownPc ? static_cast<u16>(pc) : kUnknownPc; }
inline s32 long_pc(u16 pc) { return pc == kUnknownPc ? -1 : pc; }

// Bytes of word `i` of an access of `bytes` bytes at `address`.
inline u32 bytes_in_word(u64 address, u32 bytes, u64 i) {
  const u64 word = (address & ~u64{3}) + 4 * i;
  const u64 low = address > word ? address - word : 0, high = std::min<u64>(address + bytes - word, 4);
  return (0xfu << low) & (0xfu >> (4 - high));
}

void report(Warp& warp, const Instruction& in, Problem problem, u32 lane, u64 address, u32 bytes, u16 other_pc, s64 other_block) {
  Finding finding{.problem = problem, .pc = warp.block->pc_of(in), .other_pc = long_pc(other_pc), .block = warp.block->index,
                  .thread = warp.thread(lane), .address = address, .bytes = bytes};
  finding.other_block = other_block;
  warp.block->note(finding);
}

// The usual read: whole words that no other block wrote. False, with nothing done to that word, for anything else.
inline bool read_whole(const Buffer& buffer, u64 address, u32 bytes, u32 me, u16 pc) {
  if ((address | bytes) & 3) return false;
  GlobalWord* word = buffer.shadow + ((address >> 2) - (buffer.address >> 2));
  for (const GlobalWord* end = word + bytes / 4; word != end; ++word) {
    const u32 writer = __atomic_load_n(&word->writer, __ATOMIC_RELAXED) & kBlock;
    if (writer != 0 && writer != me) return false;
    const u32 reader = __atomic_load_n(&word->reader, __ATOMIC_RELAXED);
    if (reader == 0) {
      __atomic_store_n(&word->reader, me | 15u << kBlockBits, __ATOMIC_RELAXED);
      word->read_pc = pc;
    } else if (mask_of(reader) != 15) {
      return false;
    } else if ((reader & kBlock) != me && !(reader & kMany)) {
      __atomic_store_n(&word->reader, reader | kMany, __ATOMIC_RELAXED);
    }
  }
  return true;
}

}  // namespace

GlobalShadow::GlobalShadow(Launch& launch) : released_(static_cast<std::size_t>(launch.blocks())) {
  const bool fits = launch.blocks() < kBlock;
  for (Buffer& buffer : launch.buffers) {
    const u64 words = ((buffer.address & 3) + buffer.size + 3) / 4;
    // calloc: pages that the kernel does not touch cost nothing.
    maps_.emplace_back(fits ? static_cast<GlobalWord*>(std::calloc(std::max<u64>(words, 1), sizeof(GlobalWord))) : nullptr);
    buffer.shadow = maps_.back().get();
  }
}

GlobalShadow::Place GlobalShadow::place(Warp& warp, const Instruction& in, u64 address, u32 bytes) const {
  const Buffer* buffer = warp.block->last_buffer[static_cast<std::size_t>(warp.block->pc_of(in))];
  if (!buffer || address < buffer->address || address + bytes > buffer->address + buffer->size) buffer = warp.block->find(address, bytes);
  if (!buffer || !buffer->shadow) return {buffer, nullptr, 0};
  return {buffer, buffer->shadow, (address >> 2) - (buffer->address >> 2)};
}

bool GlobalShadow::ordered(const Warp& warp, u32 other) const {
  return warp.block->acquired && __atomic_load_n(&released_[other - 1], __ATOMIC_RELAXED);
}

void GlobalShadow::check_written(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes, const Place& at) const {
  if (!at.buffer->uninitialised) return;
  for (u64 i = 0; i <= ((address & 3) + bytes - 1) / 4; ++i) {
    const u32 mask = bytes_in_word(address, bytes, i);
    if (mask & ~(at.words[at.first + i].writer >> 28))
      return report(warp, in, Problem::uninitialised_global, lane, address, bytes, kUnknownPc, -1);
  }
}

void GlobalShadow::read(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes) {
  const Place at = place(warp, in, address, bytes);
  if (!at.words) return;
  check_written(warp, in, lane, address, bytes, at);
  const u32 me = static_cast<u32>(warp.block->index) + 1;
  bool reported = false;
  for (u64 i = 0; i <= ((address & 3) + bytes - 1) / 4; ++i) {
    GlobalWord& word = at.words[at.first + i];
    const u32 mask = bytes_in_word(address, bytes, i);
    const u32 writer = __atomic_load_n(&word.writer, __ATOMIC_RELAXED), other = writer & kBlock;
    if (!reported && other && other != me && (mask_of(writer) & mask) && !ordered(warp, other)) {
      report(warp, in, Problem::global_race, lane, address, bytes, word.write_pc, s64{other} - 1);
      reported = true;
    }
    const u32 reader = __atomic_load_n(&word.reader, __ATOMIC_RELAXED);
    if ((reader & kBlock) == 0) {
      __atomic_store_n(&word.reader, me | mask << kBlockBits, __ATOMIC_RELAXED);
      word.read_pc = short_pc(warp.block->pc_of(in));
    } else if ((reader & kBlock) == me) {
      if (mask & ~mask_of(reader) && !(reader & kMany)) __atomic_store_n(&word.reader, reader | mask << kBlockBits, __ATOMIC_RELAXED);
    } else if (mask_of(reader) == mask && !(reader & kMany)) {
      __atomic_store_n(&word.reader, reader | kMany, __ATOMIC_RELAXED);
    }
  }
}

void GlobalShadow::read_lanes(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) {
  const Buffer* buffer = warp.block->last_buffer[static_cast<std::size_t>(warp.block->pc_of(in))];
  if (buffer && (!buffer->shadow || buffer->uninitialised)) buffer = nullptr;
  const u32 me = static_cast<u32>(warp.block->index) + 1;
  const u16 pc = short_pc(warp.block->pc_of(in));
  PTX_FOR_EACH_LANE(lane, mask) {
    const u64 address = addresses[lane];
    const bool inside = buffer && address >= buffer->address && address + bytes <= buffer->address + buffer->size;
    if (inside && read_whole(*buffer, address, bytes, me, pc)) continue;
    read(warp, in, lane, address, bytes);
  }
}

void GlobalShadow::write(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes, bool changes) {
  const Place at = place(warp, in, address, bytes);
  if (!at.words) return;
  const u32 me = static_cast<u32>(warp.block->index) + 1;
  bool reported = false;
  for (u64 i = 0; i <= ((address & 3) + bytes - 1) / 4; ++i) {
    GlobalWord& word = at.words[at.first + i];
    const u32 mask = bytes_in_word(address, bytes, i);
    const u32 writer = __atomic_load_n(&word.writer, __ATOMIC_RELAXED), other = writer & kBlock;
    const u32 ever = writer >> 28 | mask;
    if (!changes) {  // harmless beside another block's store of the same bytes, or any read
      __atomic_store_n(&word.writer, (writer & 0x0fffffffu) | ever << 28, __ATOMIC_RELAXED);
      continue;
    }
    const u32 reader = __atomic_load_n(&word.reader, __ATOMIC_RELAXED), first = reader & kBlock;
    if (!reported && other && other != me && (mask_of(writer) & mask) && !ordered(warp, other)) {
      report(warp, in, Problem::global_race, lane, address, bytes, word.write_pc, s64{other} - 1);
      reported = true;
    } else if (!reported && first && (mask_of(reader) & mask) && (first != me ? !ordered(warp, first) : (reader & kMany) && !warp.block->acquired)) {
      report(warp, in, Problem::global_race, lane, address, bytes, word.read_pc, first != me ? s64{first} - 1 : -1);
      reported = true;
    }
    const u32 mine = other == me ? mask | mask_of(writer) : mask;
    __atomic_store_n(&word.writer, me | mine << kBlockBits | ever << 28, __ATOMIC_RELAXED);
    word.write_pc = short_pc(warp.block->pc_of(in));
  }
}

void GlobalShadow::strong(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes, bool is_write, bool is_read) {
  const Place at = place(warp, in, address, bytes);
  if (!at.words) return;
  if (is_read) check_written(warp, in, lane, address, bytes, at);
  if (!is_write) return;
  const u32 me = static_cast<u32>(warp.block->index) + 1;
  for (u64 i = 0; i <= ((address & 3) + bytes - 1) / 4; ++i) {
    GlobalWord& word = at.words[at.first + i];
    const u32 mask = bytes_in_word(address, bytes, i);
    const u32 writer = __atomic_load_n(&word.writer, __ATOMIC_RELAXED), other = writer & kBlock;
    if (other && other != me && (mask_of(writer) & mask) && !ordered(warp, other))
      report(warp, in, Problem::global_race, lane, address, bytes, word.write_pc, s64{other} - 1);
    __atomic_fetch_or(&word.writer, mask << 28, __ATOMIC_RELAXED);
  }
}

}  // namespace workbench::ptx
