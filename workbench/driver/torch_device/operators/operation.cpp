#include "operation.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/util/Exception.h>

#include "captures.hpp"
#include "recording.hpp"

namespace workbench::torch_device {
void Operation::refuse_devices(const std::string& one, const std::string& other,
                               std::size_t argument) const {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              one, " and ", other, "! (when checking argument for argument ",
              handle_.schema().arguments()[argument].name(), " in method wrapper_CUDA_",
              traits_.name.substr(traits_.name.find("::") + 2), ")");
}

// The host's tensor of a copy between host and device. A copy with page-locked memory goes on when
// the host does not wait for it; one to other memory never does.
Tensor Operation::of_copy(const Tensor& tensor, std::size_t argument) {
  const bool non_blocking = stack_[first_ + 2].toBool();
  if (tensor.numel() == 0) return tensor;
  const bool page_locked =
      workbench_driver_on_host_alone(reinterpret_cast<std::uint64_t>(tensor.const_data_ptr()));
  waits_for_copy_ = !non_blocking || (!page_locked && argument == 0);
  if (!page_locked) return tensor;
  page_locked_ = tensor;
  page_locked_is_written_ = argument == 0;
  return host_tensor(tensor);
}

Tensor Operation::to_host(const Tensor& tensor, std::size_t argument) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) {
    if (tensor.dim() > 0) {
      if (device_ >= 0 && !traits_.any_device) {
        refuse_devices("cuda:" + std::to_string(device_), tensor.device().str(), argument);
      }
      host_tensors_ = true;
    }
    return traits_.name == "aten::copy_" && workbench_driver_follows_writes()
               ? of_copy(tensor, argument)
               : tensor;
  }
  if (host_tensors_ && !traits_.any_device) refuse_devices(tensor.device().str(), "cpu", argument);
  if (device_ >= 0 && device_ != tensor.get_device() && traits_.name != "aten::copy_" &&
      tensor.dim() > 0) {
    refuse_devices("cuda:" + std::to_string(device_), tensor.device().str(), argument);
  }
  if (device_ < 0 || tensor.dim() > 0) device_ = tensor.get_device();
  return tensors_.to_host(tensor, traits_.written[argument]);
}

IValue Operation::to_host(const IValue& value, std::size_t argument) {
  if (value.isTensor()) return to_host(value.toTensor(), argument);
  if (value.isDevice() && value.toDevice().is_cuda()) {
    device_ = value.toDevice().has_index() ? value.toDevice().index() : c10::cuda::current_device();
    return c10::Device(c10::kCPU);
  }
  if (value.isTensorList()) {
    c10::List<Tensor> made;
    for (const Tensor& each : value.toTensorVector()) made.push_back(to_host(each, argument));
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> made;
    for (const std::optional<Tensor> each : value.toOptionalTensorList()) {
      made.push_back(each ? std::optional(to_host(*each, argument)) : std::nullopt);
    }
    return made;
  }
  return value;
}

void Operation::take_arguments() {
  first_ = stack_.size() - traits_.arguments;
  for (std::size_t i = 0; i < traits_.arguments; ++i) {
    IValue& value = stack_[first_ + i];
    if (value.isTensor() || value.isDevice() || value.isTensorList() ||
        value.isOptionalTensorList()) {
      value = to_host(value, i);
    }
  }
  if (device_ < 0) device_ = c10::cuda::current_device();
  if (traits_.generator) {
    IValue& value = stack_[first_ + *traits_.generator];
    const auto index = static_cast<c10::DeviceIndex>(device_);
    const at::Generator generator =
        value.isNone() ? at::cuda::detail::getDefaultCUDAGenerator(index) : value.toGenerator();
    random_ = RandomPosition::next(generator);
    value = host_generator();
  } else if (traits_.draws) {
    random_ = RandomPosition::next(
        at::cuda::detail::getDefaultCUDAGenerator(static_cast<c10::DeviceIndex>(device_)));
  }
}

IValue Operation::to_device(const IValue& value) {
  const auto index = static_cast<c10::DeviceIndex>(device_);
  if (value.isTensor()) return tensors_.to_device(value.toTensor(), index, &fresh_);
  if (value.isTensorList()) {
    c10::List<Tensor> made;
    for (const Tensor& each : value.toTensorVector()) {
      made.push_back(tensors_.to_device(each, index, &fresh_));
    }
    return made;
  }
  return value;
}

