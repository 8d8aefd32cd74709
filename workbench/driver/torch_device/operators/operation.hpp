// One torch operation on device tensors, run by the CPU's kernel on the same bytes.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/SmallVector.h>

#include <set>
#include <string>

#include "host_tensors.hpp"
#include "randomness.hpp"
#include "reads.hpp"

namespace workbench::torch_device {

using c10::OperatorHandle;
using torch::jit::Stack;

class Operation {
 public:
  Operation(const Traits& traits, const OperatorHandle& handle, Stack& stack)
      : traits_(traits), handle_(handle), stack_(stack) {}

  // Replaces the arguments on the stack by the results.
  void run();

 private:
  void take_arguments();
  IValue to_host(const IValue& value, std::size_t argument);
  Tensor to_host(const Tensor& tensor, std::size_t argument);
  Tensor of_copy(const Tensor& tensor, std::size_t argument);
  IValue to_device(const IValue& value);
  void take_results();
  c10::SmallVector<Elements, 4> written_elements() const;
  c10::SmallVector<Elements, 4> read_elements() const;
  int other_device() const;
  void keep_page_locked() const;
  bool on_device(const Tensor& host) const;
  void capture();
  bool may_be_late() const;
  void put_off();
  void record(bool once);
  [[noreturn]] void refuse_devices(const std::string& one, const std::string& other,
                                   std::size_t argument) const;

  const Traits& traits_;
  const OperatorHandle& handle_;
  Stack& stack_;
  std::size_t first_ = 0;  // index of the first argument
  int device_ = -1;
  bool host_tensors_ = false;
  std::optional<RandomPosition> random_;
  HostTensors tensors_;
  std::vector<Tensor> fresh_;
  // A copy between host and device: whether the host waits for it, and its page-locked tensor.
  bool waits_for_copy_ = false;
  Tensor page_locked_;
  bool page_locked_is_written_ = false;
  bool with_values_ = true;  // new results get their values now
};

}  // namespace workbench::torch_device
