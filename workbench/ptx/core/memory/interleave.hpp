// Moves vectors of two or four words between memory, where a lane's words are adjacent, and
// registers, where the lanes' words are adjacent. Transposes four lanes at a time.
#pragma once
#ifdef __AVX__
#include <immintrin.h>
#endif

#include "types.hpp"

namespace workbench::ptx {

using Words = u32 __attribute__((vector_size(16)));

template <class T>
inline Words words_at(const T* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

// Two words of each of two lanes.
inline Words two_pairs(const u8* a, const u8* b) {
  u64 pairs[2];
  std::memcpy(&pairs[0], a, 8), std::memcpy(&pairs[1], b, 8);
  return words_at(pairs);
}

inline void transpose(Words (&rows)[4]) {
  const Words low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5),
              high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7),
              low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5),
              high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

// Stores one word of eight lanes at once: after two stores, the next read of a whole register
// vector would stall.
inline void put_eight(u32* to, Words first, Words second) {
#ifdef __AVX__
  const __m256i both =
      _mm256_set_m128i(reinterpret_cast<__m128i>(second), reinterpret_cast<__m128i>(first));
  std::memcpy(to, &both, sizeof both);
#else
  std::memcpy(to, &first, sizeof first), std::memcpy(to + 4, &second, sizeof second);
#endif
}

// Loads. from(lane): the address of a lane's words; to[i]: the register of word i.
template <class F>
inline void gather_quads(F from, u32* const* to) {
  for (u32 lane = 0; lane < kLanes; lane += 8) {
    Words low[4] = {words_at(from(lane)), words_at(from(lane + 1)), words_at(from(lane + 2)),
                    words_at(from(lane + 3))};
    Words high[4] = {words_at(from(lane + 4)), words_at(from(lane + 5)), words_at(from(lane + 6)),
                     words_at(from(lane + 7))};
    transpose(low), transpose(high);
#pragma GCC unroll 4
    for (u32 i = 0; i < 4; ++i) put_eight(to[i] + lane, low[i], high[i]);
  }
}

template <class F>
inline void gather_pairs(F from, u32* const* to) {
  for (u32 lane = 0; lane < kLanes; lane += 8) {
    Words even[2], odd[2];
    for (u32 half = 0; half < 2; ++half) {
      const u32 begin = lane + 4 * half;
      const Words first = two_pairs(from(begin), from(begin + 1)),
                  second = two_pairs(from(begin + 2), from(begin + 3));
      even[half] = __builtin_shufflevector(first, second, 0, 2, 4, 6);
      odd[half] = __builtin_shufflevector(first, second, 1, 3, 5, 7);
    }
    put_eight(to[0] + lane, even[0], even[1]), put_eight(to[1] + lane, odd[0], odd[1]);
  }
}

// Stores. A lane's words go to to(lane), one lane after the other.
template <class F>
inline void scatter_quads(const u32* const* from, F to) {
  for (u32 lane = 0; lane < kLanes; lane += 4) {
    Words rows[4] = {words_at(from[0] + lane), words_at(from[1] + lane), words_at(from[2] + lane),
                     words_at(from[3] + lane)};
    transpose(rows);
#pragma GCC unroll 4
    for (u32 i = 0; i < 4; ++i) std::memcpy(to(lane + i), &rows[i], sizeof rows[i]);
  }
}

template <class F>
inline void scatter_pairs(const u32* const* from, F to) {
  for (u32 lane = 0; lane < kLanes; lane += 4) {
    const Words even = words_at(from[0] + lane), odd = words_at(from[1] + lane);
    const Words pairs[2] = {__builtin_shufflevector(even, odd, 0, 4, 1, 5),
                            __builtin_shufflevector(even, odd, 2, 6, 3, 7)};
    for (u32 i = 0; i < 4; ++i)
      std::memcpy(to(lane + i), reinterpret_cast<const u8*>(pairs) + 8 * i, 8);
  }
}

}  // namespace workbench::ptx
