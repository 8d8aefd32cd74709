// Unwritten elements that an operation reads, while checks follow written memory.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "host_tensors.hpp"
#include "traits.hpp"

namespace workbench::torch_device {

using c10::OperatorHandle;
using torch::jit::Stack;

class Reads {
 public:
  Reads(const Traits& traits, const OperatorHandle& handle) : traits_(traits), handle_(handle) {}

  // Reports what the operation will compute from unwritten elements; its arguments end the stack.
  void before(const Stack& stack, const HostTensors& tensors);
  // Marks what the operation took from unwritten elements to its results, which end the stack.
  void after(const Stack& stack) const;

 private:
  bool moves(const Stack& stack, std::size_t first) const;
  bool is_read(const Stack& stack, std::size_t first, std::size_t argument) const;
  void take_flags(const Stack& stack, std::size_t first, const HostTensors& tensors);

  const Traits& traits_;
  const OperatorHandle& handle_;
  std::uint64_t source_ = 0;  // address of a tensor with unwritten elements that move
  Stack flags_;  // the arguments, with a flag for each unwritten element as the values; or nothing
};

}  // namespace workbench::torch_device
