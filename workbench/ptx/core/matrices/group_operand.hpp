// The operands of wgmma in shared memory: their layout, and gathering them into contiguous rows.
#pragma once
#include "matrices/tiles.hpp"
#include "memory/access.hpp"
#include "memory/tensor_map.hpp"

namespace workbench::ptx::wgmma {

// Bytes of a row of K; bytes that are contiguous in shared memory.
constexpr u32 kRowBytes = 32, kChunk = 16;
constexpr u32 kSwizzleBytes =
    1024;  // the period of every swizzle: none moves a byte out of its 1024

constexpr u32 kAtomsOf32 = 4;  // Descriptor::mode

// A matrix descriptor: the positions of the 16-byte chunks of an operand.
struct Descriptor {
  u32 start, leading, stride, base;
  u32 mode;  // wgmma's four modes; then 128 bytes in atoms of 32, which only tcgen05 has

  explicit Descriptor(u64 bits = 0)
      : start(field(bits, 0)),
        leading(field(bits, 16)),
        stride(field(bits, 32)),
        base(static_cast<u32>(bits >> 49 & 7)),
        mode(static_cast<u32>(bits >> 62)) {}
  static u32 field(u64 bits, u32 from) { return static_cast<u32>(bits >> from & 0x3fff) << 4; }

  // Whether the base offset moves the pattern of a swizzle. Without a swizzle it has no meaning,
  // but Triton sets it all the same.
  bool moves_pattern() const { return base && mode; }
  u32 width_bits() const {  // log2 of the number of chunks in an atom's row
    static constexpr u32 bits[] = {0, 3, 2, 1, 3};
    return bits[mode];
  }
  u32 width() const { return 1u << width_bits(); }
  u32 depth_bits() const { return mode == kAtomsOf32 ? 2 : 3; }  // log2 of an atom's depth along K
  const Swizzle& swizzle() const {
    static constexpr u32 numbers[] = {0, 3, 2, 1, kSwizzleIn32};
    return kSwizzles[numbers[mode]];
  }
  u32 placed(u32 offset) const { return swizzle()(start + offset); }
  // The offset of chunk `chunk` (0 or 1) along K in row `row` of M or N.
  u32 along_k(u32 row, u32 chunk) const {
    return placed(row / 8 * stride + row % 8 * 16 * width() + chunk * (mode ? 16 : leading));
  }
  // The offset of chunk `chunk` along M or N, at `k`.
  u32 along_rows(u32 chunk, u32 k) const {
    if (mode == 0) return placed(chunk * stride + k % 8 * 16 + k / 8 * leading);
    const u32 column = chunk & (width() - 1), row = k & ((1u << depth_bits()) - 1);
    return placed(16 * (column + row * width()) + (chunk >> width_bits()) * leading +
                  (k >> depth_bits()) * stride);
  }
};

struct Operand {
  Descriptor from;
  bool transposed;
  u32 first, rows;  // rows along M or N

  u32 chunks() const { return rows * kRowBytes / kChunk; }
  u32 offset(u32 chunk) const {
    return transposed ? from.along_rows(first / 8 + chunk % (rows / 8), chunk / (rows / 8))
                      : from.along_k(first + chunk / 2, chunk % 2);
  }
};

// Whether an operand is certainly inside shared memory, in a layout that for_each_chunk supports;
// nearly always true.
inline bool is_regular(const Operand& operand, u32 shared_bytes) {
  const Descriptor& from = operand.from;
  const u64 eights = operand.first / 8 + operand.rows / 8;
  if (!operand.transposed)
    return from.start + eights * from.stride + from.leading + 2 * kSwizzleBytes < shared_bytes;
  return from.mode && from.leading % kSwizzleBytes == 0 &&
         from.start + eights / from.width() * from.leading + from.stride + 2 * kSwizzleBytes <
             shared_bytes;
}

// Calls visit(which, chunk) for the chunks of a regular operand, in the order of Operand::offset.
template <class F>
[[gnu::always_inline]] inline void for_each_row(const Operand& operand, const u8* shared, F visit) {
  const Descriptor from = operand.from;
  const Swizzle swizzle = from.swizzle();
  const u32 pitch = 16 * from.width(), further = from.mode ? kChunk : from.leading;
  u32 places[8][2];
  for (u32 eight = 0; eight < operand.rows / 8; ++eight) {
    const u32 first = operand.first / 8 + eight;
    if (eight == 0 || from.stride % kSwizzleBytes) {
      for (u32 row = 0; row < 8; ++row) {
        const u32 address = from.start + first * from.stride + row * pitch;
        places[row][0] = swizzle(address);
        places[row][1] = swizzle(address + further);
      }
    }
    const u8* at = shared + (from.stride % kSwizzleBytes ? 0 : eight * from.stride);
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) {
      visit(16 * eight + 2 * row, at + places[row][0]);
      visit(16 * eight + 2 * row + 1, at + places[row][1]);
    }
  }
}

