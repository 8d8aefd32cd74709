// What the numbers in an instruction mean to its handler. The families in Python write them by
// these names.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

// Video instructions, in the immediate: which of a, b and the result are signed, .sat and .add.
struct Video {
  PTX_NAMED_ENUM(enum : s64, kNames, signed_a = 1, signed_b = 2, signed_d = 4, saturate = 8,
                 add = 16);
};

// Saturating conversions between integers, in the immediate: the type of the result.
PTX_NAMED_ENUM(enum class IntegerType : s64, kIntegerTypeNames, s8_, u8_, s16_, u16_, s32_, u32_,
               s64_, u64_);

// Conversions of floating point to integers, in the immediate: to the nearest (even) one, to zero,
// down, up; with .ftz.
struct Rounding {
  PTX_NAMED_ENUM(enum : s64, kNames, rni, rzi, rmi, rpi, ftz);
};

// Comparisons, in the immediate: how the third operand joins in.
PTX_NAMED_ENUM(enum class Combine : s64, kCombineNames, none, and_, or_, xor_);

// Barriers of a block, in the immediate.
struct Meeting {
  PTX_NAMED_ENUM(enum : s64, kNames, sync, arrive, popc, and_, or_);
};

// Carry chains: the slots of the flag.
struct Carry {
  PTX_NAMED_ENUM(enum : int, kNames, carry_in = 4, carry_out = 5);
};

// Bulk copies: slots beside 0 (shared memory), 1 (the mbarrier), 2 (the size) and kAddressSlot
// (global memory).
struct Bulk {
  PTX_NAMED_ENUM(enum : int, kNames, coordinates = 3, multicast = 9, shared_offset, barrier_offset,
                 global_offset, operation, type, dimensions);
};
// Flags of theirs beside those of any memory instruction: registers of 64 bits hold the address.
struct BulkFlags {
  PTX_NAMED_ENUM(enum : u32, kNames, shared_wide = 256, barrier_wide = 512);
};
PTX_NAMED_ENUM(enum class Reduction : u32, kReductionNames, none, add, min, max, inc, dec, and_,
               or_, xor_);

// Products of warp groups, in slot `flags`: A comes from registers; what is negated and transposed;
// D is not added to.
struct WarpGroupProduct {
  static constexpr int kFlags = 11;
  PTX_NAMED_ENUM(enum : u32, kNames, a_registers = 1, negate_a = 2, negate_b = 4, transpose_a = 8,
                 transpose_b = 16, drop_d = 32);
};

}  // namespace workbench::ptx
