// Calls of torch's CPU kernels with tensors on the host.
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

// Calls the CPU's kernel with the arguments at the end of the stack, which are on the host; its
// random numbers begin at `random`.
void run_on_host(const Traits& traits, const OperatorHandle& handle, Stack& stack,
                 const std::optional<RandomPosition>& random);

// A generator on the host, which each operation seeds.
at::Generator& host_generator();

}  // namespace workbench::torch_device
