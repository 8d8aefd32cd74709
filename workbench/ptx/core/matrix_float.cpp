// mma of 8-bit floating point factors, and of f64.
#include <cmath>

#include "half.hpp"
#include "small_float.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

// D[16][8] = A[16][16 * Steps] * B + C. A register holds an 8-row tile, 16 bytes a row. Products are exact in f32.
// Slots: D 0-3, A 4-7, B 9-10, C 11-14; f16 accumulators are packed by two and take half of the slots of D and C.
template <class A, class B, int Steps, bool HalfSums>
void mma_bytes(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const auto& a_values = values_of<A>();
  const auto& b_values = values_of<B>();
  alignas(64) f32 b[16 * Steps][8], sums[16][8];
  for (int step = 0; step < Steps; ++step) {
    const u8* from = at<const u8>(registers, in.slot[9 + step]);
    for (int n = 0; n < 8; ++n)
      for (int k = 0; k < 16; ++k) b[16 * step + k][n] = b_values[from[16 * n + k]];
  }
  for (int row = 0; row < 16; ++row) {
    for (int n = 0; n < 8; ++n) {
      const int lane = row % 8 * 4 + n / 2;
      if constexpr (HalfSums) sums[row][n] = to_f32(at<const Half>(registers, in.slot[11 + row / 8])[2 * lane + n % 2]);
      else sums[row][n] = at<const f32>(registers, in.slot[11 + row / 8 * 2 + n % 2])[lane];
    }
    for (int step = 0; step < Steps; ++step) {
      const u8* from = at<const u8>(registers, in.slot[4 + row / 8 + 2 * step]) + 16 * (row % 8);
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 8; ++n) sums[row][n] += a_values[from[k]] * b[16 * step + k][n];
    }
  }
  for (int part = 0; part < (HalfSums ? 2 : 4); ++part) {
    alignas(64) u32 out[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const f32* row = sums[lane / 4 + (HalfSums ? part : part / 2) * 8] + lane % 4 * 2;
      if constexpr (HalfSums) out[lane] = u32{to_half(row[1]).bits} << 16 | to_half(row[0]).bits;
      else out[lane] = bits_as<u32>(row[part % 2]);
    }
    write_lanes(registers, in.slot[part], mask, out);
  }
}

// D[8][8] = A[8][4] * B[4][8] + C, one rounding per product. Lane 4r + c holds A[r][c], B[c][r] and C[r][2c], C[r][2c + 1].
void mma_double(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const f64* a = at<const f64>(registers, in.slot[4]);
  const f64* b = at<const f64>(registers, in.slot[9]);
  f64 result[2][kLanes];
  for (int part = 0; part < 2; ++part) {
    const f64* c = at<const f64>(registers, in.slot[11 + part]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2 + part;
      f64 sum = c[lane];
      for (int k = 0; k < 4; ++k) sum = std::fma(a[4 * row + k], b[4 * column + k], sum);
      result[part][lane] = sum;
    }
  }
  for (int part = 0; part < 2; ++part) write_lanes(registers, in.slot[part], mask, result[part]);
}

template <class A, class B>
void add_bytes(Table& table, const std::string& types) {
  const auto add = [&](const std::string& name, Handler run) {
    table.push_back({"mma." + name, run, Kind::collective, Class::tensor, "fragment", "fragment,fragment,fragment"});
  };
  add("m16n8k32.f32." + types + ".f32", &mma_bytes<A, B, 2, false>);
  add("m16n8k32.f16." + types + ".f16", &mma_bytes<A, B, 2, true>);
  add("m16n8k16.f32." + types + ".f32", &mma_bytes<A, B, 1, false>);
  add("m16n8k16.f16." + types + ".f16", &mma_bytes<A, B, 1, true>);
}

}  // namespace

void add_float_matrix(Table& table) {
  add_bytes<E4M3, E4M3>(table, "e4m3.e4m3"), add_bytes<E5M2, E5M2>(table, "e5m2.e5m2");
  add_bytes<E4M3, E5M2>(table, "e4m3.e5m2"), add_bytes<E5M2, E4M3>(table, "e5m2.e4m3");
  table.push_back({"mma.m8n8k4.f64.f64.f64.f64", &mma_double, Kind::collective, Class::tensor, "fragment", "fragment,fragment,fragment"});
}

}  // namespace workbench::ptx
