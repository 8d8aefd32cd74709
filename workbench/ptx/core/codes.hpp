// What the numbers in an instruction mean to its handler. The families in Python write them by
// these names (python_enums.cpp).
#pragma once
#include "types.hpp"

namespace workbench::ptx {

// Video instructions, in the immediate: which of a, b and the result are signed, .sat and .add.
struct Video {
  enum Flags : s64 { signed_a = 1, signed_b = 2, signed_d = 4, saturate = 8, add = 16 };
};

// Saturating conversions between integers, in the immediate: the type of the result.
enum class IntegerType : s64 { s8_, u8_, s16_, u16_, s32_, u32_, s64_, u64_ };

// Conversions of floating point to integers, in the immediate: to the nearest (even) one, to zero,
// down, up; with .ftz.
struct Rounding {
  enum Mode : s64 { rni, rzi, rmi, rpi, ftz };
};

// Comparisons, in the immediate: how the third operand joins in.
enum class Combine : s64 { none, and_, or_, xor_ };

// Barriers of a block, in the immediate.
struct Meeting {
  enum Way : s64 { sync, arrive, popc, and_, or_ };
};

// Flags of bulk copies beside those of any access to memory: registers of 64 bits hold the address;
// the mbarrier may be one of the other block of a pair (.cta_group::2); each row of the box has a
// coordinate of its own (.tile::gather4 and .tile::scatter4).
struct BulkFlags {
  enum Flags : u32 { shared_wide = 256, barrier_wide = 512, pair = 8192, rows = 16384 };
};
enum class Reduction : u32 { none, add, min, max, inc, dec, and_, or_, xor_ };

// Products of warp groups: A comes from registers; what is negated and transposed;
// D is not added to.
struct WarpGroupProduct {
  enum Flags : u32 {
    a_registers = 1,
    negate_a = 2,
    negate_b = 4,
    transpose_a = 8,
    transpose_b = 16,
    drop_d = 32
  };
};

// What tcgen05.ld and st move, in lanes and bits of each; the last in two halves. Then the shapes
// of cp, with the warps that get a copy.
enum class TensorShape : u32 {
  l32_b32,
  l16_b64,
  l16_b128,
  l16_b256,
  l16_b32_x2,
  l128_b256,
  l128_b128,
  l64_b128_02_13,
  l64_b128_01_23,
  l32_b128_x4,
  l4_b256
};

// tcgen05.ld.red: what it does with the registers of a lane.
struct TensorReduction {
  enum Flags : u32 { max = 1, of_signed = 2, of_floats = 4, absolute = 8, nan = 16 };
};

enum class TensorKind : u32 { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };

// tcgen05.mma: A is in tensor memory; two blocks take part; a scale for sixteen elements, not for
// 32; weights are stationary (.ws); some lanes of D stay as they are; A is sparse (.sp).
struct TensorFlags {
  enum Flags : u32 {
    a_in_tensor_memory = 1,
    two_blocks = 2,
    scales_of_16 = 4,
    stationary = 8,
    masked = 16,
    sparse = 32
  };
};

}  // namespace workbench::ptx
