// Properties of torch's operators.
#pragma once
#include <ATen/core/function_schema.h>

#include <optional>
#include <string>
#include <vector>

namespace workbench::torch_device {

// Properties of an operator that its calls share.
struct Traits {
  explicit Traits(const c10::FunctionSchema& schema);

  std::string name;  // "aten::add"
  std::size_t arguments, results;
  std::vector<bool> written;              // for each argument
  std::vector<bool> read;                 // whether the values of the argument matter
  std::vector<bool> values;               // whether it holds values that an operator can move
  bool moves = false;                     // hands values on as they are, and computes none
  std::optional<std::size_t> beta;        // index of a factor of the first argument
  std::optional<std::size_t> gradients;   // of a convolution's backward: index of those it computes
  std::optional<std::size_t> accumulate;  // index of a flag for sums in place of moves
  std::optional<std::size_t> generator;   // index of the generator's argument
  bool draws = false;                     // uses random numbers without a generator's argument
  bool any_device = false;                // accepts host tensors beside device tensors
  bool wide = false;     // sums: computed in float32 and rounded once, as CUDA does
  bool waits = false;    // its results depend on values, so it cannot be captured
  bool late = false;     // may be put off, as operators may that compute each element alone
  bool refuses = false;  // an error for some values or shapes, so it may not be put off
};

}  // namespace workbench::torch_device
