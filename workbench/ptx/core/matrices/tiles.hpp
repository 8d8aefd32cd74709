// Vectors of eight, and narrow factors widened to f32: the basis of all matrix products.
#pragma once
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "arithmetic/half.hpp"
#include "matrices/small_float.hpp"
#include "warp.hpp"

namespace workbench::ptx {

typedef f32 Row __attribute__((vector_size(32)));  // eight columns of the result
typedef u32 Words __attribute__((vector_size(32)));
typedef u16 Halves __attribute__((vector_size(16)));

// to_f32 of half.hpp for eight values: the compiler does not vectorise it by itself.
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
// Needs F16C too. Without this branch the compiler would widen in two parts.
#ifdef __AVX2__
  if constexpr (std::is_same_v<T, Half>)
    return reinterpret_cast<Row>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(from)));
  else
    return reinterpret_cast<Row>(widen(
        reinterpret_cast<Words>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(from))), T{}));
#else
  return reinterpret_cast<Row>(widen(__builtin_convertvector(from, Words), T{}));
#endif
}

// Transposes a tile.
inline void transpose(Halves (&tile)[8]) {
  typedef u32 Pairs __attribute__((vector_size(16)));
  typedef u64 Fours __attribute__((vector_size(16)));
  Pairs pairs[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = reinterpret_cast<Pairs>(
        __builtin_shufflevector(tile[2 * i], tile[2 * i + 1], 0, 8, 1, 9, 2, 10, 3, 11));
    pairs[2 * i + 1] = reinterpret_cast<Pairs>(
        __builtin_shufflevector(tile[2 * i], tile[2 * i + 1], 4, 12, 5, 13, 6, 14, 7, 15));
  }
  Fours fours[8];
#pragma GCC unroll 4
  for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 4
    for (int half = 0; half < 2; ++half) {
      const Pairs a = pairs[4 * i + half], b = pairs[4 * i + 2 + half];
      fours[4 * i + 2 * half] = reinterpret_cast<Fours>(__builtin_shufflevector(a, b, 0, 4, 1, 5));
      fours[4 * i + 2 * half + 1] =
          reinterpret_cast<Fours>(__builtin_shufflevector(a, b, 2, 6, 3, 7));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    tile[2 * i] = reinterpret_cast<Halves>(__builtin_shufflevector(fours[i], fours[4 + i], 0, 2));
    tile[2 * i + 1] =
        reinterpret_cast<Halves>(__builtin_shufflevector(fours[i], fours[4 + i], 1, 3));
  }
}

// ---- 32 bytes of factors as vectors of eight 16-bit values, which can be transposed, then as f32
// ----

constexpr u32 kSpreadBytes = 32;

template <class T>
struct Factors {  // Half and Bfloat
  static constexpr u32 kBytes = 2;
  static void spread(const u8* from, Halves* eights) { std::memcpy(eights, from, kSpreadBytes); }
  static Row values(Halves eight) { return widen_eight<T>(eight); }
};

typedef u8 Bytes __attribute__((vector_size(32)));
typedef s8 SignedBytes __attribute__((vector_size(32)));
typedef s16 SignedHalves __attribute__((vector_size(16)));

inline Bytes load_bytes(const u8* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Joins low and high bytes to 16 bits each. The shuffles stay within 16 bytes, where each is a
// single instruction.
inline void join(Bytes low, Bytes high, Halves* eights) {
  const Bytes even =
      __builtin_shufflevector(low, high, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,  //
                              16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55);
  const Bytes odd = __builtin_shufflevector(
      low, high, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47,  //
      24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
  Halves parts[2][2];
  std::memcpy(parts[0], &even, sizeof even), std::memcpy(parts[1], &odd, sizeof odd);
  for (u32 i = 0; i < 4; ++i) eights[i] = parts[i % 2][i / 2];
}

// Converts to f16 with the exponent moved by 8: exact, also for subnormals. All ones are NaN.
template <>
struct Factors<E4M3> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) {
    const Bytes code = load_bytes(from), size = code & 0x7f,
                nan = reinterpret_cast<Bytes>(size == 0x7f);
    join(~nan & size << 7, ((code & 0x80) | size >> 1) ^ (nan & 0x41), eights);
  }
  static Row values(Halves eight) { return widen_eight<Half>(eight) * 256.0f; }
};

