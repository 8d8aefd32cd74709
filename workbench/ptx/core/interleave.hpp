// Vectors of two or four words between memory, where the words of a lane are neighbours, and
// registers, where those of the lanes are. Four lanes at a time, whose words are transposed.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

using Words = u32 __attribute__((vector_size(16)));

template <class T>
inline Words words_at(const T* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

// The words of two lanes, two of each.
inline Words two_pairs(const u8* a, const u8* b) {
  u64 pairs[2];
  std::memcpy(&pairs[0], a, 8), std::memcpy(&pairs[1], b, 8);
  return words_at(pairs);
}

inline void transpose(Words (&rows)[4]) {
  const Words low01 = __builtin_shuffle(rows[0], rows[1], Words{0, 4, 1, 5}),
              high01 = __builtin_shuffle(rows[0], rows[1], Words{2, 6, 3, 7}),
              low23 = __builtin_shuffle(rows[2], rows[3], Words{0, 4, 1, 5}),
              high23 = __builtin_shuffle(rows[2], rows[3], Words{2, 6, 3, 7});
  rows[0] = __builtin_shuffle(low01, low23, Words{0, 1, 4, 5});
  rows[1] = __builtin_shuffle(low01, low23, Words{2, 3, 6, 7});
  rows[2] = __builtin_shuffle(high01, high23, Words{0, 1, 4, 5});
  rows[3] = __builtin_shuffle(high01, high23, Words{2, 3, 6, 7});
}

// `from(lane)`: where the words of a lane are; to[i]: the register of word i.
template <class F>
inline void gather_quads(F from, u32* const* to) {
  for (u32 lane = 0; lane < kLanes; lane += 4) {
    Words rows[4] = {words_at(from(lane)), words_at(from(lane + 1)), words_at(from(lane + 2)),
                     words_at(from(lane + 3))};
    transpose(rows);
    for (u32 i = 0; i < 4; ++i) std::memcpy(to[i] + lane, &rows[i], sizeof rows[i]);
  }
}

template <class F>
inline void gather_pairs(F from, u32* const* to) {
  for (u32 lane = 0; lane < kLanes; lane += 4) {
    const Words first = two_pairs(from(lane), from(lane + 1)),
                second = two_pairs(from(lane + 2), from(lane + 3));
    const Words even = __builtin_shuffle(first, second, Words{0, 2, 4, 6}),
                odd = __builtin_shuffle(first, second, Words{1, 3, 5, 7});
    std::memcpy(to[0] + lane, &even, sizeof even), std::memcpy(to[1] + lane, &odd, sizeof odd);
  }
}

// The other way round. A lane's words go to to(lane), those of lanes one after the other.
template <class F>
inline void scatter_quads(const u32* const* from, F to) {
  for (u32 lane = 0; lane < kLanes; lane += 4) {
    Words rows[4] = {words_at(from[0] + lane), words_at(from[1] + lane), words_at(from[2] + lane),
                     words_at(from[3] + lane)};
    transpose(rows);
    for (u32 i = 0; i < 4; ++i) std::memcpy(to(lane + i), &rows[i], sizeof rows[i]);
  }
}

template <class F>
inline void scatter_pairs(const u32* const* from, F to) {
  for (u32 lane = 0; lane < kLanes; lane += 4) {
    const Words even = words_at(from[0] + lane), odd = words_at(from[1] + lane);
    const Words pairs[2] = {__builtin_shuffle(even, odd, Words{0, 4, 1, 5}),
                            __builtin_shuffle(even, odd, Words{2, 6, 3, 7})};
    for (u32 i = 0; i < 4; ++i)
      std::memcpy(to(lane + i), reinterpret_cast<const u8*>(pairs) + 8 * i, 8);
  }
}

}  // namespace workbench::ptx