template <class F>
[[gnu::always_inline]] inline void for_each_column(const Operand& operand, const u8* shared,
                                                   F visit) {
  const Descriptor from = operand.from;
  const u32 width = from.width(), bits = from.width_bits();
  const u32 eights = operand.rows / 8, first = operand.first / 8;
  for (u32 k = 0; k < operand.chunks() / eights; ++k) {
    u32 places[8];  // offsets of the chunks of an atom's row, which repeat after it
    for (u32 i = 0; i < width; ++i) places[i] = from.along_rows(i, k);
    for (u32 i = 0; i < eights; ++i)
      visit(k * eights + i,
            shared + places[(first + i) & (width - 1)] + ((first + i) >> bits) * from.leading);
  }
}

template <class F>
[[gnu::always_inline]] inline void for_each_chunk(const Operand& operand, const u8* shared,
                                                  F visit) {
  if (operand.transposed)
    for_each_column(operand, shared, visit);
  else
    for_each_row(operand, shared, visit);
}

inline void gather_regular(const Operand& operand, const u8* shared, u8* out) {
  for_each_chunk(operand, shared, [&](u32 which, const u8* chunk) __attribute__((always_inline)) {
    std::memcpy(out + which * kChunk, chunk, kChunk);
  });
}

// Whether a regular operand equals the one that was gathered before.
inline bool is_unchanged(const Operand& operand, const u8* shared, const u8* gathered) {
  Halves differing = {};
  for_each_chunk(operand, shared, [&](u32 which, const u8* chunk) __attribute__((always_inline)) {
    Halves now, before;
    std::memcpy(&now, chunk, kChunk), std::memcpy(&before, gathered + which * kChunk, kChunk);
    differing |= now ^ before;
  });
  constexpr u8 none[kChunk] = {};
  return std::memcmp(&differing, none, kChunk) == 0;
}

// Copies an operand's chunks to `out`: by rows of 32 bytes, or, if transposed, by K.
inline bool gather(Warp& warp, const Instruction& in, const Operand& operand, u8* out) {
  const u32 size = warp.block->launch->shared_bytes;
  if (is_regular(operand, size)) {
    gather_regular(operand, warp.block->shared, out);
    return true;
  }
  for (u32 chunk = 0; chunk < operand.chunks(); ++chunk) {
    const u32 offset = operand.offset(chunk);
    if (offset + kChunk > size) {
      warp.block->problem(Problem::shared_out_of_bounds, in, warp.thread(0), offset, kChunk);
      return false;
    }
    std::memcpy(out + chunk * kChunk, warp.block->shared + offset, kChunk);
  }
  return true;
}

// Reports an operand that a tensor copy wrote in another swizzle than the descriptor's. The
// hardware does not fail then, but the result is wrong.
inline bool is_swizzled_otherwise(Warp& warp, const Instruction& in, const Descriptor& from,
                                  u32 offset, Problem problem) {
  const u8 written = warp.block->shadow->swizzle_at(warp, offset);
  const Swizzle& read = from.swizzle();
  if (written == Shadow::kNoSwizzle || kSwizzles[written].bits == read.bits) return false;
  const auto name = [](const Swizzle& swizzle) {
    return std::to_string(swizzle.span) +
           (swizzle.atom == kChunk ? "" : " in atoms of " + std::to_string(swizzle.atom));
  };
  warp.block->problem(problem, in, warp.thread(0), 0, 0,
                      "a matrix descriptor with a swizzle of " + name(read) +
                          " bytes, for a tile at offset " + std::to_string(offset) +
                          " that a tensor copy wrote with one of " + name(kSwizzles[written]));
  return true;
}

}  // namespace workbench::ptx::wgmma
