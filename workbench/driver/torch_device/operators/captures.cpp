#include "captures.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <memory>

#include "recording.hpp"

namespace workbench::torch_device {

void Recorded::add(const Traits& traits, const OperatorHandle& handle, Stack arguments,
                   std::vector<Tensor> results, const std::optional<RandomPosition>& random,
                   c10::ArrayRef<Elements> written, c10::ArrayRef<Elements> read,
                   const Tensor& page_locked, bool once) {
  auto* made =
      new Recorded(traits, handle, std::move(arguments), std::move(results), random, written, read);
  if (page_locked.defined()) {
    made->page_locked_ = page_locked.storage().getWeakStorageImpl();
    made->number_ = workbench_driver_recorded("a captured copy");
  }
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const auto run_once = [](void* data) {
    const std::unique_ptr<Recorded> one(static_cast<Recorded*>(data));
    one->replay();
  };
  if (once) {
    C10_CUDA_CHECK(cudaLaunchHostFunc(stream, run_once, made));
    return;
  }
  cudaUserObject_t owner;
  C10_CUDA_CHECK(cudaUserObjectCreate(
      &owner, made, [](void* data) { delete static_cast<Recorded*>(data); }, 1,
      cudaUserObjectNoDestructorSync));
  cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  C10_CUDA_CHECK(
      cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  C10_CUDA_CHECK(cudaGraphRetainUserObject(graph, owner, 1, cudaGraphUserObjectMove));
  C10_CUDA_CHECK(
      cudaLaunchHostFunc(stream, [](void* data) { static_cast<Recorded*>(data)->replay(); }, made));
}

void Recorded::replay() {
  try {
    if (page_locked_ && page_locked_->expired()) workbench_driver_gone(number_);
    at::AutoDispatchBelowADInplaceOrView below;
    Stack stack(arguments_.begin(), arguments_.end());
    std::optional<LoggedCall> logged;
    if (workbench_driver_records()) logged.emplace(handle_, stack);
    run_on_host(*traits_, handle_, stack, random_);
    Stack placed;
    std::size_t next = 0;
    for (const IValue& value : stack) {
      each_tensor(value, [&](const Tensor& tensor) {
        bool argument = false;
        for (const IValue& given : arguments_) {
          each_tensor(given, [&](const Tensor& one) {
            argument |=
                one.storage().data() == tensor.storage().data() && one.storage().nbytes() != 0;
          });
        }
        const bool fresh = !argument && next < results_.size();
        if (fresh) results_[next].copy_(tensor);
        placed.emplace_back(fresh ? results_[next++] : tensor);
      });
    }
    if (logged) logged->finish(placed);
    const auto &written = written_.elements(), &read = read_.elements();
    workbench_driver_replayed(traits_->name.c_str(), written.data(), written.size(), read.data(),
                              read.size());
  } catch (const std::exception& error) {  // must not cross the driver's C interface
    std::fprintf(stderr, "workbench: %s of a CUDA graph failed: %s\n", traits_->name.c_str(),
                 error.what());
  }
}

}  // namespace workbench::torch_device
