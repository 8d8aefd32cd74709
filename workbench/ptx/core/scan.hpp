// The body of a kernel as text, cut into statements and what else stands in it; parse.py reads the
// pieces.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

// One item. A statement has a shape: its opcode and its operands, with each name cut down to what
// precedes the digits at its end ("add.s32 %r, %r, 5"). A branch to a label has the label instead,
// and no shape.
struct ScannedItem {
  std::size_t start = 0;  // in the text
  bool is_statement = false, negated = false;
  std::string_view guard, label;  // of a branch its target, else the label's own name
  std::string shape;
  std::vector<std::string_view> names;  // of its operands
};

// Visits the items of a body. The last one is what cannot be told from anything else, where there
// is such a thing.
void scan_body(std::string_view text, std::size_t begin, std::size_t end,
               const std::function<void(const ScannedItem&)>& visit);

}  // namespace workbench::ptx
