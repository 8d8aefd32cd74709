// The numbers that instructions carry for their handlers. The families in Python use the same names
// (python_enums.cpp).
#pragma once
#include "types.hpp"

namespace workbench::ptx {

// Flags of video instructions, in the immediate: which of a, b and the result are signed; .sat;
// .add.
struct Video {
  enum Flags : s64 { signed_a = 1, signed_b = 2, signed_d = 4, saturate = 8, add = 16 };
};

// The result's type of a saturating integer conversion, in the immediate.
enum class IntegerType : s64 { s8_, u8_, s16_, u16_, s32_, u32_, s64_, u64_ };

// Rounding of a conversion from floating point to integer, in the immediate: to nearest even, to
// zero, down, up; and the flag for .ftz.
struct Rounding {
  enum Mode : s64 { rni, rzi, rmi, rpi, ftz };
};

// How a comparison combines its result with the third operand, in the immediate.
enum class Combine : s64 { none, and_, or_, xor_ };

// Operations of a barrier of a block, in the immediate.
struct Meeting {
  enum Way : s64 { sync, arrive, popc, and_, or_ };
};

// Flags of bulk copies, in addition to those of memory accesses: the address registers have 64 bits
// (shared_wide, barrier_wide); the mbarrier may belong to the other block of a pair
// (.cta_group::2); each row of the box has its own coordinate (.tile::gather4 and .tile::scatter4).
struct BulkFlags {
  enum Flags : u32 { shared_wide = 256, barrier_wide = 512, pair = 8192, rows = 16384 };
};
enum class Reduction : u32 { none, add, min, max, inc, dec, and_, or_, xor_ };

// Flags of products of warp groups (wgmma): A comes from registers; A or B is negated; A or B is
// transposed; nothing is added to the product (D's old value is dropped).
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

// Shapes of tcgen05.ld and st: lanes, and bits of each lane; the last has two halves. Then the
// shapes of tcgen05.cp, with the warps that receive a copy.
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

// Flags of tcgen05.ld.red: the reduction over the registers of a lane.
struct TensorReduction {
  enum Flags : u32 { max = 1, of_signed = 2, of_floats = 4, absolute = 8, nan = 16 };
};

enum class TensorKind : u32 { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };

// Flags of tcgen05.mma: A is in tensor memory; two blocks take part; one scale for 16 elements
// (otherwise 32); weights are stationary (.ws); a mask keeps some lanes of D unchanged; A is sparse
// (.sp).
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