template <>
struct Factors<E5M2> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) { join(Bytes{}, load_bytes(from), eights); }
  static Row values(Halves eight) { return widen_eight<Half>(eight); }
};

// The smaller formats, one in each byte, as f16 with the exponent moved. Other bits of the byte are
// ignored.
template <>
struct Factors<E3M2> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) {
    const Bytes code = load_bytes(from);
    join(Bytes{}, (code & 0x20) << 2 | (code & 0x1f), eights);
  }
  static Row values(Halves eight) { return widen_eight<Half>(eight) * 0x1p12f; }
};

template <>
struct Factors<E2M3> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) {
    const Bytes code = load_bytes(from);
    join(code << 7, (code & 0x20) << 2 | (code & 0x1f) >> 1, eights);
  }
  static Row values(Halves eight) { return widen_eight<Half>(eight) * 0x1p14f; }
};

// In the middle of the byte.
template <>
struct Factors<E2M1> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) {
    const Bytes code = load_bytes(from);
    join(Bytes{}, (code & 0x20) << 2 | (code & 0x1c) >> 1, eights);
  }
  static Row values(Halves eight) { return widen_eight<Half>(eight) * 0x1p14f; }
};

template <>
struct Factors<u8> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) { join(load_bytes(from), Bytes{}, eights); }
  static Row values(Halves eight) { return __builtin_convertvector(eight, Row); }
};

template <>
struct Factors<s8> {
  static constexpr u32 kBytes = 1;
  static void spread(const u8* from, Halves* eights) {
    const Bytes code = load_bytes(from);
    join(code, reinterpret_cast<Bytes>(reinterpret_cast<SignedBytes>(code) < 0), eights);
  }
  static Row values(Halves eight) {
    return __builtin_convertvector(reinterpret_cast<SignedHalves>(eight), Row);
  }
};

// An f32 whose low 13 bits are ignored.
struct Tf32 {};

template <class T>
constexpr u32 kParts = 2 / Factors<T>::kBytes;  // vectors of eight in 16 bytes

// Loads a register of a fragment: eight rows, or columns, with 16 bytes along K each.
template <class T>
inline void spread_register(const u8* from, Halves (&eights)[8][kParts<T>]) {
#pragma GCC unroll 4
  for (u32 pair = 0; pair < 4; ++pair)
    Factors<T>::spread(from + kSpreadBytes * pair, eights[2 * pair]);
}

// ---- an 8 x 8 tile of sums: two registers hold its even and its odd columns ----

inline void read_tile(const u8* even_register, const u8* odd_register, Row* rows) {
  const Row* evens = reinterpret_cast<const Row*>(even_register);
  const Row* odds = reinterpret_cast<const Row*>(odd_register);
#pragma GCC unroll 4
  for (int pair = 0; pair < 4; ++pair) {
    rows[2 * pair] = __builtin_shufflevector(evens[pair], odds[pair], 0, 8, 1, 9, 2, 10, 3, 11);
    rows[2 * pair + 1] =
        __builtin_shufflevector(evens[pair], odds[pair], 4, 12, 5, 13, 6, 14, 7, 15);
  }
}

inline void split_tile(const Row* rows, Row* evens, Row* odds) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 4; ++pair) {
    evens[pair] =
        __builtin_shufflevector(rows[2 * pair], rows[2 * pair + 1], 0, 2, 4, 6, 8, 10, 12, 14);
    odds[pair] =
        __builtin_shufflevector(rows[2 * pair], rows[2 * pair + 1], 1, 3, 5, 7, 9, 11, 13, 15);
  }
}

// sums[8] += a[8][Depth] * b[Depth], one K after the other. Every loop over the sums is unrolled,
// so that they stay in registers.
template <u32 Depth>
[[gnu::always_inline]] inline void multiply_rows(const f32* a, const Row* b, Row (&sums)[8]) {
#pragma GCC unroll 4
  for (u32 k = 0; k < Depth; ++k) {
    const Row line = b[k];
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) sums[row] += a[row * Depth + k] * line;
  }
}

