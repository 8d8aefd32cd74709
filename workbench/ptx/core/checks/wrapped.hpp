// Indexes of 32 bits that wrap, and the addresses that are computed from them.
//
// Python names the instructions on the ways from a sum, product or shift of 32 bits to an address
// (index_slices.py). A value that fits neither with nor without a sign is off by a multiple of
// 2**32, and so is what is computed from it: sums, products and shifts carry that on, and take it
// away again where two such values cancel.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

struct Instruction;
struct Kernel;
struct Warp;

enum class WrapWay : u8 {
  none,
  move,
  choose,
  add,
  subtract,
  multiply,
  multiply_add,
  shift,
  access  // to memory, at the first source
};

// How one instruction carries on what its sources are off by. Registers have numbers; -1 stands for
// one that is never off.
struct WrapStep {
  WrapWay way = WrapWay::none;
  bool starts = false;        // its own result may wrap
  bool wide_factors = false;  // it multiplies values of 64 bits
  s32 result = -1;
  s32 source[3] = {-1, -1, -1};
};

// The registers of a warp that are off in some lane.
class WrappedIndexes {
 public:
  // Carries on what the sources are off by, in the lanes of `mask`, before the instruction runs;
  // those of `own` wrap in it.
  void follow(const u8* registers, const Instruction& in, const WrapStep& step, u32 mask, u32 own,
              s32 pc);
  // The pc of the instruction in which a lane's value of a register wrapped; -1 if it is not off.
  s32 begun(s32 number, u32 lane) const;
  bool empty() const { return registers_.empty(); }

 private:
  struct Lane {
    s64 turns = 0;  // of 2**32
    s32 pc = -1;    // where it began
  };
  using Lanes = std::array<Lane, kLanes>;
  const Lanes& of(s32 number) const;

  std::unordered_map<s32, Lanes> registers_;
};

// Makes the instructions of `steps`, one for each of the kernel, keep WrappedIndexes up to date.
void follow_indexes(Kernel& kernel, std::vector<WrapStep> steps);

}  // namespace workbench::ptx
