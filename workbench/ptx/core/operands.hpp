// Where the operands of an instruction lie, by the kind of its handler.
//
// The families in Python write them by these names (python_operands.cpp). An operand that is not
// there is kNoSlot; numbers are plain ones.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

// A byte offset into the register file: 32 lanes of 2, 4 or 8 bytes, or one 32-bit mask for a
// predicate.
using Slot = u32;
constexpr Slot kNoSlot = 0xffffffffu;
constexpr Slot kTrueSlot = 0;  // the guard of unguarded instructions: a predicate that always holds

namespace operands {

struct Elementwise {
  Slot destination, source[5];
};
// The inverse of the result is written too; `third` is what Instruction::combine joins in.
struct Comparison {
  Slot result, inverse, a, b, third;
};
struct Unpacking {
  Slot part[4], source;
};
// A carry chain. The flag is a predicate.
struct Carrying {
  Slot destination, a, b, c, carry_in, carry_out;
};

// ---- memory: with Instruction::address and offset ----

struct Access {
  Slot data[8];  // loaded or stored
};
struct Atomic {
  Slot old, operand, second;
  Slot old_high, operand_high, second_high;  // of 128 bits, whose lower halves those are then
};
// cp.async, from global memory; `ignored` is the predicate of ignore-src, `flags` are those of the
// destination's register.
struct AsyncCopy {
  Slot destination, size, ignored;
  u32 offset, flags;
};
struct AsyncStore {
  Slot data[4], mbarrier;
};
// `operand`: a count, bytes, a state or its parity. `expected`: bytes that an arrival adds first.
struct Mbarrier {
  Slot result, operand, expected;
  u32 may_give_up;  // try_wait
};
// Instruction::address is that of global memory, of the tensor map, or of shared memory to copy
// from.
struct Bulk {
  Slot shared, mbarrier, size, coordinate[5], multicast;
  Slot bytes;  // a mask of those of each sixteen that are copied (.cp_mask)
  u32 shared_offset, mbarrier_offset, global_offset, reduction, type, dimensions;
};
// tensormap.replace; `field` is a MapField (tensor_map.hpp).
struct MapChange {
  Slot value;
  u32 field, ordinal;
};
// tensormap.cp_fenceproxy. `wide`: the register of the source has 64 bits.
struct MapCopy {
  Slot source;
  u32 offset, wide;
};
// wmma.load and wmma.store; see matrix_memory.cpp for the numbers.
struct Fragment {
  Slot data[8], stride;
  u32 rows, columns, by_row, parts, bits, leading, step;
};

// ---- of a warp, a warp group, a block ----

// shfl, vote, match, redux and elect; `lane` and `control` of shfl alone.
struct Exchange {
  Slot result, predicate, value, lane, control;
};
// mma.
struct Product {
  Slot d[4], a[4], b[2], c[4];
};
// mma with block scales. `selectors` has 16 bits each for byte and thread of A, byte and thread of
// B.
struct ScaledProduct {
  Slot d[4], a[4], b[2], c[4], scale_a, scale_b, selectors;
};
// mma.sp, with scales or without. D's registers are Kernel::fragments; `ordered` for
// .sp::ordered_metadata; `selectors` as of ScaledProduct.
struct SparseProduct {
  Slot a[4], b[4], c[4], metadata;
  u32 selector, ordered;
  Slot scale_a, scale_b, selectors;
};
// wgmma. A is in registers, or what Instruction::address describes; D's registers are
// Kernel::fragments. `metadata` is that of a sparse A, and `selector` says which lanes have it.
struct GroupProduct {
  Slot a[4], b, keeps_d, metadata;
  u32 flags, selector;  // WarpGroupProduct
};
// tcgen05.alloc, dealloc, ld, st, cp and shift: Instruction::address is one in tensor memory; of
// alloc it is in shared memory. The registers of ld and st are Kernel::fragments.
struct TensorMove {
  Slot columns, matrix;      // of alloc and dealloc; the descriptor of cp
  Slot reduced;              // of ld.red: the result
  u32 shape, packed, apart;  // TensorShape; 16 bits of each column; columns between the halves
  u32 two_blocks;            // .cta_group::2
  u32 bits;                  // of an element of cp that it widens to eight; 0 for others
  u32 reduction;             // TensorReduction
};
// tcgen05.mma. Instruction::address is D's; the masks of lanes to leave out are Kernel::fragments.
struct TensorProduct {
  Slot a, b, descriptor, keeps_d, scale_a, scale_b, metadata;
  Slot zero_columns;  // the descriptor of a mask of B's columns
  u32 a_offset, scale_a_offset, scale_b_offset, metadata_offset;
  u32 kind, flags, shift;  // TensorKind, TensorFlags
};
// tcgen05.commit. Instruction::address is the mbarrier's.
struct TensorCommit {
  Slot blocks;  // a mask of ranks
};
struct Barrier {
  Slot result, number, threads, vote;
  u32 unaligned;
};

// ---- calls: offsets are those of parameters in the frame ----

// Of a call through a register, `target`, Python makes some of known functions.
struct Call {
  Slot frame, target;
  u32 caller_bytes, callee_bytes;  // of the frames; the callee's with all that it calls at least
};
struct ParameterCopy {
  Slot frame;
  u32 source, destination, bytes;
};
// Of a function that the machine provides.
struct SystemCall {
  Slot frame;
  u32 argument[5], result;
};

}  // namespace operands
}  // namespace workbench::ptx
