// Indexes of 32 bits that wrap, and the addresses that are computed from them.
//
// Python lists the instructions on the paths from a 32-bit sum, product or shift to an address
// (index_slices.py). A value that fits neither as signed nor as unsigned is off by a multiple of
// 2**32, and so are the values computed from it: sums, products and shifts propagate the
// difference, and remove it where two such values cancel.
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
  access  // a memory access, whose address is the first source
};

// How one instruction propagates the differences of its sources. Registers have numbers; -1 stands
// for a register that is never off.
struct WrapStep {
  WrapWay way = WrapWay::none;
  bool starts = false;        // its own result may wrap
  bool wide_factors = false;  // it multiplies values of 64 bits
  s32 result = -1;
  s32 source[3] = {-1, -1, -1};
};

// The registers of a warp whose value is off in some lane.
class WrappedIndexes {
 public:
  // Propagates the differences of the sources in the lanes of `mask`, before the instruction runs;
  // the instruction's own result wraps in the lanes of `own`.
  void follow(const u8* registers, const Instruction& in, const WrapStep& step, u32 mask, u32 own,
              s32 pc);
  // The pc of the instruction at which a lane's value of a register wrapped; -1 if it is not off.
  s32 begun(s32 number, u32 lane) const;
  bool empty() const { return registers_.empty(); }

 private:
  struct Lane {
    s64 turns = 0;  // difference in units of 2**32
    s32 pc = -1;    // pc at which it began
  };
  using Lanes = std::array<Lane, kLanes>;
  const Lanes& of(s32 number) const;

  std::unordered_map<s32, Lanes> registers_;
};

// Makes the instructions with an entry in `steps` (one for each instruction) keep WrappedIndexes up
// to date.
void follow_indexes(Kernel& kernel, std::vector<WrapStep> steps);

}  // namespace workbench::ptx
