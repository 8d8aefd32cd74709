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

// Flags of bulk copies beside those of any access to memory: registers of 64 bits hold the address.
struct BulkFlags {
  enum Flags : u32 { shared_wide = 256, barrier_wide = 512 };
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

}  // namespace workbench::ptx
