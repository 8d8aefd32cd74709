#include "reads.hpp"

#include <ATen/ops/zeros.h>

#include "host_call.hpp"

namespace workbench::torch_device {
namespace {

// The device's tensor for one on the host; undefined if it always was on the host.
Tensor on_device(const Tensor& host, const HostTensors& tensors) {
  for (const HostTensors::Pair& pair : tensors.pairs)
    if (pair.host.unsafeGetTensorImpl() == host.unsafeGetTensorImpl()) return pair.device;
  return {};
}

Tensor flags_of(const Tensor& host, const HostTensors& tensors) {
  Tensor flags = at::zeros(host.sizes(), at::TensorOptions().dtype(at::kByte));
  const Tensor device = on_device(host, tensors);
  const Elements elements = device.defined() ? elements_of(device) : Elements{};
  if (elements.size) workbench_driver_unwritten(&elements, flags.mutable_data_ptr<std::uint8_t>());
  return flags;
}

}  // namespace

bool Reads::moves(const Stack& stack, std::size_t first) const {
  return traits_.moves && !(traits_.accumulate && stack[first + *traits_.accumulate].toBool());
}

bool Reads::is_read(const Stack& stack, std::size_t first, std::size_t argument) const {
  if (traits_.beta && argument == 0) {
    const IValue& beta = stack[first + *traits_.beta];
    if (beta.isScalar() && beta.toScalar().equal(0)) return false;
  }
  // The gradient of the weight depends on the input (1), that of the input on the weight (2).
  if (traits_.gradients && (argument == 1 || argument == 2))
    return stack[first + *traits_.gradients].toBoolList().get(2 - argument);
  return traits_.read[argument];
}

void Reads::before(const Stack& stack, const HostTensors& tensors) {
  const std::size_t first = stack.size() - traits_.arguments;
  const bool to_host =
      traits_.name == "aten::copy_" && !on_device(stack[first].toTensor(), tensors).defined();
  const bool moves_values = !to_host && moves(stack, first);
  std::string reader = to_host ? "a copy to the host" : "torch's " + traits_.name.substr(6);
  while (reader.back() == '_') reader.pop_back();
  for (std::size_t i = 0; i < traits_.arguments; ++i) {
    if (!is_read(stack, first, i)) continue;
    const auto look = [&](const Tensor& host) {
      const Tensor device = on_device(host, tensors);
      const Elements elements = device.defined() ? elements_of(device) : Elements{};
      if (!elements.size || !workbench_driver_unwritten(&elements, nullptr)) return;
      if (moves_values && traits_.values[i])
        source_ = elements.address;
      else
        workbench_driver_read(&elements, reader.c_str());
    };
    each_tensor(stack[first + i], look);
    if (!stack[first + i].isOptionalTensorList()) continue;
    for (const std::optional<Tensor> each : stack[first + i].toOptionalTensorList())
      if (each) look(*each);
  }
  if (source_) take_flags(stack, first, tensors);
}

void Reads::take_flags(const Stack& stack, std::size_t first, const HostTensors& tensors) {
  for (std::size_t i = 0; i < traits_.arguments; ++i) {
    IValue value = stack[first + i];
    if (traits_.values[i] && value.isTensor()) {
      if (value.toTensor().defined()) value = flags_of(value.toTensor(), tensors);
    } else if (traits_.values[i] && value.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& each : value.toTensorVector()) made.push_back(flags_of(each, tensors));
      value = made;
    } else if (handle_.schema().arguments()[i].type()->kind() == c10::TypeKind::NumberType) {
      value = std::int64_t{0};
    }
    flags_.push_back(std::move(value));
  }
}

void Reads::after(const Stack& stack) const {
  if (flags_.empty()) return;
  Stack results = flags_;
  try {
    handle_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &results);
  } catch (const c10::Error&) {
    // The operation takes no flags, so its results count as written.
    return;
  }
  for (std::size_t i = 1; i <= traits_.results; ++i) {
    const IValue &value = stack[stack.size() - i], &flags = results[results.size() - i];
    if (!value.isTensor() || !value.toTensor().is_cuda() || !flags.isTensor()) continue;
    const Elements elements = elements_of(value.toTensor());
    const Tensor dense = flags.toTensor().contiguous();
    if (elements.size && dense.scalar_type() == at::kByte &&
        dense.sizes() == value.toTensor().sizes())
      workbench_driver_mark(&elements, dense.const_data_ptr<std::uint8_t>(), source_);
  }
}

}  // namespace workbench::torch_device
