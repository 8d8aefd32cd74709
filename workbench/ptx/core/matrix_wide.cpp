// mma by vectors of 512 bits, where the processor has them: a vector is a column of sixteen rows.
//
// The results are those of the handlers whose place these take, bit for bit: products are exact and
// summed in K's order.
#include <algorithm>

#include "processor.hpp"
#include "tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {

#ifdef __AVX2__
#define PTX_WIDE [[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline

namespace {

// ---- a register of rows 0 to 7 and one of rows 8 to 15: four columns of 32 bits ----

template <int Parts>
PTX_WIDE __m512i join(__m512i a, __m512i b) {
  return _mm512_shuffle_i64x2(a, b, Parts);
}

constexpr int kLow = 0x44, kHigh = 0xee;  // the low, and the high halves of two vectors

PTX_WIDE void read_columns(const u8* upper, const u8* lower, __m512i* columns) {
  const __m512i upper0 = _mm512_loadu_si512(upper), upper1 = _mm512_loadu_si512(upper + 64);
  const __m512i lower0 = _mm512_loadu_si512(lower), lower1 = _mm512_loadu_si512(lower + 64);
#pragma GCC unroll 2
  for (int c = 0; c < 4; c += 2) {
    const __m512i from =
        _mm512_setr_epi32(c, c + 4, c + 8, c + 12, c + 16, c + 20, c + 24, c + 28,  //
                          c + 1, c + 5, c + 9, c + 13, c + 17, c + 21, c + 25, c + 29);
    const __m512i rows = _mm512_permutex2var_epi32(upper0, from, upper1),
                  more = _mm512_permutex2var_epi32(lower0, from, lower1);
    columns[c] = join<kLow>(rows, more), columns[c + 1] = join<kHigh>(rows, more);
  }
}

// Eight rows, of which columns 0 and 1 lie in `left` and 2 and 3 in `right`.
PTX_WIDE void write_rows(__m512i left, __m512i right, u32 mask, u8* to) {
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    const __m512i from =
        _mm512_setr_epi32(r, r + 8, r + 16, r + 24, r + 1, r + 9, r + 17, r + 25,  //
                          r + 2, r + 10, r + 18, r + 26, r + 3, r + 11, r + 19, r + 27);
    _mm512_mask_storeu_epi32(to + 16 * r, static_cast<__mmask16>(mask >> 4 * r),
                             _mm512_permutex2var_epi32(left, from, right));
  }
}

PTX_WIDE void write_columns(const __m512i* columns, u32 mask, u8* upper, u8* lower) {
  write_rows(join<kLow>(columns[0], columns[1]), join<kLow>(columns[2], columns[3]), mask, upper);
  write_rows(join<kHigh>(columns[0], columns[1]), join<kHigh>(columns[2], columns[3]), mask, lower);
}

// Columns 2c of the sums lie in registers 0 and 2 of four, 2c + 1 in registers 1 and 3.
PTX_WIDE void read_sums(const u8* registers, const u32* slots, __m512i* sums) {
  __m512i columns[2][4];
  for (u32 odd = 0; odd < 2; ++odd)
    read_columns(registers + slots[odd], registers + slots[2 + odd], columns[odd]);
#pragma GCC unroll 8
  for (u32 n = 0; n < 8; ++n) sums[n] = columns[n % 2][n / 2];
}

PTX_WIDE void write_sums(const __m512i* sums, u32 mask, u8* registers, const u32* slots) {
  __m512i columns[2][4];
#pragma GCC unroll 8
  for (u32 n = 0; n < 8; ++n) columns[n % 2][n / 2] = sums[n];
  for (u32 odd = 0; odd < 2; ++odd)
    write_columns(columns[odd], mask, registers + slots[odd], registers + slots[2 + odd]);
}

// ---- 32 bits of sixteen rows as columns of f32 ----

struct Tf32 {};

template <class T>
constexpr u32 kColumns = 4 / Factors<T>::kBytes;  // in 32 bits
template <>
constexpr u32 kColumns<Tf32> = 1;

PTX_WIDE __m512 widen_sixteen(__m256i halves) { return _mm512_cvtph_ps(halves); }

PTX_WIDE void split(__m512i from, Half, __m512* columns) {
  const __m512i evens_first =
      _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,  //
                       30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i sorted = _mm512_permutexvar_epi16(evens_first, from);
  columns[0] = widen_sixteen(_mm512_castsi512_si256(sorted));
  columns[1] = widen_sixteen(_mm512_extracti64x4_epi64(sorted, 1));
}

