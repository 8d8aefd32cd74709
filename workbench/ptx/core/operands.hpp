// The places of an instruction's operands, by the kind of its handler.
//
// The families in Python use these names (python_operands.cpp). A missing operand is kNoSlot; other
// numbers are stored as they are.
#pragma once
#include "types.hpp"

namespace workbench::ptx {

// A byte offset into the register file: 32 lanes of 2, 4 or 8 bytes, or one 32-bit mask for a
// predicate.
using Slot = u32;
constexpr Slot kNoSlot = 0xffffffffu;
constexpr Slot kTrueSlot = 0;  // guard of unguarded instructions: a predicate that is always true

namespace operands {

struct Elementwise {
  Slot destination, source[5];
};
// A comparison. The inverse of the result is written too; Instruction::combine says how `third` is
// combined with it.
struct Comparison {
  Slot result, inverse, a, b, third;
};
struct Unpacking {
  Slot part[4], source;
};
// An addition or subtraction with carry. The flag is a predicate.
struct Carrying {
  Slot destination, a, b, c, carry_in, carry_out;
};

// ---- memory: with Instruction::address and offset ----

struct Access {
  Slot data[8];  // registers that are loaded or stored
};
struct Atomic {
  Slot old, operand, second;
  // Upper halves of 128-bit operands; the operands above are then the lower halves.
  Slot old_high, operand_high, second_high;
};
// cp.async from global memory. `ignored` is the predicate of ignore-src; `offset` and `flags`
// belong to the destination's register.
struct AsyncCopy {
  Slot destination, size, ignored;
  u32 offset, flags;
};
struct AsyncStore {
  Slot data[4], mbarrier;
};
// An mbarrier operation. `operand`: a count, bytes, a state or its parity. `expected`: bytes that
// an arrival adds to the expected count first.
struct Mbarrier {
  Slot result, operand, expected;
  u32 may_give_up;  // of try_wait: it may return false before the phase is complete
};
// A bulk copy. Instruction::address is that of global memory, of the tensor map, or of the shared
// memory to copy from.
struct Bulk {
  Slot shared, mbarrier, size, coordinate[5], multicast;
  Slot bytes;  // mask of the bytes of each sixteen that are copied (.cp_mask)
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

// shfl, vote, match, redux and elect. Only shfl has `lane` and `control`.
struct Exchange {
  Slot result, predicate, value, lane, control;
};
// mma.
struct Product {
  Slot d[4], a[4], b[2], c[4];
};
// mma with block scales. `selectors` has 16 bits each: byte and thread of A, then byte and thread
// of B.
struct ScaledProduct {
  Slot d[4], a[4], b[2], c[4], scale_a, scale_b, selectors;
};
// mma.sp, with or without scales. D's registers are in Kernel::fragments. `ordered` is set for
// .sp::ordered_metadata; `selectors` as in ScaledProduct.
struct SparseProduct {
  Slot a[4], b[4], c[4], metadata;
  u32 selector, ordered;
  Slot scale_a, scale_b, selectors;
};
// wgmma. A is in registers or described by Instruction::address; D's registers are in
// Kernel::fragments. `metadata` belongs to a sparse A, and `selector` says which lanes hold it.
struct GroupProduct {
  Slot a[4], b, keeps_d, metadata;
  u32 flags, selector;  // WarpGroupProduct
};
// tcgen05.alloc, dealloc, ld, st, cp and shift. Instruction::address is in tensor memory, for alloc
// in shared memory. The registers of ld and st are in Kernel::fragments.
struct TensorMove {
  Slot columns, matrix;  // of alloc and dealloc; the descriptor of cp
  Slot reduced;          // of ld.red: the result
  // TensorShape; whether two columns of 16 bits share a register; columns between the halves.
  u32 shape, packed, apart;
  u32 two_blocks;  // .cta_group::2
  u32 bits;        // bits of an element that cp widens to eight; 0 for other copies
  u32 reduction;   // TensorReduction
};
// tcgen05.mma. Instruction::address is D's; the masks of lanes to keep are in Kernel::fragments.
struct TensorProduct {
  Slot a, b, descriptor, keeps_d, scale_a, scale_b, metadata;
  Slot zero_columns;  // the descriptor of a mask of B's columns
  u32 a_offset, scale_a_offset, scale_b_offset, metadata_offset;
  u32 kind, flags, shift;  // TensorKind, TensorFlags
};
// tcgen05.commit. Instruction::address is the mbarrier's.
struct TensorCommit {
  Slot blocks;  // mask of ranks in the cluster
};
struct Barrier {
  Slot result, number, threads, vote;
  u32 unaligned;
};

// ---- calls: offsets are those of parameters in the frame ----

// A call. For a call through a register (`target`), Python generates one for each function that it
// may reach.
struct Call {
  Slot frame, target;
  // Bytes of the frames; the callee's includes the functions that it calls.
  u32 caller_bytes, callee_bytes;
};
struct ParameterCopy {
  Slot frame;
  u32 source, destination, bytes;
};
// A call of a function that the machine provides.
struct SystemCall {
  Slot frame;
  u32 argument[5], result;
};

}  // namespace operands
}  // namespace workbench::ptx
