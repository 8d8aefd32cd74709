// mma of 16-bit and TF32 factors.
//
// One 32-bit register of a 16-bit fragment, read across the 32 lanes, is an 8 x 8 tile in row-major
// order: lane 4r + c/2 holds columns c and c+1 of row r. So a fragment needs no shuffling, only
// widening. For B the tile is [n][k].
#include "matrices/tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

// TF32 ignores the low 13 bits of a factor. Tiles are 8 x 4: lane 4r + c holds row r, column c.
template <u32 Steps>
void mma_tf32(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) Row sums[16];
  alignas(64) f32 b[4 * Steps][8];
  const auto factor = [](u32 x) { return bits_as<f32>(x & kTf32Bits); };
  for (u32 step = 0; step < Steps; ++step) {
    const u32* from = at<const u32>(registers, in.product.b[step]);
    for (u32 lane = 0; lane < kLanes; ++lane) b[4 * step + lane % 4][lane / 4] = factor(from[lane]);
  }
  const Row* b_rows = reinterpret_cast<const Row*>(b);
  for (u32 half = 0; half < 2; ++half) {
    Row* rows = sums + 8 * half;
    read_sums<f32>(registers, in.product.c, half, rows);
    for (u32 step = 0; step < Steps; ++step) {
      const u32* a = at<const u32>(registers, in.product.a[half + 2 * step]);
      for (u32 row = 0; row < 8; ++row)
        for (u32 k = 0; k < 4; ++k) rows[row] += factor(a[4 * row + k]) * b_rows[4 * step + k];
    }
  }
  for (u32 half = 0; half < 2; ++half)
    write_sums<f32>(registers, in.product.d, half, mask, sums + 8 * half);
}

}  // namespace

void add_matrix(Table& table) {
  auto mma = [&](const char* name, Handler run) {
    table.push_back({std::string("mma.") + name, run, Kind::collective, Class::tensor, "fragment",
                     "fragment,fragment,fragment"});
  };
  mma("m16n8k16.f32.f16.f16.f32", &multiply_add<Half, Half, 2, f32, f32>);
  mma("m16n8k8.f32.f16.f16.f32", &multiply_add<Half, Half, 1, f32, f32>);
  mma("m16n8k16.f32.bf16.bf16.f32", &multiply_add<Bfloat, Bfloat, 2, f32, f32>);
  mma("m16n8k8.f32.bf16.bf16.f32", &multiply_add<Bfloat, Bfloat, 1, f32, f32>);
  mma("m16n8k16.f16.f16.f16.f16", &multiply_add<Half, Half, 2, Half, Half>);
  mma("m16n8k16.f32.f16.f16.f16", &multiply_add<Half, Half, 2, f32, Half>);
  mma("m16n8k16.f16.f16.f16.f32", &multiply_add<Half, Half, 2, Half, f32>);
  mma("m16n8k8.f16.f16.f16.f16", &multiply_add<Half, Half, 1, Half, Half>);
  mma("m16n8k8.f32.tf32.tf32.f32", &mma_tf32<2>);
  mma("m16n8k4.f32.tf32.tf32.f32", &mma_tf32<1>);
}

}  // namespace workbench::ptx
