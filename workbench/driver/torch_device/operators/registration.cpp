// Replaces the CUDA kernels of torch's operators by its CPU kernels.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_strided_native.h>
#include <c10/core/ScalarType.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include "operation.hpp"
#include "result_memory.hpp"

namespace workbench::torch_device {
namespace {

class HostKernel final : public c10::OperatorKernel {
 public:
  explicit HostKernel(const c10::FunctionSchema& schema) : traits_(schema) {}
  void operator()(const OperatorHandle& handle, DispatchKeySet, Stack* stack) {
    Operation(traits_, handle, *stack).run();
  }

 private:
  Traits traits_;
};

class Refusal final : public c10::OperatorKernel {
 public:
  void operator()(const OperatorHandle& handle, DispatchKeySet, Stack*) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, c10::toString(handle.operator_name()),
        " does not run on the simulated GPU: torch has a kernel for it on real ones alone");
  }
};

// Operators that keep their own CUDA kernels: allocation, shapes and views.
const std::set<std::string> kOwn = {
    "aten::empty",     "aten::empty_strided",        "aten::set_",
    "aten::resize_",   "aten::_local_scalar_dense",  "aten::record_stream",
    "aten::is_set_to", "aten::_efficientzerotensor",
};

// Reports to the driver which tensor was made, for the text of findings.
Tensor described(Tensor made) {
  if (!workbench_driver_follows_writes() || made.numel() == 0) return made;
  std::string text = std::string(c10::getDtypeNames(made.scalar_type()).first) + " (";
  for (std::int64_t i = 0; i < made.dim(); ++i)
    text += (i ? ", " : "") + std::to_string(made.size(i));
  text += made.dim() == 1 ? ",)" : ")";
  workbench_driver_tensor(reinterpret_cast<std::uint64_t>(made.const_data_ptr()), text.c_str(),
                          static_cast<std::uint32_t>(made.itemsize()));
  return made;
}

Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
             std::optional<c10::Layout> layout, std::optional<c10::Device> device,
             std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  return described(at::native::empty_cuda(size, dtype, layout, device, pinned, format));
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                     std::optional<c10::Device> device, std::optional<bool> pinned) {
  return described(at::native::empty_strided_cuda(size, stride, dtype, layout, device, pinned));
}

// Operators with one kernel for all devices, which dispatches on the device inside.
const std::vector<c10::OperatorName> kComposite = {
    {"aten::copy_", ""},    {"aten::ldexp_", ""},      {"aten::ldexp", "Tensor"},
    {"aten::ldexp", "out"}, {"aten::convolution", ""}, {"aten::convolution_backward", ""},
};

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}  // its warnings are of replaced kernels
};

// Reports every block of torch's caching allocator to the driver, in its requested size. A replayed
// graph uses its memory even after the allocator has freed it, so kernels are checked against whole
// segments there.
void report_block(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  if (entry.mempool_ != c10::MempoolId_t{0, 0}) return;
  if (entry.action_ == Entry::ALLOC) workbench_driver_block(entry.addr_, entry.size_, 1);
  if (entry.action_ == Entry::FREE_REQUESTED) workbench_driver_block(entry.addr_, entry.size_, 0);
  if (entry.action_ == Entry::FREE_COMPLETED) workbench_driver_block(entry.addr_, entry.size_, 2);
}

}  // namespace
}  // namespace workbench::torch_device

// Replaces the kernels. Returns the names of the operators without a CPU kernel, one per line.
extern "C" __attribute__((visibility("default"))) const char* workbench_exchange_operators() {
  using namespace workbench::torch_device;
  keep_result_memory();
  static std::string without;
  static std::vector<c10::RegistrationHandleRAII> kept;
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorName> names =
      dispatcher.getRegistrationsForDispatchKey(DispatchKey::CUDA);
  names.insert(names.end(), kComposite.begin(), kComposite.end());
  for (const c10::OperatorName& name : names) {
    const auto handle = dispatcher.findOp(name);
    if (!handle || !handle->hasSchema() || !name.name.starts_with("aten::")) continue;
    if (kOwn.contains(name.name) || is_view(handle->schema())) continue;
    const bool has_kernel = handle->hasComputedKernelForDispatchKey(DispatchKey::CPU);
    if (!has_kernel) without += c10::toString(name) + "\n";
    c10::KernelFunction kernel =
        has_kernel ? c10::KernelFunction::makeFromBoxedFunctor(
                         std::make_unique<HostKernel>(handle->schema()))
                   : c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Refusal>());
    kept.push_back(dispatcher.registerImpl(name, DispatchKey::CUDA, std::move(kernel), std::nullopt,
                                           nullptr, "workbench: the CPU's kernel"));
  }
  const auto replace = [&](const char* name, const char* overload, c10::KernelFunction kernel) {
    kept.push_back(dispatcher.registerImpl({name, overload}, DispatchKey::CUDA, std::move(kernel),
                                           std::nullopt, nullptr, "workbench: tells the driver"));
  };
  replace("aten::empty", "memory_format",
          c10::KernelFunction::makeFromUnboxedRuntimeFunction(&empty));
  replace("aten::empty_strided", "",
          c10::KernelFunction::makeFromUnboxedRuntimeFunction(&empty_strided));
  new std::vector<c10::RegistrationHandleRAII>(std::move(kept));  // kept to the end of the process
  return without.c_str();
}

// Makes the driver follow torch's caching allocator; called after torch.cuda.init(), which creates
// it.
extern "C" __attribute__((visibility("default"))) void workbench_follow_blocks() {
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(
      &workbench::torch_device::report_block);
}
