// Operations on a captured stream, or put off, each a host function in a graph or stream.
#pragma once
#include <list>

#include "host_call.hpp"

namespace workbench::torch_device {

// The elements of tensors that may be gone when a graph is launched.
class KeptElements {
 public:
  explicit KeptElements(c10::ArrayRef<Elements> given) : elements_(given.begin(), given.end()) {
    for (Elements& one : elements_) {
      sizes_.emplace_back(one.sizes, one.sizes + one.rank);
      strides_.emplace_back(one.strides, one.strides + one.rank);
      one.sizes = sizes_.back().data();
      one.strides = strides_.back().data();
    }
  }
  const std::vector<Elements>& elements() const { return elements_; }

 private:
  std::vector<Elements> elements_;
  std::list<std::vector<std::int64_t>> sizes_, strides_;
};

// One operation of a graph; each replay runs it again on the same memory.
class Recorded {
 public:
  // Adds an operation to the current stream's graph, which keeps it; or, to run once, to the
  // stream. Nobody keeps the page-locked tensor of a copy, if there is one.
  static void add(const Traits& traits, const OperatorHandle& handle, Stack arguments,
                  std::vector<Tensor> results, const std::optional<RandomPosition>& random,
                  c10::ArrayRef<Elements> written, c10::ArrayRef<Elements> read,
                  const Tensor& page_locked, bool once);

 private:
  void replay();

  const Traits* traits_;
  OperatorHandle handle_;
  Stack arguments_;
  std::vector<Tensor> results_;
  std::optional<RandomPosition> random_;
  KeptElements written_, read_;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> page_locked_;
  std::uint32_t number_ = 0;  // for findings

  Recorded(const Traits& traits, OperatorHandle handle, Stack arguments,
           std::vector<Tensor> results, std::optional<RandomPosition> random,
           c10::ArrayRef<Elements> written, c10::ArrayRef<Elements> read)
      : traits_(&traits),
        handle_(std::move(handle)),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        random_(std::move(random)),
        written_(written),
        read_(read) {}
};

}  // namespace workbench::torch_device
