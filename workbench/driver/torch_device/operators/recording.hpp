// The operators of a process for the driver's log (library/recording.hpp), so that another process
// can repeat them.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

extern "C" int workbench_driver_records();

namespace workbench::torch_device {

// One call of an operator: made before the call, which may change its arguments, and added to the
// log after it.
class LoggedCall {
 public:
  LoggedCall(const c10::OperatorHandle& handle, const torch::jit::Stack& stack);
  void finish(at::ArrayRef<c10::IValue> results);

 private:
  std::string name_, beyond_;  // what of it a log cannot have
  std::string json_, bytes_;
};

}  // namespace workbench::torch_device
