// Operands of tcgen05 in shared memory, and the blocks that execute an instruction.
#pragma once
#include <vector>

#include "matrices/group_operand.hpp"
#include "matrices/tensor_memory.hpp"

namespace workbench::ptx {

// Whether columns are allocated; reports it otherwise.
bool is_ours(Warp& warp, const Instruction& in, u32 first, u32 columns);

// The block, and for .cta_group::2 both blocks of its pair, whose ranks differ in the last bit, in
// the order of ranks. Empty, after reporting it, if there is no pair.
std::vector<Block*> blocks_of(Warp& warp, const Instruction& in, u32 lane, bool pair);

// The matrix that a tcgen05 descriptor describes: rows of `chunks` 16-byte chunks along K each, or,
// if transposed, chunks along the rows. The layouts are wgmma's, but the field that selects them
// differs.
struct TensorOperand {
  wgmma::Descriptor from;
  u64 bits;
  bool transposed;
  u32 rows, chunks, together;  // `together`: elements in 16 bytes

  TensorOperand(u64 descriptor, bool is_transposed, u32 row_count, u32 row_chunks,
                u32 element_bytes)
      : from(descriptor),
        bits(descriptor),
        transposed(is_transposed),
        rows(row_count),
        chunks(row_chunks),
        together(wgmma::kChunk / element_bytes) {
    // The mode by wgmma's numbers.
    static constexpr u32 modes[] = {0, wgmma::kAtomsOf32, 1, 0, 2, 0, 3, 0};
    from.mode = modes[layout()];
  }

  // Moves to the next 32 bytes of the rows, for an operand with more along K.
  void advance() {
    if (transposed)
      from.start += 2 * together / 8 * (from.mode ? from.stride : from.leading);
    else
      from.start += from.mode ? wgmma::kRowBytes : 2 * from.leading;
  }

  u32 layout() const { return static_cast<u32>(bits >> 61); }
  u32 count() const { return rows * chunks; }
  u32 offset(u32 number) const {
    return transposed ? from.along_rows(number % (rows / together), number / (rows / together))
                      : from.along_k(number / chunks, number % chunks);
  }
  // The operand in wgmma's form, which has two chunks in a row and transposes elements of 16 bits.
  wgmma::Operand as_of_group() const { return {from, transposed, 0, rows}; }
  bool is_regular(u32 shared_bytes) const {
    return chunks == 2 && rows % 8 == 0 && (!transposed || together == 8) &&
           wgmma::is_regular(as_of_group(), shared_bytes);
  }
  // Whether the descriptor is valid and its chunks are in shared memory; reports it otherwise.
  bool check(Warp& warp, const Instruction& in, u32 lane, const Block& block) const;
  // With checks, records that the operand is read from now until a thread passes the mbarrier of a
  // commit.
  void look(Warp& warp, const Instruction& in, u32 lane, Block& block) const;
  // Copies the operand by rows of 32 bytes, or, if transposed, by K.
  void gather(const Block& block, u8* out) const;
};

}  // namespace workbench::ptx