PTX_WIDE void split(__m512i from, Bfloat, __m512* columns) {
  columns[0] = _mm512_castsi512_ps(_mm512_slli_epi32(from, 16));
  columns[1] =
      _mm512_castsi512_ps(_mm512_and_si512(from, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

PTX_WIDE void split(__m512i from, Tf32, __m512* columns) {  // whose low 13 bits are not seen
  columns[0] =
      _mm512_castsi512_ps(_mm512_and_si512(from, _mm512_set1_epi32(static_cast<int>(kTf32Bits))));
}

PTX_WIDE void split_halves(__m512i evens, __m512i odds, __m512* columns) {
  __m512 even[2], odd[2];
  split(evens, Half{}, even), split(odds, Half{}, odd);
  columns[0] = even[0], columns[1] = odd[0], columns[2] = even[1], columns[3] = odd[1];
}

PTX_WIDE void split(__m512i from, E5M2, __m512* columns) {
  split_halves(_mm512_slli_epi16(from, 8),
               _mm512_and_si512(from, _mm512_set1_epi16(static_cast<short>(0xff00))), columns);
}

// As f16, smaller by kScale. `high`: from the high byte of each 16 bits.
template <bool High>
PTX_WIDE __m512i e4m3_as_half(__m512i from) {
  const __m512i code = High ? from : _mm512_slli_epi16(from, 8);
  const __m512i size = _mm512_and_si512(code, _mm512_set1_epi16(0x7f00));
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(size, _mm512_set1_epi16(0x7f00));
  const __m512i value =
      _mm512_or_si512(_mm512_and_si512(code, _mm512_set1_epi16(static_cast<short>(0x8000))),
                      _mm512_srli_epi16(size, 1));
  return _mm512_mask_mov_epi16(value, nan, _mm512_set1_epi16(0x7e00));
}

PTX_WIDE void split(__m512i from, E4M3, __m512* columns) {
  split_halves(e4m3_as_half<false>(from), e4m3_as_half<true>(from), columns);
}

template <class T>
constexpr f32 kScale = std::is_same_v<T, E4M3> ? 256.0f : 1.0f;

// ---- the products ----

// B of a fragment as b[n][k], times a scale. Apart, so that its values are read from memory one by
// one, and not taken out of vectors.
template <class B, u32 Steps>
[[gnu::noinline]] void widen_b(const u8* const* registers, f32 scale, f32* b) {
  if constexpr (std::is_same_v<B, Tf32>) {
    for (u32 step = 0; step < Steps; ++step)
      for (u32 lane = 0; lane < kLanes; ++lane)
        b[lane / 4 * 4 * Steps + 4 * step + lane % 4] =
            bits_as<f32>(reinterpret_cast<const u32*>(registers[step])[lane] & kTf32Bits);
  } else {
    widen_rows<B, Steps>(registers, b);
    if (scale != 1.0f)
      std::transform(b, b + 8 * Steps * 4 * kColumns<B>, b, [scale](f32 x) { return x * scale; });
  }
}

// multiply_add of tiles.hpp.
template <class A, class B, u32 Steps>
[[gnu::target("avx512f,avx512bw")]] void multiply_add_wide(u8* registers, const Instruction& in,
                                                           u32 mask, Warp&) {
  constexpr u32 depth = 4 * kColumns<A> * Steps;
  alignas(64) f32 b[8 * depth];
  const u8* right[2] = {registers + in.product.b[0], registers + in.product.b[Steps - 1]};
  widen_b<B, Steps>(right, kScale<A>, b);
  __m512i bits[8], dwords[4];
  read_sums(registers, in.product.c, bits);
  __m512 sums[8], columns[kColumns<A>];
#pragma GCC unroll 8
  for (u32 n = 0; n < 8; ++n) sums[n] = _mm512_castsi512_ps(bits[n]);
#pragma GCC unroll 2
  for (u32 step = 0; step < Steps; ++step) {
    read_columns(registers + in.product.a[2 * step], registers + in.product.a[2 * step + 1],
                 dwords);
#pragma GCC unroll 4
    for (u32 c = 0; c < 4; ++c) {
      split(dwords[c], A{}, columns);
      const f32* factors = b + (4 * step + c) * kColumns<A>;
#pragma GCC unroll 4
      for (u32 k = 0; k < kColumns<A>; ++k)
#pragma GCC unroll 8
        for (u32 n = 0; n < 8; ++n)
          sums[n] = _mm512_fmadd_ps(columns[k], _mm512_set1_ps(factors[n * depth + k]), sums[n]);
    }
  }
#pragma GCC unroll 8
  for (u32 n = 0; n < 8; ++n) bits[n] = _mm512_castps_si512(sums[n]);
  write_sums(bits, mask, registers, in.product.d);
}

// Bytes 0 and 2, and bytes 1 and 3, as 16 bits each.
template <class T>
PTX_WIDE void split_bytes(__m512i from, __m512i* pairs) {
  if constexpr (std::is_signed_v<T>) {
    pairs[0] = _mm512_srai_epi16(_mm512_slli_epi16(from, 8), 8),
    pairs[1] = _mm512_srai_epi16(from, 8);
  } else {
    pairs[0] = _mm512_and_si512(from, _mm512_set1_epi16(0xff)),
    pairs[1] = _mm512_srli_epi16(from, 8);
  }
}

// Sums of s32 wrap around, so that C may come first.
template <class A, class B, u32 Steps>
[[gnu::target("avx512f,avx512bw,avx512vnni")]] void multiply_integers_wide(u8* registers,
                                                                           const Instruction& in,
                                                                           u32 mask, Warp&) {
  alignas(64) s32 b[Steps][2][kLanes];  // lane 4n + c
  __m512i sums[8], dwords[4], pairs[2];
  for (u32 step = 0; step < Steps; ++step)
    for (u32 part = 0; part < 2; ++part) {
      split_bytes<B>(_mm512_loadu_si512(registers + in.product.b[step] + 64 * part), pairs);
      for (u32 odd = 0; odd < 2; ++odd) _mm512_store_si512(b[step][odd] + 16 * part, pairs[odd]);
    }
  read_sums(registers, in.product.c, sums);
#pragma GCC unroll 2
  for (u32 step = 0; step < Steps; ++step) {
    read_columns(registers + in.product.a[2 * step], registers + in.product.a[2 * step + 1],
                 dwords);
#pragma GCC unroll 4
    for (u32 c = 0; c < 4; ++c) {
      split_bytes<A>(dwords[c], pairs);
#pragma GCC unroll 2
      for (u32 odd = 0; odd < 2; ++odd)
#pragma GCC unroll 8
        for (u32 n = 0; n < 8; ++n)
          sums[n] =
              _mm512_dpwssd_epi32(sums[n], pairs[odd], _mm512_set1_epi32(b[step][odd][4 * n + c]));
    }
  }
  write_sums(sums, mask, registers, in.product.d);
}

}  // namespace

void widen_matrices(Table& table) {
  if (!supports_512()) return;
  const auto replace = [&](const std::string& name, Handler run) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const TableEntry& entry) {
      return entry.name == "mma." + name;
    });
    found->run = run;
  };
  replace("m16n8k16.f32.f16.f16.f32", &multiply_add_wide<Half, Half, 2>);
  replace("m16n8k8.f32.f16.f16.f32", &multiply_add_wide<Half, Half, 1>);
  replace("m16n8k16.f32.bf16.bf16.f32", &multiply_add_wide<Bfloat, Bfloat, 2>);
  replace("m16n8k8.f32.bf16.bf16.f32", &multiply_add_wide<Bfloat, Bfloat, 1>);
  replace("m16n8k8.f32.tf32.tf32.f32", &multiply_add_wide<Tf32, Tf32, 2>);
  replace("m16n8k4.f32.tf32.tf32.f32", &multiply_add_wide<Tf32, Tf32, 1>);
  replace("m16n8k32.f32.e4m3.e4m3.f32", &multiply_add_wide<E4M3, E4M3, 2>);
  replace("m16n8k32.f32.e4m3.e5m2.f32", &multiply_add_wide<E4M3, E5M2, 2>);
  replace("m16n8k32.f32.e5m2.e4m3.f32", &multiply_add_wide<E5M2, E4M3, 2>);
  replace("m16n8k32.f32.e5m2.e5m2.f32", &multiply_add_wide<E5M2, E5M2, 2>);
  if (!__builtin_cpu_supports("avx512vnni")) return;
  replace("m16n8k32.s32.s8.s8.s32", &multiply_integers_wide<s8, s8, 2>);
  replace("m16n8k32.s32.s8.u8.s32", &multiply_integers_wide<s8, u8, 2>);
  replace("m16n8k32.s32.u8.s8.s32", &multiply_integers_wide<u8, s8, 2>);
  replace("m16n8k32.s32.u8.u8.s32", &multiply_integers_wide<u8, u8, 2>);
}
#else
void widen_matrices(Table&) {}
#endif

}  // namespace workbench::ptx
