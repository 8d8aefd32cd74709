#include "operation.hpp"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/util/Exception.h>

#include "captures.hpp"

namespace workbench::torch_device {
namespace {

// Operators that sum many numbers, or end in a transcendental function: CUDA computes them in
// float32 and rounds once, but some of the CPU's kernels round each step.
const std::set<std::string> kWide = {
    "sum",
    "mean",
    "prod",
    "nansum",
    "cumsum",
    "cumprod",
    "cumsum_",
    "cumprod_",
    "norm",
    "std",
    "var",
    "std_mean",
    "var_mean",
    "linalg_vector_norm",
    "logsumexp",
    "logcumsumexp",
    "_logcumsumexp",
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "nll_loss_forward",
    "nll_loss_backward",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
    "mse_loss",
    "mse_loss_backward",
    "smooth_l1_loss",
    "smooth_l1_loss_backward",
    "huber_loss",
    "huber_loss_backward",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "_cdist_forward",
    "renorm",
    "_fft_r2c",
    "_fft_c2c",
    "_fft_c2r",
};

const std::set<std::string> kAnyDevice = {
    "copy_",
    "index",
    "index_put_",
    "_index_put_impl_",
    "index_put",
    "_pack_padded_sequence",
    "_unsafe_index",
    "_unsafe_index_put",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
};

const std::set<std::string> kDraws = {
    "native_dropout", "_fused_dropout", "rrelu_with_noise", "_sample_dirichlet", "_standard_gamma",
};

const std::set<std::string> kWaits = {
    "nonzero",
    "equal",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "bincount",
    "_local_scalar_dense",
};

}  // namespace

Traits::Traits(const c10::FunctionSchema& schema)
    : name(schema.name()), arguments(schema.arguments().size()), results(schema.returns().size()) {
  const std::string plain = name.substr(name.find("::") + 2);
  for (std::size_t i = 0; i < arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    const c10::TypePtr type = argument.type()->kind() == c10::TypeKind::OptionalType
                                  ? argument.type()->castRaw<c10::OptionalType>()->getElementType()
                                  : argument.type();
    if (type->kind() == c10::TypeKind::GeneratorType) generator = i;
  }
  wide = kWide.contains(plain);
  any_device = kAnyDevice.contains(plain);
  waits = kWaits.contains(plain);
  draws = kDraws.contains(plain);
}

void Operation::refuse_devices(const std::string& one, const std::string& other,
                               std::size_t argument) const {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              one, " and ", other, "! (when checking argument for argument ",
              handle_.schema().arguments()[argument].name(), " in method wrapper_CUDA_",
              traits_.name.substr(traits_.name.find("::") + 2), ")");
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
    return tensor;
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
  run_on_host(traits_, handle_, stack_, random_);
  take_results();
  std::uint64_t bytes = 0;
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    bytes += bytes_in(pair.device);
  }
  for (const Tensor& made : fresh_) {
    bytes += bytes_in(made);
  }
  const auto written = written_ranges();
  workbench_driver_operator(c10::cuda::getCurrentCUDAStream(), traits_.name.c_str(), bytes,
                            written.data(), written.size());
}

c10::SmallVector<Range, 4> Operation::written_ranges() const {
  c10::SmallVector<Range, 4> ranges;
  const auto add = [&](const Tensor& device) {
    if (const Range range = range_of(device); range.bytes) ranges.push_back(range);
  };
  for (const HostTensors::Pair& pair : tensors_.pairs) {
    if (pair.written) add(pair.device);
  }
  for (const Tensor& made : fresh_) add(made);
  return ranges;
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
  const auto written = written_ranges();
  workbench_driver_written(written.data(), written.size());
  for (const auto& [address, bytes] : before) std::memcpy(address, bytes.data(), bytes.size());
  if (before.empty() && fresh_.empty()) return;
  std::vector<Tensor> results;
  for (const Tensor& made : fresh_) results.push_back(host_tensor(made));
  Recorded::add(traits_, handle_, std::move(arguments), std::move(results), random);
}

}  // namespace workbench::torch_device