// Loads B of a fragment as rows of columns.
template <class T, u32 Steps>
inline void widen_columns(const u8* const* registers, Row* b) {
  Halves eights[8][kParts<T>], tile[8];
  for (u32 step = 0; step < Steps; ++step) {
    spread_register<T>(registers[step], eights);
    for (u32 part = 0; part < kParts<T>; ++part) {
#pragma GCC unroll 8
      for (u32 n = 0; n < 8; ++n) tile[n] = eights[n][part];
      transpose(tile);
#pragma GCC unroll 8
      for (u32 k = 0; k < 8; ++k) *b++ = Factors<T>::values(tile[k]);
    }
  }
}

// Loads eight rows of A as a[8][Steps * 16 / bytes].
template <class T, u32 Steps>
inline void widen_rows(const u8* const* registers, f32* a) {
  Halves eights[8][kParts<T>];
  for (u32 step = 0; step < Steps; ++step) {
    spread_register<T>(registers[step], eights);
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) {
      for (u32 part = 0; part < kParts<T>; ++part) {
        const Row values = Factors<T>::values(eights[row][part]);
        std::memcpy(a + 8 * ((row * Steps + step) * kParts<T> + part), &values, sizeof values);
      }
    }
  }
}

// One half of a fragment's sums: f32 in two registers, or f16 in one.
template <class Sum>
[[gnu::always_inline]] inline void read_sums(u8* registers, const u32* slots, u32 half, Row* rows) {
  if constexpr (std::is_same_v<Sum, f32>) {
    read_tile(registers + slots[2 * half], registers + slots[2 * half + 1], rows);
  } else {
    Halves eights[8][1];
    spread_register<Half>(registers + slots[half], eights);
    for (u32 row = 0; row < 8; ++row) rows[row] = Factors<Half>::values(eights[row][0]);
  }
}

template <class Sum>
[[gnu::always_inline]] inline void write_sums(u8* registers, const u32* slots, u32 half, u32 mask,
                                              const Row* rows) {
  if constexpr (std::is_same_v<Sum, f32>) {
    if (mask == kAllLanes)
      return split_tile(rows, at<Row>(registers, slots[2 * half]),
                        at<Row>(registers, slots[2 * half + 1]));
    alignas(64) Row parts[2][4];
    split_tile(rows, parts[0], parts[1]);
    for (u32 part = 0; part < 2; ++part)
      blend(at<f32>(registers, slots[2 * half + part]), reinterpret_cast<const f32*>(parts[part]),
            mask);
  } else {
    const f32* values = reinterpret_cast<const f32*>(rows);
    alignas(64) Half out[64];
    for (int i = 0; i < 64; ++i) out[i] = to_half(values[i]);
    write_lanes(registers, slots[half], mask, reinterpret_cast<const u32*>(out));
  }
}

// D[16][8] = A * B + C, in `Steps` steps of 16 bytes of K. Products of 16-bit and 8-bit factors are
// exact in f32, so a fused multiply-add equals a multiplication followed by an addition. D may
// overlap A, B and C: everything is read before anything is written.
template <class A, class B, u32 Steps, class D, class C>
void multiply_add(u8* registers, const Instruction& in, u32 mask, Warp&) {
  constexpr u32 depth = 16 / Factors<A>::kBytes * Steps;
  alignas(64) Row b[depth], first[8];
  alignas(64) f32 a[8 * depth];
  const u8* right[2] = {registers + in.product.b[0], registers + in.product.b[Steps - 1]};
  widen_columns<B, Steps>(right, b);
  Row sums[8];
#pragma GCC unroll 2
  for (u32 half = 0; half < 2; ++half) {
    const u8* left[2] = {registers + in.product.a[half],
                         registers + in.product.a[half + 2 * (Steps - 1)]};
    widen_rows<A, Steps>(left, a);
    read_sums<C>(registers, in.product.c, half, sums);
    multiply_rows<depth>(a, b, sums);
#pragma GCC unroll 8
    for (u32 row = 0; half == 0 && row < 8; ++row) first[row] = sums[row];
  }
  write_sums<D>(registers, in.product.d, 1, mask, sums);
  write_sums<D>(registers, in.product.d, 0, mask, first);
}

}  // namespace workbench::ptx
