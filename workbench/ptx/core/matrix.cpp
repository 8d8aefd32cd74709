// mma of 16-bit and TF32 factors.
//
// One 32-bit register of a 16-bit fragment, read across the 32 lanes, is an 8 x 8 tile in row-major order: lane 4r + c/2
// holds columns c and c+1 of row r. So a fragment needs no shuffling, only widening. For B the tile is [n][k].
#include "numeric.hpp"
#include "tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

template <class T>
inline void widen_tile(const u8* registers, u32 slot, f32* out) {
  const Halves* from = reinterpret_cast<const Halves*>(registers + slot);
  Row* to = reinterpret_cast<Row*>(out);
  for (int i = 0; i < 8; ++i) to[i] = widen_eight<T>(from[i]);
}

inline void transpose_tile(const f32* from, f32* to) {
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column) to[column * 8 + row] = from[row * 8 + column];
}

// Two accumulator registers hold the even and odd columns of an 8 x 8 tile.
inline void read_accumulator(const u8* registers, u32 even_slot, u32 odd_slot, f32* tile) {
  const f32* even = reinterpret_cast<const f32*>(registers + even_slot);
  const f32* odd = reinterpret_cast<const f32*>(registers + odd_slot);
  for (int i = 0; i < kLanes; ++i) tile[2 * i] = even[i], tile[2 * i + 1] = odd[i];
}

inline void write_accumulator(u8* registers, u32 even_slot, u32 odd_slot, u32 mask, const f32* tile) {
  alignas(64) f32 even[kLanes], odd[kLanes];
  for (int i = 0; i < kLanes; ++i) even[i] = tile[2 * i], odd[i] = tile[2 * i + 1];
  write_lanes(registers, even_slot, mask, even);
  write_lanes(registers, odd_slot, mask, odd);
}

// rows[8] += a[8][8] * b[8][8]. Products of 16-bit factors are exact in f32, so that a fused multiply-add and a
// multiplication followed by an addition agree.
inline void multiply_tile(Row* rows, const f32* a, const f32* b) {
  const Row* b_rows = reinterpret_cast<const Row*>(b);
  for (int row = 0; row < 8; ++row) {
    Row sum = rows[row];
    for (int k = 0; k < 8; ++k) sum += a[row * 8 + k] * b_rows[k];
    rows[row] = sum;
  }
}

// D[16][8] = A[16][8 * Steps] * B[8 * Steps][8] + C. Slots: D 0-3, A 4-7, B 9-10, C 11-14; slot 8 is not used.
template <class T, int Steps>
void mma_16_bit(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) f32 a[64], b[Steps][64], narrow[64], accumulator[2][64];
  for (int step = 0; step < Steps; ++step) {
    widen_tile<T>(registers, in.slot[9 + step], narrow);
    transpose_tile(narrow, b[step]);
  }
  for (int half = 0; half < 2; ++half) {
    read_accumulator(registers, in.slot[11 + 2 * half], in.slot[12 + 2 * half], accumulator[half]);
    for (int step = 0; step < Steps; ++step) {
      widen_tile<T>(registers, in.slot[4 + half + 2 * step], a);
      multiply_tile(reinterpret_cast<Row*>(accumulator[half]), a, b[step]);
    }
  }
  for (int half = 0; half < 2; ++half)
    write_accumulator(registers, in.slot[2 * half], in.slot[2 * half + 1], mask, accumulator[half]);
}

// f16 accumulators: one register holds a whole 8 x 8 tile. Slots: D 0-1, C 11-12; one of the two may be f32.
template <int Steps, bool HalfD, bool HalfC>
void mma_half_accumulate(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) f32 a[64], b[Steps][64], narrow[64], accumulator[2][64];
  alignas(64) Half out[2][64];
  for (int step = 0; step < Steps; ++step) {
    widen_tile<Half>(registers, in.slot[9 + step], narrow);
    transpose_tile(narrow, b[step]);
  }
  for (int half = 0; half < 2; ++half) {
    if constexpr (HalfC) widen_tile<Half>(registers, in.slot[11 + half], accumulator[half]);
    else read_accumulator(registers, in.slot[11 + 2 * half], in.slot[12 + 2 * half], accumulator[half]);
    for (int step = 0; step < Steps; ++step) {
      widen_tile<Half>(registers, in.slot[4 + half + 2 * step], a);
      multiply_tile(reinterpret_cast<Row*>(accumulator[half]), a, b[step]);
    }
    for (int i = 0; i < 64; ++i) out[half][i] = to_half(accumulator[half][i]);
  }
  for (int half = 0; half < 2; ++half) {
    if constexpr (HalfD) write_lanes(registers, in.slot[half], mask, reinterpret_cast<const u32*>(out[half]));
    else write_accumulator(registers, in.slot[2 * half], in.slot[2 * half + 1], mask, accumulator[half]);
  }
}

// TF32: the low 13 bits of a factor are not seen. Tiles are 8 x 4, lane 4r + c.
template <int Steps>
void mma_tf32(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) f32 accumulator[2][64], b[4 * Steps][8];
  const auto factor = [](u32 x) { return bits_as<f32>(x & 0xffffe000u); };
  for (int step = 0; step < Steps; ++step) {
    const u32* from = at<const u32>(registers, in.slot[9 + step]);
    for (int lane = 0; lane < kLanes; ++lane) b[4 * step + lane % 4][lane / 4] = factor(from[lane]);
  }
  const Row* b_rows = reinterpret_cast<const Row*>(b);
  for (int half = 0; half < 2; ++half) {
    read_accumulator(registers, in.slot[11 + 2 * half], in.slot[12 + 2 * half], accumulator[half]);
    Row* rows = reinterpret_cast<Row*>(accumulator[half]);
    for (int step = 0; step < Steps; ++step) {
      const u32* a = at<const u32>(registers, in.slot[4 + half + 2 * step]);
      for (int row = 0; row < 8; ++row)
        for (int k = 0; k < 4; ++k) rows[row] += factor(a[4 * row + k]) * b_rows[4 * step + k];
    }
  }
  for (int half = 0; half < 2; ++half)
    write_accumulator(registers, in.slot[2 * half], in.slot[2 * half + 1], mask, accumulator[half]);
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
