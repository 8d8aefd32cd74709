#include "host_call.hpp"

#include <ATen/ops/_to_copy.h>
#include <c10/util/Exception.h>

#include "result_memory.hpp"

namespace workbench::torch_device {
namespace {

bool narrow(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 || type == at::kComplexHalf;
}

at::ScalarType widened_type(at::ScalarType type) {
  if (type == at::kBool) return at::kByte;
  return type == at::kComplexHalf ? at::kComplexFloat : at::kFloat;
}

// The type of a result that was computed in a wide type; `wanted` is the type of the arguments.
at::ScalarType narrowed_type(at::ScalarType made, at::ScalarType wanted) {
  if (made == at::kFloat) return c10::toRealValueType(wanted);
  const bool half = c10::toRealValueType(wanted) == at::kHalf;
  return made == at::kComplexFloat && half ? at::kComplexHalf : made;
}

// A call of the CPU's kernel with arguments on the host.
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

}  // namespace

at::Generator& host_generator() {
  thread_local at::Generator generator = at::detail::createCPUGenerator();
  return generator;
}

void run_on_host(const Traits& traits, const OperatorHandle& handle, Stack& stack,
                 const std::optional<RandomPosition>& random) {
  const ResultsReused reused;
  const auto call = [&] { HostCall(traits, handle, stack).run(); };
  if (!random) return call();
  if (traits.generator) {
    host_generator().set_current_seed(random->seed());
    return call();
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();  // the kernel's generator
  const Tensor before = generator.get_state();
  generator.set_current_seed(random->seed());
  call();
  generator.set_state(before);
}

void HostCall::run() {
  const std::size_t first = stack_.size() - traits_.arguments;
  bool any_narrow = false, any_bool = false;
  for (std::size_t i = first; i < stack_.size(); ++i) {
    each_tensor(stack_[i], [&](const Tensor& tensor) {
      any_narrow |= narrow(tensor.scalar_type());
      any_bool |= tensor.scalar_type() == at::kBool;
    });
  }
  if (any_narrow && traits_.wide)
    return run_wide(Stack(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end()));
  if (!any_narrow && !any_bool)
    return handle_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack_);
  Stack arguments(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
  try {
    handle_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack_);
  } catch (const c10::NotImplementedError&) {  // the CPU supports fewer types
    stack_.resize(first);
    stack_.insert(stack_.end(), arguments.begin(), arguments.end());
    run_wide(std::move(arguments));
  }
}

void HostCall::run_wide(Stack arguments) {
  std::optional<at::ScalarType> wanted;
  bool any_bool = false;
  std::vector<std::pair<Tensor, Tensor>> widened;  // written tensors and their wide copies
  const auto wide = [&](const Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    const at::ScalarType type = tensor.scalar_type();
    if (!narrow(type) && type != at::kBool) return tensor;
    if (narrow(type) && !wanted) wanted = type;
    any_bool |= type == at::kBool;
    Tensor made = tensor.to(widened_type(type));
    if (written) widened.emplace_back(tensor, made);
    return made;
  };
  bool keep = false;
  const auto& schema = handle_.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    IValue& value = arguments[i];
    if (value.isTensor()) {
      value = wide(value.toTensor(), traits_.written[i]);
    } else if (value.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& each : value.toTensorVector())
        made.push_back(wide(each, traits_.written[i]));
      value = made;
    } else if (value.isInt() &&
               (schema[i].name() == "dtype" || schema[i].name() == "input_dtype")) {
      wanted = static_cast<at::ScalarType>(value.toInt());
      if (narrow(*wanted)) value = static_cast<std::int64_t>(widened_type(*wanted));
    } else if (value.isBool() && schema[i].name() == "half_to_float") {
      keep |= value.toBool();
      value = false;
    }
  }
  stack_.resize(stack_.size() - traits_.arguments);
  const std::size_t first = stack_.size();
  stack_.insert(stack_.end(), arguments.begin(), arguments.end());
  handle_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack_);
  const bool statistics =
      traits_.name == "aten::native_layer_norm" || traits_.name == "aten::native_batch_norm";
  for (std::size_t i = first; i < stack_.size(); ++i) {
    if (!stack_[i].isTensor() || !stack_[i].toTensor().defined()) continue;
    const Tensor made = stack_[i].toTensor();
    const auto written = std::find_if(widened.begin(), widened.end(), [&](const auto& pair) {
      return pair.second.unsafeGetTensorImpl() == made.unsafeGetTensorImpl();
    });
    if (written != widened.end()) {
      stack_[i] = written->first;
    } else if (wanted && !keep && !(statistics && i > first) &&
               narrowed_type(made.scalar_type(), *wanted) != made.scalar_type()) {
      stack_[i] = made.to(narrowed_type(made.scalar_type(), *wanted));
    } else if (made.scalar_type() == at::kByte && any_bool) {
      stack_[i] = made.to(at::kBool);
    }
  }
  for (auto& [narrow_one, wide_one] : widened) {
    if (narrow_one.sizes() != wide_one.sizes()) narrow_one.resize_(wide_one.sizes());
    narrow_one.copy_(wide_one);
  }
}

}  // namespace workbench::torch_device
