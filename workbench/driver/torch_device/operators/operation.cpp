#include "operation.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/enum_tag.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "captures.hpp"
#include "recording.hpp"

namespace workbench::torch_device {
namespace {

bool captures() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace

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
      workbench_driver_on_host(reinterpret_cast<std::uint64_t>(tensor.const_data_ptr()));
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
    const bool has_order =
        workbench_driver_follows_writes() || workbench_driver_is_late() || captures();
    return traits_.name == "aten::copy_" && has_order ? of_copy(tensor, argument) : tensor;
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
  if (value.isTensor()) return tensors_.to_device(value.toTensor(), index, &fresh_, with_values_);
  if (value.isTensorList()) {
    c10::List<Tensor> made;
    for (const Tensor& each : value.toTensorVector()) {
      made.push_back(tensors_.to_device(each, index, &fresh_, with_values_));
    }
    return made;
  }
  return value;
}

namespace {

// Lets a device's stream wait for another device's, as torch's own copy between devices does.
void wait_for_device(int device, int other) {
  at::cuda::CUDAEvent event;
  event.record(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(other)));
  event.block(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

// The other device of a copy between devices, or -1.
int Operation::other_device() const {
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    if (traits_.name == "aten::copy_" && pair.device.get_device() != device_)
      return pair.device.get_device();
  }
  return -1;
}

void Operation::run() {
  take_arguments();
  std::optional<c10::cuda::CUDAGuard> guard;
  if (c10::cuda::device_count() > 1) guard.emplace(static_cast<c10::DeviceIndex>(device_));
  if (captures()) return capture();
  const int other = other_device();
  if (other >= 0) wait_for_device(device_, other);
  const c10::cuda::CUDAStream stream =
      c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_));
  if (workbench_driver_is_late()) {
    if (may_be_late()) return put_off();
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  TORCH_CHECK(workbench_driver_settle(stream), "CUDA error: ", workbench_driver_latest_error());
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
  workbench_driver_operator(stream, traits_.name.c_str(), bytes, written.data(), written.size(),
                            read.data(), read.size(), traits_.waits || waits_for_copy_);
  if (other >= 0) wait_for_device(other, device_);
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

void Operation::capture() {
  const bool copies_host = traits_.name == "aten::copy_" && host_tensors_;
  TORCH_CHECK(!traits_.waits && (!copies_host || (page_locked_.defined() && !waits_for_copy_)),
              "CUDA error: operation not permitted when stream is capturing (", traits_.name, ")");
  record(/*once=*/false);
}

// Whether the operation can be put off: it refuses no values, and uses no memory of the host that
// is not page-locked.
bool Operation::may_be_late() const {
  if (!traits_.late && !handle_.hasTag(at::Tag::pointwise)) return false;
  if (traits_.refuses || waits_for_copy_ || (host_tensors_ && !page_locked_.defined()))
    return false;
  return std::ranges::all_of(tensors_.pairs, [&](const HostTensors::Pair& pair) {
    return pair.device.layout() == c10::kStrided && pair.device.get_device() == device_;
  });
}

void Operation::put_off() {
  with_values_ = false;
  for (std::size_t i = first_; i < stack_.size(); ++i) {
    // A number on the host, which the host may change.
    if (stack_[i].isTensor() && stack_[i].toTensor().defined() && stack_[i].toTensor().dim() == 0 &&
        !traits_.written[i - first_] && !on_device(stack_[i].toTensor()))
      stack_[i] = stack_[i].toTensor().clone();
  }
  record(/*once=*/true);
  keep_page_locked();
}

bool Operation::on_device(const Tensor& host) const {
  return std::ranges::any_of(tensors_.pairs, [&](const HostTensors::Pair& pair) {
    return pair.host.unsafeGetTensorImpl() == host.unsafeGetTensorImpl();
  });
}

// Runs the operation now to find its shapes, and restores the bytes. The stream, or the graph that
// it is captured into, runs it again, on the bytes of that time.
void Operation::record(bool once) {
  Stack arguments(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
  std::vector<std::pair<char*, std::string>> before;
  const auto keep = [&](const Tensor& written) {
    if (written.numel() == 0) return;
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < written.dim(); ++i)
      last += (written.size(i) - 1) * written.stride(i);
    char* begin = static_cast<char*>(written.mutable_data_ptr());
    before.emplace_back(
        begin, std::string(begin, static_cast<std::size_t>(last + 1) * written.itemsize()));
  };
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    if (pair.written) keep(pair.host);
  }
  if (page_locked_.defined() && page_locked_is_written_) keep(stack_[first_].toTensor());
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
                read_elements(), page_locked_, once);
}

}  // namespace workbench::torch_device