void Operation::run() {
  take_arguments();
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None)
    return capture();
  Reads reads(traits_, handle_);
  if (workbench_driver_follows_writes()) reads.before(stack_, tensors_);
  std::optional<LoggedCall> logged;
  if (workbench_driver_records()) logged.emplace(handle_, stack_);
  run_on_host(traits_, handle_, stack_, random_);
  take_results();
  if (logged) logged->finish(torch::jit::last(stack_, traits_.results));
  std::uint64_t bytes = 0;
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    bytes += bytes_in(pair.device);
  }
  for (const Tensor& made : fresh_) {
    bytes += bytes_in(made);
  }
  const auto written = written_elements();
  const auto read = read_elements();
  workbench_driver_operator(c10::cuda::getCurrentCUDAStream(), traits_.name.c_str(), bytes,
                            written.data(), written.size(), read.data(), read.size(),
                            traits_.waits || waits_for_copy_);
  keep_page_locked();
  reads.after(stack_);
}

c10::SmallVector<Elements, 4> Operation::written_elements() const {
  c10::SmallVector<Elements, 4> found;
  const auto add = [&](const Tensor& device) {
    if (const Elements elements = elements_of(device); elements.size) found.push_back(elements);
  };
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    if (pair.written) add(pair.device);
  }
  for (const Tensor& made : fresh_) add(made);
  if (page_locked_.defined() && page_locked_is_written_) add(page_locked_);
  return found;
}

c10::SmallVector<Elements, 4> Operation::read_elements() const {
  c10::SmallVector<Elements, 4> found;
  if (!workbench_driver_follows_writes()) return found;
  const auto add = [&](const Tensor& device) {
    if (const Elements elements = elements_of(device); elements.size) found.push_back(elements);
  };
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    if (!pair.written) add(pair.device);
  }
  if (page_locked_.defined() && !page_locked_is_written_) add(page_locked_);
  return found;
}

// As torch's own copy does: the allocator of page-locked memory hands out a block again only when
// the copies of its stream have ended.
void Operation::keep_page_locked() const {
  if (!page_locked_.defined() || waits_for_copy_) return;
  const c10::DataPtr& data = page_locked_.storage().data_ptr();
  at::getHostAllocator(at::kCUDA)->record_event(const_cast<void*>(page_locked_.storage().data()),
                                                data.get_context(),
                                                c10::cuda::getCurrentCUDAStream().unwrap());
}

void Operation::take_results() {
  tensors_.finish();
  for (std::size_t i = stack_.size() - traits_.results; i < stack_.size(); ++i) {
    if (stack_[i].isTensor() || stack_[i].isTensorList()) stack_[i] = to_device(stack_[i]);
  }
}

// Runs the operation now to find its shapes, and restores the bytes; the graph runs it again, on
// the bytes of that time.
void Operation::capture() {
  TORCH_CHECK(!traits_.waits && !(traits_.name == "aten::copy_" && host_tensors_),
              "CUDA error: operation not permitted when stream is capturing (", traits_.name, ")");
  Stack arguments(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
  std::vector<std::pair<char*, std::string>> before;
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    if (!pair.written || pair.host.numel() == 0) continue;
    std::int64_t last = pair.host.storage_offset();
    for (std::int64_t i = 0; i < pair.host.dim(); ++i)
      last += (pair.host.size(i) - 1) * pair.host.stride(i);
    char* begin = static_cast<char*>(pair.host.mutable_data_ptr());
    before.emplace_back(
        begin, std::string(begin, static_cast<std::size_t>(last + 1 - pair.host.storage_offset()) *
                                      pair.host.itemsize()));
  }
  const std::optional<RandomPosition> random = random_;
  const auto now = random ? std::optional(RandomPosition{at::PhiloxCudaState(0, 0)}) : std::nullopt;
  run_on_host(traits_, handle_, stack_, now);
  take_results();
  const auto written = written_elements();
  for (const Elements& one : written) workbench_driver_mark(&one, nullptr, 0);
  for (const auto& [address, bytes] : before) std::memcpy(address, bytes.data(), bytes.size());
  if (before.empty() && fresh_.empty()) return;
  std::vector<Tensor> results;
  for (const Tensor& made : fresh_) results.push_back(host_tensor(made));
  Recorded::add(traits_, handle_, std::move(arguments), std::move(results), random, written,
                read_elements());
}

}  // namespace workbench::torch_device
