#include "matrices/tensor_operand.hpp"

#include "memory/cluster.hpp"

namespace workbench::ptx {
namespace {

using wgmma::kChunk;

void misuse(Warp& warp, const Instruction& in, u32 lane, const std::string& text) {
  warp.block->problem(Problem::tensor_misuse, in, warp.thread(lane), 0, 0, text);
}

}  // namespace

bool is_ours(Warp& warp, const Instruction& in, u32 first, u32 columns) {
  if (warp.block->tensor->is_allocated(first, columns)) return true;
  misuse(warp, in, 0,
         std::to_string(columns) + " columns of tensor memory from column " +
             std::to_string(first) + " on, which are not all allocated");
  return false;
}

std::vector<Block*> blocks_of(Warp& warp, const Instruction& in, u32 lane, bool pair) {
  Block& block = *warp.block;
  if (!pair) return {&block};
  const std::vector<Block*>& blocks = block.cluster->blocks;
  if (blocks.size() % 2) {
    misuse(warp, in, lane,
           ".cta_group::2 in a cluster of " + std::to_string(blocks.size()) +
               " blocks, where an even number belongs");
    return {};
  }
  Block &even = *blocks[block.rank & ~1u], &odd = *blocks[block.rank | 1u];
  if (even.ended || odd.ended) {
    misuse(warp, in, lane, ".cta_group::2 after the other block of the pair has ended");
    return {};
  }
  return {&even, &odd};
}

bool TensorOperand::check(Warp& warp, const Instruction& in, u32 lane, const Block& block) const {
  const auto wrong = [&](const char* text) {
    misuse(warp, in, lane, std::string("a matrix descriptor ") + text);
    return false;
  };
  if ((bits >> 46 & 7) != 1) return wrong("whose bits 46 to 48 are not 0b001");
  // PTX ISA, "Valid Combinations of Type-Size, Major-ness and Swizzling". It has no atom along K
  // for atoms of 32 bytes (its table "Layout for swizzle atoms"), nor has CUTLASS.
  const bool of_32 = layout() == 1;
  if (layout() % 2 && !of_32) return wrong("whose layout, in bits 61 to 63, PTX does not have");
  if (of_32 && !(transposed && together == 4))
    return wrong(
        "with a swizzle of 128 bytes in atoms of 32, which is for transposed elements of 32 bits");
  if (transposed && together == 4 && !of_32)
    return wrong(
        "of transposed elements of 32 bits, which need a swizzle of 128 bytes in atoms of 32 (1 in "
        "bits 61 to 63)");
  if (of_32 && from.start % 32) return wrong("whose start is no multiple of an atom's 32 bytes");
  if (from.moves_pattern())
    return wrong("with a base offset and a swizzle, which the machine does not know");
  if (bits >> 52 & 1) return wrong("with an absolute leading offset, which sm_103a alone has");
  const u32 size = block.launch->shared_bytes;
  if (is_regular(size)) return true;
  for (u32 number = 0; number < count(); ++number) {
    const u32 at = offset(number);
    if (at + kChunk <= size) continue;
    warp.block->problem(Problem::shared_out_of_bounds, in, warp.thread(lane), at, kChunk);
    return false;
  }
  return true;
}

void TensorOperand::look(Warp& warp, const Instruction& in, u32 lane, Block& block) const {
  if (!block.shadow) return;
  Shadow& shadow = *block.shadow;
  bool reported = false;
  Shadow::AsyncReader reader(shadow, warp, in, 1u << lane);
  const bool has_swizzles = shadow.has_swizzles();
  for (u32 number = 0; number < count(); ++number) {
    const u32 at = offset(number);
    if (has_swizzles && !reported)
      reported = wgmma::is_swizzled_otherwise(warp, in, from, at, Problem::tensor_misuse);
    reader.read(at, kChunk, reported);
    shadow.keep(warp, in, lane, at, kChunk);
    warp.block->tensor->keep(block, warp, at, kChunk);
  }
}

void TensorOperand::gather(const Block& block, u8* out) const {
  if (is_regular(block.launch->shared_bytes))
    return wgmma::gather_regular(as_of_group(), block.shared, out);
  for (u32 number = 0; number < count(); ++number)
    std::memcpy(out + number * kChunk, block.shared + offset(number), kChunk);
}

}  // namespace workbench::ptx
