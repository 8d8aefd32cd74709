// mma of 16-bit and TF32 factors.
//
// One 32-bit register of a 16-bit fragment, read across the 32 lanes, is an 8 x 8 tile in row-major order: lane 4r + c/2
// holds columns c and c+1 of row r. So a fragment needs no shuffling, only widening. For B the tile is [n][k].
#include "numeric.hpp"
#include "tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

inline void read_accumulator(u8* registers, u32 even_slot, u32 odd_slot, Row* rows) {
  read_tile(registers + even_slot, registers + odd_slot, rows);
}

inline void write_accumulator(u8* registers, u32 even_slot, u32 odd_slot, u32 mask, const Row* rows) {
  alignas(64) Row even[4], odd[4];
  split_tile(rows, even, odd);
  write_lanes(registers, even_slot, mask, reinterpret_cast<const f32*>(even));
  write_lanes(registers, odd_slot, mask, reinterpret_cast<const f32*>(odd));
}

// D[16][8] = A[16][8 * Steps] * B[8 * Steps][8] + C. Slots: D 0-3, A 4-7, B 9-10, C 11-14; slot 8 is not used. Products of
// 16-bit factors are exact in f32, so that a fused multiply-add and a multiplication followed by an addition agree.
template <class T, int Steps>
void mma_16_bit(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Row sums[16];
  for (int half = 0; half < 2; ++half) read_accumulator(registers, in.slot[11 + 2 * half], in.slot[12 + 2 * half], sums + 8 * half);
  multiply_fragments<T, T, Steps>(registers, in, sums);
  for (int half = 0; half < 2; ++half) write_accumulator(registers, in.slot[2 * half], in.slot[2 * half + 1], mask, sums + 8 * half);
}

// f16 accumulators: one register holds a whole 8 x 8 tile. Slots: D 0-1, C 11-12; one of the two may be f32.
template <int Steps, bool HalfD, bool HalfC>
void mma_half_accumulate(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Row sums[16];
  for (int half = 0; half < 2; ++half) {
    Row* rows = sums + 8 * half;
    if constexpr (HalfC)
      for (int row = 0; row < 8; ++row) rows[row] = Factors<Half>::values(Factors<Half>::spread(registers + in.slot[11 + half] + 16 * row));
    else read_accumulator(registers, in.slot[11 + 2 * half], in.slot[12 + 2 * half], rows);
  }
  multiply_fragments<Half, Half, Steps>(registers, in, sums);
  for (int half = 0; half < 2; ++half) {
    const f32* values = reinterpret_cast<const f32*>(sums + 8 * half);
    if constexpr (HalfD) {
      alignas(64) Half out[64];
      for (int i = 0; i < 64; ++i) out[i] = to_half(values[i]);
      write_lanes(registers, in.slot[half], mask, reinterpret_cast<const u32*>(out));
    } else {
      write_accumulator(registers, in.slot[2 * half], in.slot[2 * half + 1], mask, sums + 8 * half);
    }
  }
}

// TF32: the low 13 bits of a factor are not seen. Tiles are 8 x 4, lane 4r + c.
template <int Steps>
void mma_tf32(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Row sums[16];
  alignas(64) f32 b[4 * Steps][8];
  const auto factor = [](u32 x) { return bits_as<f32>(x & 0xffffe000u); };
  for (int step = 0; step < Steps; ++step) {
    const u32* from = at<const u32>(registers, in.slot[9 + step]);
    for (int lane = 0; lane < kLanes; ++lane) b[4 * step + lane % 4][lane / 4] = factor(from[lane]);
  }
  const Row* b_rows = reinterpret_cast<const Row*>(b);
  for (int half = 0; half < 2; ++half) {
    Row* rows = sums + 8 * half;
    read_accumulator(registers, in.slot[11 + 2 * half], in.slot[12 + 2 * half], rows);
    for (int step = 0; step < Steps; ++step) {
      const u32* a = at<const u32>(registers, in.slot[4 + half + 2 * step]);
      for (int row = 0; row < 8; ++row)
        for (int k = 0; k < 4; ++k) rows[row] += factor(a[4 * row + k]) * b_rows[4 * step + k];
    }
  }
  for (int half = 0; half < 2; ++half) write_accumulator(registers, in.slot[2 * half], in.slot[2 * half + 1], mask, sums + 8 * half);
}

}  // namespace

void add_matrix(Table& table) {
  auto mma = [&](const char* name, Handler run) {
    table.push_back({std::string("mma.") + name, run, Kind::collective, Class::tensor, "fragment", "fragment,fragment,fragment"});
  };
  mma("m16n8k16.f32.f16.f16.f32", &mma_16_bit<Half, 2>);
  mma("m16n8k8.f32.f16.f16.f32", &mma_16_bit<Half, 1>);
  mma("m16n8k16.f32.bf16.bf16.f32", &mma_16_bit<Bfloat, 2>);
  mma("m16n8k8.f32.bf16.bf16.f32", &mma_16_bit<Bfloat, 1>);
  mma("m16n8k16.f16.f16.f16.f16", &mma_half_accumulate<2, true, true>);
  mma("m16n8k16.f32.f16.f16.f16", &mma_half_accumulate<2, false, true>);
  mma("m16n8k16.f16.f16.f16.f32", &mma_half_accumulate<2, true, false>);
  mma("m16n8k8.f16.f16.f16.f16", &mma_half_accumulate<1, true, true>);
  mma("m16n8k8.f32.tf32.tf32.f32", &mma_tf32<2>);
  mma("m16n8k4.f32.tf32.tf32.f32", &mma_tf32<1>);
}

}  // namespace workbench::ptx
