// The factors of wgmma, widened to f32, and their products.
#pragma once
#include <memory>
#include <vector>

#include "codes.hpp"
#include "matrices/group_operand.hpp"
#include "matrices/wide.hpp"
#include "processor.hpp"

namespace workbench::ptx {
namespace wgmma {

using Product = WarpGroupProduct;

template <class T>
constexpr u32 kFactorBytes = std::is_same_v<T, Tf32>                                ? 4
                             : std::is_same_v<T, Half> || std::is_same_v<T, Bfloat> ? 2
                                                                                    : 1;
template <class T>
constexpr u32 kDepth = kRowBytes / kFactorBytes<T>;
template <class T>
constexpr bool kHalves = kFactorBytes<T> == 2;

// TF32 ignores the low 13 bits.
inline f32 factor_at(const u8* from) {
  u32 bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits_as<f32>(bits & kTf32Bits);
}

// The order of eight columns: those of a lane's even registers, then those of the odd ones.
constexpr u32 kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

constexpr u32 kAscending[8] = {0, 1, 2, 3, 4, 5, 6, 7};

// Widens the factors of eight rows, in the given order, to to[k * stride]. A row of `from` has 32
// bytes.
template <class T, const u32 (&Order)[8] = kOrder>
void widen_rows(const u8* from, bool negated, Row* to, u32 stride) {
  const Row sign = negated ? Row{} - 1.0f : Row{} + 1.0f;
  if constexpr (!std::is_same_v<T, Tf32>) {
    Halves eights[8][2 * kParts<T>], tile[8];
    for (u32 i = 0; i < 8; ++i) Factors<T>::spread(from + Order[i] * kRowBytes, eights[i]);
    for (u32 part = 0; part < 2 * kParts<T>; ++part) {
      for (u32 i = 0; i < 8; ++i) tile[i] = eights[i][part];
      transpose(tile);
      for (u32 i = 0; i < 8; ++i) to[(8 * part + i) * stride] = Factors<T>::values(tile[i]) * sign;
    }
  } else {
    for (u32 k = 0; k < kDepth<T>; ++k) {
      Row row;
      for (u32 i = 0; i < 8; ++i)
        row[i] = factor_at(from + Order[i] * kRowBytes + k * kFactorBytes<T>);
      to[k * stride] = row * sign;
    }
  }
}

// The same for a chunk of eight rows at each K, `pitch` bytes apart.
template <class T>
void widen_columns(const u8* from, u32 pitch, bool negated, Row* to, u32 stride) {
  const Row sign = negated ? Row{} - 1.0f : Row{} + 1.0f;
  for (u32 k = 0; k < kDepth<T>; ++k) {
    Halves chunk;
    std::memcpy(&chunk, from + k * pitch, kChunk);
    to[k * stride] =
        widen_eight<T>(__builtin_shufflevector(chunk, chunk, 0, 2, 4, 6, 1, 3, 5, 7)) * sign;
  }
}

// B as [k][column / 8], kept from one warp to the next because the four warps of a group use the
// same B.
struct Kept {
  std::vector<u8> raw;
  std::vector<Row> values;
  const Instruction* in = nullptr;
};

}  // namespace wgmma

struct KeptFactors {
  wgmma::Kept entries[8];
};

namespace wgmma {

// `gathered`: the chunks of B, whose `Steps` operands follow each other along K; null where they
// are regular.
template <class T, u32 Steps>
const Row* widen_b(Warp& warp, const Instruction& in, const Operand (&b)[Steps],
                   const u8* gathered) {
  std::shared_ptr<KeptFactors>& kept = warp.block->worker->factors;
  if (!kept) kept = std::make_shared<KeptFactors>();
  Kept& entry = kept->entries[reinterpret_cast<std::uintptr_t>(&in) / sizeof in % 8];
  const u32 bytes = b[0].rows * kRowBytes, eights = b[0].rows / 8, flags = in.group_product.flags;
  const u8* shared = warp.block->shared;
  const auto is_known = [&] {
    if (entry.in != &in || entry.raw.size() != Steps * bytes) return false;
    if (gathered) return std::memcmp(entry.raw.data(), gathered, Steps * bytes) == 0;
    for (u32 step = 0; step < Steps; ++step)
      if (!is_unchanged(b[step], shared, entry.raw.data() + step * bytes)) return false;
    return true;
  };
  if (is_known()) return entry.values.data();
  entry.in = &in;
  entry.raw.resize(Steps * bytes);
  entry.values.resize(std::size_t{Steps * kDepth<T>} * eights);
  if (gathered) std::memcpy(entry.raw.data(), gathered, Steps * bytes);
  for (u32 step = 0; step < Steps; ++step) {
    u8* raw = entry.raw.data() + step * bytes;
    if (!gathered) gather_regular(b[step], shared, raw);
    for (u32 eight = 0; eight < eights; ++eight) {
      Row* to = entry.values.data() + step * kDepth<T> * eights + eight;
      if constexpr (kHalves<T>) {
        if (flags & Product::transpose_b) {
          widen_columns<T>(raw + eight * kChunk, eights * kChunk, flags & Product::negate_b, to,
                           eights);
          continue;
        }
      }
      widen_rows<T>(raw + eight * 8 * kRowBytes, flags & Product::negate_b, to, eights);
    }
  }
  return entry.values.data();
}

inline bool has_wide() {
  static const bool wide = supports_512();
  return wide;
}

#ifdef __AVX2__
// Loads four rows of A, each from its chunk `part` on, as a 512-bit vector.
[[PTX_WIDE_TARGET, gnu::always_inline]] inline __m512i four_rows(const u8* from) {
  __m512i rows = _mm512_castsi128_si512(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  const auto row = [&](u32 i) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(from + i * kRowBytes));
  };
  rows = _mm512_inserti32x4(rows, row(1), 1), rows = _mm512_inserti32x4(rows, row(2), 2);
  return _mm512_inserti32x4(rows, row(3), 3);
}

template <u32 C, class T>
PTX_WIDE void spread_column(const __m512* columns, u32 k, u32 piece, Row (*out)[4]) {
#pragma GCC unroll 4
  for (u32 i = 0; i < wide::kColumns<T>; ++i)
    _mm512_store_ps(reinterpret_cast<f32*>(out[k + C * wide::kColumns<T> + i] + 2 * piece),
                    _mm512_permute_ps(columns[i], 0x55 * C));
}

// widen_a for rows of K, with 512-bit vectors.
template <class T>
[[PTX_WIDE_TARGET]] void widen_a_wide(const u8* raw, bool negated, Row (*out)[kDepth<T>][4]) {
  const f32 scale = (negated ? -1.0f : 1.0f) * wide::kScale<T>;
  for (u32 group = 0; group < wide::kGroups; ++group) {
    for (u32 chunk = 0; chunk < 2; ++chunk) {
      __m512 columns[wide::kColumns<T>];
      wide::split(four_rows(raw + 4 * group * kRowBytes + chunk * kChunk), T{}, columns);
#pragma GCC unroll 4
      for (u32 i = 0; i < wide::kColumns<T>; ++i)
        columns[i] = _mm512_mul_ps(columns[i], _mm512_set1_ps(scale));
      const u32 k = chunk * wide::kDepth<T>, piece = group % 2;
      Row(*half)[4] = out[group / 2];
      spread_column<0, T>(columns, k, piece, half), spread_column<1, T>(columns, k, piece, half);
      spread_column<2, T>(columns, k, piece, half), spread_column<3, T>(columns, k, piece, half);
    }
  }
}
#endif

// Widens A to [half][k][pair of rows]: rows 2p and 2p + 1 of a half, with each value four times.
template <class T>
void widen_a(const u8* raw, u32 flags, Row (*out)[kDepth<T>][4]) {
#ifdef __AVX2__
  if constexpr (!std::is_integral_v<T>)
    if (has_wide() && !(kHalves<T> && flags & Product::transpose_a))
      return widen_a_wide<T>(raw, flags & Product::negate_a, out);
#endif
  alignas(64) Row rows[kDepth<T>];
  for (u32 half = 0; half < 2; ++half) {
    bool done = false;
    if constexpr (kHalves<T>) {
      if (flags & Product::transpose_a)
        widen_columns<T>(raw + half * kChunk, 2 * kChunk, flags & Product::negate_a, rows, 1),
            done = true;
    }
    if (!done) widen_rows<T>(raw + half * 8 * kRowBytes, flags & Product::negate_a, rows, 1);
    for (u32 k = 0; k < kDepth<T>; ++k) {
      const Row r = rows[k];  // rows 0 2 4 6 1 3 5 7
      out[half][k][0] = __builtin_shufflevector(r, r, 0, 0, 0, 0, 4, 4, 4, 4);
      out[half][k][1] = __builtin_shufflevector(r, r, 1, 1, 1, 1, 5, 5, 5, 5);
      out[half][k][2] = __builtin_shufflevector(r, r, 2, 2, 2, 2, 6, 6, 6, 6);
      out[half][k][3] = __builtin_shufflevector(r, r, 3, 3, 3, 3, 7, 7, 7, 7);
    }
  }
}

// Eight columns of eight rows: even[p] has columns 0, 2, 4, 6 of rows 2p and 2p + 1, as a register
// has them. The result may overwrite the sums to which it is added.
template <u32 Depth>
inline void multiply(const Row (*a)[4], const Row* b, u32 eights, const Row* even, const Row* odd,
                     Row* even_sums, Row* odd_sums) {
  Row e0 = even[0], e1 = even[1], e2 = even[2], e3 = even[3], o0 = odd[0], o1 = odd[1], o2 = odd[2],
      o3 = odd[3];
#pragma GCC unroll 2
  for (u32 k = 0; k < Depth; ++k) {
    const Row both = b[k * eights];
    const Row low = __builtin_shufflevector(both, both, 0, 1, 2, 3, 0, 1, 2, 3);
    const Row high = __builtin_shufflevector(both, both, 4, 5, 6, 7, 4, 5, 6, 7);
    const Row* rows = a[k];
    e0 += rows[0] * low, e1 += rows[1] * low, e2 += rows[2] * low, e3 += rows[3] * low;
    o0 += rows[0] * high, o1 += rows[1] * high, o2 += rows[2] * high, o3 += rows[3] * high;
  }
  even_sums[0] = e0, even_sums[1] = e1, even_sums[2] = e2, even_sums[3] = e3;
  odd_sums[0] = o0, odd_sums[1] = o1, odd_sums[2] = o2, odd_sums[3] = o3;
}

#ifdef __AVX2__
typedef f32 Wide __attribute__((vector_size(64)));

// The same for both halves of the rows and `Count` times eight columns, with vectors of sixteen;
// eight of `from` and `to` at a time.
template <u32 Depth, u32 Count>
[[gnu::target("avx512f")]] void multiply_wide(const Row (*a)[Depth][4], const Row* b, u32 eights,
                                              const Row* const* from, Row* const* to) {
  Wide sums[Count][8], columns[Count][2];
#pragma GCC unroll 2
  for (u32 n = 0; n < Count; ++n)
#pragma GCC unroll 8
    for (u32 i = 0; i < 8; ++i)
      std::memcpy(&sums[n][i], from[4 * n + i / 2] + 2 * (i % 2), sizeof(Wide));
  for (u32 k = 0; k < Depth; ++k, b += eights) {
#pragma GCC unroll 2
    for (u32 n = 0; n < Count; ++n)
#pragma GCC unroll 2
      for (u32 odd = 0; odd < 2; ++odd) {
        const __m128 four = _mm_load_ps(reinterpret_cast<const f32*>(b + n) + 4 * odd);
        columns[n][odd] = reinterpret_cast<Wide>(_mm512_broadcast_f32x4(four));
      }
#pragma GCC unroll 4
    for (u32 i = 0; i < 4; ++i) {
      Wide rows;
      std::memcpy(&rows, a[i / 2][k] + 2 * (i % 2), sizeof rows);
      // Keeps `rows` loaded for even and odd columns.
      asm("" : "+v"(rows));
#pragma GCC unroll 2
      for (u32 n = 0; n < Count; ++n)
        sums[n][4 * (i / 2) + i % 2] += rows * columns[n][0],
            sums[n][4 * (i / 2) + 2 + i % 2] += rows * columns[n][1];
    }
  }
#pragma GCC unroll 2
  for (u32 n = 0; n < Count; ++n)
#pragma GCC unroll 8
    for (u32 i = 0; i < 8; ++i)
      std::memcpy(to[4 * n + i / 2] + 2 * (i % 2), &sums[n][i], sizeof(Wide));
}
#endif

template <u32 Depth>
void multiply_halves(const Row (*a)[Depth][4], const Row* b, u32 eights, const Row* const* from,
                     Row* const* to) {
#ifdef __AVX2__
  if (has_wide()) return multiply_wide<Depth, 1>(a, b, eights, from, to);
#endif
  for (u32 half = 0; half < 2; ++half)
    multiply<Depth>(a[half], b, eights, from[2 * half], from[2 * half + 1], to[2 * half],
                    to[2 * half + 1]);
}

alignas(64) constexpr Row kNothing[4] = {};

}  // namespace wgmma
}  // namespace workbench::ptx
