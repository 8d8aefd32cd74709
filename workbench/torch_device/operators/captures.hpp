// Operations that a captured stream keeps: a host function of its graph.
#pragma once
#include "operation.hpp"

namespace workbench::torch_device {

template <class Body>
void each_tensor(const IValue& value, Body&& body) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) body(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& each : value.toTensorVector()) {
      if (each.defined()) body(each);
    }
  }
}

// The CPU's kernel, called with arguments on the host; they are the last of the stack.
class HostCall {
 public:
  HostCall(const Traits& traits, const OperatorHandle& handle, Stack& stack)
      : traits_(traits), handle_(handle), stack_(stack) {}
  void run();

 private:
  void run_wide(Stack arguments);

  const Traits& traits_;
  const OperatorHandle& handle_;
  Stack& stack_;
};

void run_on_host(const Traits& traits, const OperatorHandle& handle, Stack& stack,
                 const std::optional<RandomPosition>& random);

// One operation of a graph: it runs again with each replay, on the same memory.
class Recorded {
 public:
  // To the current stream's graph, which keeps it.
  static void add(const Traits& traits, const OperatorHandle& handle, Stack arguments,
                  std::vector<Tensor> results, const std::optional<RandomPosition>& random);

 private:
  void replay();

  const Traits* traits_;
  OperatorHandle handle_;
  Stack arguments_;
  std::vector<Tensor> results_;
  std::optional<RandomPosition> random_;

  Recorded(const Traits& traits, OperatorHandle handle, Stack arguments,
           std::vector<Tensor> results, std::optional<RandomPosition> random)
      : traits_(&traits),
        handle_(std::move(handle)),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        random_(std::move(random)) {}
};

}  // namespace workbench::torch_device
