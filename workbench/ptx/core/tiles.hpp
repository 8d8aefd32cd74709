// Vectors of eight, and 16-bit factors widened to f32: what products of matrices are made of.
#pragma once
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "half.hpp"

namespace workbench::ptx {

typedef f32 Row __attribute__((vector_size(32)));  // eight columns of the result
typedef u32 Words __attribute__((vector_size(32)));
typedef u16 Halves __attribute__((vector_size(16)));

// to_f32 of half.hpp, eight at a time: the compiler does not find these vectors by itself.
inline Words widen(Words bits, Half) {
  const Words magnitude = (bits & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
  const Words special = exponent == 0x0f800000u, tiny = exponent == 0u;
  const Words normal = magnitude + (112u << 23) + (special & (112u << 23));
  const Row subnormal = reinterpret_cast<Row>(magnitude + (113u << 23)) - 0x1p-14f;
  return (tiny & reinterpret_cast<Words>(subnormal)) | (~tiny & normal) | (bits & 0x8000u) << 16;
}

inline Words widen(Words bits, Bfloat) { return bits << 16; }

template <class T>
inline Row widen_eight(Halves from) {
#ifdef __F16C__
  if constexpr (std::is_same_v<T, Half>) return reinterpret_cast<Row>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(from)));
#endif
  return reinterpret_cast<Row>(widen(__builtin_convertvector(from, Words), T{}));
}

// Rows become columns.
inline void transpose(Halves (&tile)[8]) {
  typedef u32 Pairs __attribute__((vector_size(16)));
  typedef u64 Fours __attribute__((vector_size(16)));
  Pairs pairs[8];
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = reinterpret_cast<Pairs>(__builtin_shufflevector(tile[2 * i], tile[2 * i + 1], 0, 8, 1, 9, 2, 10, 3, 11));
    pairs[2 * i + 1] = reinterpret_cast<Pairs>(__builtin_shufflevector(tile[2 * i], tile[2 * i + 1], 4, 12, 5, 13, 6, 14, 7, 15));
  }
  Fours fours[8];
  for (int i = 0; i < 2; ++i) {
    for (int half = 0; half < 2; ++half) {
      const Pairs a = pairs[4 * i + half], b = pairs[4 * i + 2 + half];
      fours[4 * i + 2 * half] = reinterpret_cast<Fours>(__builtin_shufflevector(a, b, 0, 4, 1, 5));
      fours[4 * i + 2 * half + 1] = reinterpret_cast<Fours>(__builtin_shufflevector(a, b, 2, 6, 3, 7));
    }
  }
  for (int i = 0; i < 4; ++i) {
    tile[2 * i] = reinterpret_cast<Halves>(__builtin_shufflevector(fours[i], fours[4 + i], 0, 2));
    tile[2 * i + 1] = reinterpret_cast<Halves>(__builtin_shufflevector(fours[i], fours[4 + i], 1, 3));
  }
}

}  // namespace workbench::ptx
