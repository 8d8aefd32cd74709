// Operations on a captured stream, each a host function in its graph.
#pragma once
#include "host_call.hpp"

namespace workbench::torch_device {

// One operation of a graph; each replay runs it again on the same memory.
class Recorded {
 public:
  // Adds an operation to the current stream's graph, which keeps it.
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
