// Cuts the body of a kernel into statements and other items; parse.py reads the pieces.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

// One item. The shape of a statement is its opcode and its operands, each name without the digits
// at its end ("add.s32 %r, %r, 5"). A branch to a label has the label instead, and no shape.
struct ScannedItem {
  std::size_t start = 0;  // in the text
  bool is_statement = false, negated = false;
  std::string_view guard, label;  // of a branch its target, otherwise the label's own name
  std::string shape;
  std::vector<std::string_view> names;  // of its operands
};

// Visits the items of a body. If some text is no known item, the last call gets it.
void scan_body(std::string_view text, std::size_t begin, std::size_t end,
               const std::function<void(const ScannedItem&)>& visit);

}  // namespace workbench::ptx
