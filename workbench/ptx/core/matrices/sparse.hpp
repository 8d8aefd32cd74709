// Sparse A, which stores half of its elements, with metadata for their positions (PTX ISA, "Sparse
// matrix storage").
//
// Four bits of metadata place two stored units among four; the lower two bits are the position of
// the first. A unit is an element of 16 or 8 bits, two elements of 4 bits, or half an element of
// TF32.
#pragma once
#include <string>

#include "warp.hpp"

namespace workbench::ptx::sparse {

// The allowed values of four bits of metadata, a bit for each of the sixteen.
enum class Allowed : u16 {
  distinct = 0x7bde,    // mma.sp and wgmma.sp: two different places
  ascending = 0x7310,   // mma.sp::ordered_metadata
  one_of_two = 0x4010,  // of TF32: the halves of one element
  tensor = 0x7350       // tcgen05.mma.sp: ascending, and 0b0110
};

constexpr u32 kNone = ~0u;

// The index of the first of `count` groups of four bits that is not allowed, or kNone. CUTLASS'
// compressor writes 0b0000 where all four elements are zero, which is harmless; so a launch that is
// not strict ignores chunks for which is_zero(chunk) holds.
template <class F>
inline u32 first_fault(u32 metadata, u32 count, Allowed allowed, bool strict, F is_zero) {
  for (u32 chunk = 0; chunk < count; ++chunk)
    if (!(static_cast<u32>(allowed) >> (metadata >> 4 * chunk & 15) & 1) &&
        (strict || !is_zero(chunk)))
      return chunk;
  return kNone;
}

// Whether both stored units of a chunk are zero.
template <class Unit>
inline bool is_zero(const u8* stored, u32 chunk) {
  Unit units[2];
  std::memcpy(units, stored + chunk * sizeof units, sizeof units);
  return !(units[0] | units[1]);
}

inline std::string bits_text(u32 four) {
  std::string text = "0b";
  for (u32 bit = 4; bit-- > 0;) text += four >> bit & 1 ? '1' : '0';
  return text;
}

// Describes four bits that are not allowed, and the allowed values. `where` names the metadata; the
// four bits begin at bit `begin`.
inline std::string fault_text(const std::string& where, u32 begin, u32 four, Allowed allowed) {
  std::string text = "bits " + std::to_string(begin) + " to " + std::to_string(begin + 3) + " of " +
                     where + " are " + bits_text(four) + ", where ";
  if (allowed == Allowed::distinct)
    return text +
           "two different places of 2 bits each belong, which 0b0000, 0b0101, 0b1010 and "
           "0b1111 are not";
  u32 rest = static_cast<u32>(allowed);
  while (rest) {
    text += bits_text(static_cast<u32>(__builtin_ctz(rest)));
    rest &= rest - 1;
    text += !rest ? " belongs" : rest & (rest - 1) ? ", " : " or ";
  }
  return text;
}

inline std::string place_in_lane(u32 lane) {
  return "the metadata of lane " + std::to_string(lane);
}

// Reports the first of `count` groups of four bits that is not allowed. `metadata` begins with
// them; its first bit is bit `begin` of the word that place() names.
template <class F, class P>
inline void check(Warp& warp, const Instruction& in, u32 lane, u32 metadata, u32 begin, u32 count,
                  Allowed allowed, F is_zero, P place) {
  const u32 fault = first_fault(metadata, count, allowed, warp.block->launch->strict, is_zero);
  if (fault == kNone) return;
  warp.block->problem(Problem::invalid_metadata, in, warp.thread(lane), 0, 0,
                      fault_text(place(), begin + 4 * fault, metadata >> 4 * fault & 15, allowed));
}

// Expands the 16 stored bytes of a row to 32, in units of `Unit`. Metadata has four bits for every
// two units.
template <class Unit>
inline void expand(const u8* stored, u32 metadata, u8* full) {
  constexpr u32 chunks = 8 / sizeof(Unit);
  Unit from[2 * chunks], to[4 * chunks] = {};
  std::memcpy(from, stored, sizeof from);
  for (u32 chunk = 0; chunk < chunks; ++chunk) {
    to[4 * chunk + (metadata >> 4 * chunk & 3)] = from[2 * chunk];
    to[4 * chunk + (metadata >> (4 * chunk + 2) & 3)] = from[2 * chunk + 1];
  }
  std::memcpy(full, to, sizeof to);
}

// The position along K of the stored element `number` of a row, from the four bits of its chunk.
// `in_pairs`: a unit is two elements.
inline u32 place_of(u32 number, u32 four, bool in_pairs) {
  const u32 unit = in_pairs ? number / 2 : number;
  const u32 place = 4 * (unit / 2) + (four >> 2 * (unit % 2) & 3);
  return in_pairs ? 2 * place + number % 2 : place;
}

}  // namespace workbench::ptx::sparse
