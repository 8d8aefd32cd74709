// mma of 8-bit factors, floating point and integer, and of f64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "matrices/tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

typedef s32 Integers __attribute__((vector_size(32)));
// Pairs of neighbours along K, for eight columns.
typedef u16 Pairs __attribute__((vector_size(32)));

// The sum of a pair's two products.
inline Integers multiply_pairs(Pairs a, Pairs b) {
#ifdef __AVX2__
  return reinterpret_cast<Integers>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  const Integers x = reinterpret_cast<Integers>(a), y = reinterpret_cast<Integers>(b);
  return (x >> 16) * (y >> 16) + (x << 16 >> 16) * (y << 16 >> 16);
#endif
}

// Products of 16 rows and 8 columns.
template <class A, class B, u32 Steps>
inline void multiply_integers(u8* registers, const Instruction& in, Integers* sums) {
  alignas(64) Pairs b[8 * Steps];
  alignas(64) u32 a[8][8 * Steps];
  Halves eights[8][2], tile[8];
  for (u32 i = 0; i < 2 * Steps; ++i) {
    if (i % 2 == 0) spread_register<B>(registers + in.product.b[i / 2], eights);
#pragma GCC unroll 8
    for (u32 n = 0; n < 8; ++n) tile[n] = eights[n][i % 2];
    transpose(tile);
#pragma GCC unroll 4
    for (u32 k = 0; k < 8; k += 2)
      b[4 * i + k / 2] = __builtin_shufflevector(tile[k], tile[k + 1], 0, 8, 1, 9, 2, 10, 3, 11, 4,
                                                 12, 5, 13, 6, 14, 7, 15);
  }
  for (u32 half = 0; half < 2; ++half, sums += 8) {
    for (u32 step = 0; step < Steps; ++step) {
      spread_register<A>(registers + in.product.a[half + 2 * step], eights);
      for (u32 row = 0; row < 8; ++row)
        std::memcpy(a[row] + 8 * step, eights[row], sizeof eights[row]);
    }
    Integers rows[8] = {};
#pragma GCC unroll 4
    for (u32 pair = 0; pair < 8 * Steps; ++pair) {
      const Pairs line = b[pair];
#pragma GCC unroll 8
      for (u32 row = 0; row < 8; ++row)
        rows[row] += multiply_pairs(reinterpret_cast<Pairs>(Words{} + a[row][pair]), line);
    }
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) sums[row] = rows[row];
  }
}

// multiply_add of tiles.hpp with s32 sums.
template <class A, class B, int Steps, bool Saturate>
void mma_integer_bytes(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Integers sums[16];
  alignas(64) Row parts[4][4];
  multiply_integers<A, B, Steps>(registers, in, sums);
  alignas(64) s32 out[4][kLanes];
  for (int half = 0; half < 2; ++half)
    split_tile(reinterpret_cast<const Row*>(sums + 8 * half), parts[2 * half], parts[2 * half + 1]);
  for (int part = 0; part < 4; ++part) {
    const s32* c = at<s32>(registers, in.product.c[part]);
    const s32* products = reinterpret_cast<const s32*>(parts[part]);
    for (int lane = 0; lane < kLanes; ++lane) {
      if constexpr (Saturate)
        out[part][lane] = static_cast<s32>(std::clamp<s64>(s64{c[lane]} + products[lane],
                                                           std::numeric_limits<s32>::min(),
                                                           std::numeric_limits<s32>::max()));
      else
        out[part][lane] =
            static_cast<s32>(static_cast<u32>(c[lane]) + static_cast<u32>(products[lane]));
    }
  }
  for (int part = 0; part < 4; ++part) write_lanes(registers, in.product.d[part], mask, out[part]);
}

// D[8][8] = A[8][4] * B[4][8] + C, one rounding per product. Lane 4r + c holds A[r][c], B[c][r] and
// C[r][2c], C[r][2c + 1].
void mma_double(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const f64* a = at<const f64>(registers, in.product.a[0]);
  const f64* b = at<const f64>(registers, in.product.b[0]);
  f64 result[2][kLanes];
  for (int part = 0; part < 2; ++part) {
    const f64* c = at<const f64>(registers, in.product.c[part]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2 + part;
      f64 sum = c[lane];
      for (int k = 0; k < 4; ++k) sum = std::fma(a[4 * row + k], b[4 * column + k], sum);
      result[part][lane] = sum;
    }
  }
  for (int part = 0; part < 2; ++part)
    write_lanes(registers, in.product.d[part], mask, result[part]);
}

template <class A, class B>
void add_bytes(Table& table, const std::string& types) {
  const auto add = [&](const std::string& name, Handler run) {
    table.push_back({"mma." + name, run, Kind::collective, Class::tensor, "fragment",
                     "fragment,fragment,fragment"});
  };
  add("m16n8k32.f32." + types + ".f32", &multiply_add<A, B, 2, f32, f32>);
  add("m16n8k32.f16." + types + ".f16", &multiply_add<A, B, 2, Half, Half>);
  add("m16n8k16.f32." + types + ".f32", &multiply_add<A, B, 1, f32, f32>);
  add("m16n8k16.f16." + types + ".f16", &multiply_add<A, B, 1, Half, Half>);
}

template <class A, class B>
void add_integer_bytes(Table& table, const std::string& types) {
  const auto add = [&](const std::string& name, Handler run) {
    table.push_back({"mma." + name, run, Kind::collective, Class::tensor, "fragment",
                     "fragment,fragment,fragment"});
  };
  add("m16n8k16.s32." + types + ".s32", &mma_integer_bytes<A, B, 1, false>);
  add("m16n8k16.satfinite.s32." + types + ".s32", &mma_integer_bytes<A, B, 1, true>);
  add("m16n8k32.s32." + types + ".s32", &mma_integer_bytes<A, B, 2, false>);
  add("m16n8k32.satfinite.s32." + types + ".s32", &mma_integer_bytes<A, B, 2, true>);
}

}  // namespace

void add_byte_matrix(Table& table) {
  add_integer_bytes<s8, s8>(table, "s8.s8"), add_integer_bytes<u8, u8>(table, "u8.u8");
  add_integer_bytes<s8, u8>(table, "s8.u8"), add_integer_bytes<u8, s8>(table, "u8.s8");
  add_bytes<E4M3, E4M3>(table, "e4m3.e4m3"), add_bytes<E5M2, E5M2>(table, "e5m2.e5m2");
  add_bytes<E4M3, E5M2>(table, "e4m3.e5m2"), add_bytes<E5M2, E4M3>(table, "e5m2.e4m3");
  table.push_back({"mma.m8n8k4.f64.f64.f64.f64", &mma_double, Kind::collective, Class::tensor,
                   "fragment", "fragment,fragment,fragment"});
}

}  // namespace workbench::ptx
