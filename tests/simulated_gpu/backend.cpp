// A CUDA backend for a build of torch that has none: tensors on cuda:N whose bytes lie in the simulated driver's memory.
//
// Memory comes from the driver, so that a tensor's address is a device address, which the host cannot read, and every
// kernel's access is checked against it. An operation runs as torch's CPU kernel on tensors over the driver's storage of
// the same bytes. On a captured stream it becomes a host function of the graph; what would wait there is refused. Fresh
// memory is all ones: NaN, or -1.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>

extern "C" {
int cuInit(unsigned);
int cuGetErrorString(int, const char**);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxPushCurrent_v2(void*);
int cuCtxPopCurrent_v2(void**);
int cuCtxSetCurrent(void*);
int cuMemAlloc_v2(std::uint64_t*, std::size_t);
int cuMemFree_v2(std::uint64_t);
int cuMemHostAlloc(void**, std::size_t, unsigned);
int cuMemFreeHost(void*);
int cuPointerGetAttribute(void*, int, std::uint64_t);
int cuStreamIsCapturing(void*, unsigned*);
int cuThreadExchangeStreamCaptureMode(unsigned*);
int cuLaunchHostFunc(void*, void (*)(void*), void*);
std::uint64_t workbench_driver_storage(std::uint64_t);
}

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

constexpr std::size_t kMostFilled = std::size_t{256} << 20;  // of fresh memory: more would take long
int device_count = 1;
thread_local DeviceIndex current_device = 0;
thread_local void* current_streams[8] = {};

void check(int code, const char* what) {
  if (code == 0) return;
  const char* why = "unknown error";
  cuGetErrorString(code, &why);
  TORCH_CHECK_WITH(OutOfMemoryError, code != 2, "CUDA out of memory. ", what, ": ", why);
  TORCH_CHECK(false, "CUDA error: ", why, " (", what, ")");
}

void* primary_context(int device) {
  static std::mutex mutex;
  static void* contexts[8] = {};
  std::lock_guard lock(mutex);
  if (!contexts[device]) check(cuDevicePrimaryCtxRetain(&contexts[device], device), "cuDevicePrimaryCtxRetain");
  return contexts[device];
}

// As the CUDA runtime does it: a device that becomes the current one makes its primary context current in the thread.
void make_current(DeviceIndex device) {
  if (cuCtxSetCurrent(primary_context(device)) == 0) current_device = device;
}

struct InContext {
  explicit InContext(int device) { check(cuCtxPushCurrent_v2(primary_context(device)), "cuCtxPushCurrent"); }
  ~InContext() { cuCtxPopCurrent_v2(nullptr); }
};

bool capturing(int device) {
  if (!current_streams[device]) return false;
  InContext context(device);
  unsigned status = 0;
  check(cuStreamIsCapturing(current_streams[device], &status), "cuStreamIsCapturing");
  return status != 0;
}

// ---- memory ----------------------------------------------------------------------------------------------------------

// Graphs keep what was allocated while they were captured; everything else is gone when torch frees it.
struct Block {
  int device;
  std::uint64_t serial;
  bool of_graph;
};
std::mutex blocks_mutex;
std::unordered_map<std::uint64_t, Block> blocks;
std::uint64_t next_serial = 0;
std::vector<std::uint64_t> graph_blocks;  // of the capture under way

struct Relaxed {  // torch's allocator may allocate while a stream is captured
  unsigned mode = 2;
  Relaxed() { cuThreadExchangeStreamCaptureMode(&mode); }
  ~Relaxed() { cuThreadExchangeStreamCaptureMode(&mode); }
};

void free_block(std::uint64_t address) {
  int device = 0;
  {
    std::lock_guard lock(blocks_mutex);
    device = blocks.at(address).device;
    blocks.erase(address);
  }
  Relaxed relaxed;
  if (cuCtxPushCurrent_v2(primary_context(device)) == 0) cuMemFree_v2(address), cuCtxPopCurrent_v2(nullptr);
}

void delete_block(void* pointer) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  {
    std::lock_guard lock(blocks_mutex);
    if (blocks.at(address).of_graph) return;
  }
  free_block(address);
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const Device device(c10::kCUDA, current_device);
    if (bytes == 0) return {nullptr, device};
    const bool of_graph = capturing(current_device);
    std::uint64_t address = 0;
    {
      Relaxed relaxed;
      InContext context(current_device);
      check(cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
    }
    if (bytes <= kMostFilled) std::memset(reinterpret_cast<void*>(workbench_driver_storage(address)), 0xFF, bytes);
    std::lock_guard lock(blocks_mutex);
    blocks[address] = {current_device, ++next_serial, of_graph};
    if (of_graph) graph_blocks.push_back(address);
    void* pointer = reinterpret_cast<void*>(address);
    return {pointer, pointer, &delete_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const auto place = [](const void* pointer) { return reinterpret_cast<void*>(workbench_driver_storage(reinterpret_cast<std::uint64_t>(pointer))); };
    if (bytes) std::memcpy(place(to), place(from), bytes);
  }
} allocator;

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    InContext context(current_device);
    if (bytes) check(cuMemHostAlloc(&pointer, bytes, 0), "cuMemHostAlloc");
    return {pointer, pointer, &PinnedAllocator::release, Device(c10::kCPU)};
  }
  static void release(void* pointer) {
    if (pointer && cuCtxPushCurrent_v2(primary_context(0)) == 0) cuMemFreeHost(pointer), cuCtxPopCurrent_v2(nullptr);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
} pinned_allocator;

// ---- random numbers --------------------------------------------------------------------------------------------------

// A generator on the device. Numbers are drawn by the CPU's kernels, which take the CPU's generator in its place.
struct DeviceGenerator final : c10::GeneratorImpl {
  explicit DeviceGenerator(DeviceIndex device, std::uint64_t seed = c10::detail::getNonDeterministicRandom())
      : c10::GeneratorImpl(Device(c10::kCUDA, device), DispatchKeySet(DispatchKey::CUDA)), host(at::detail::createCPUGenerator(seed)) {}
  void set_current_seed(std::uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { host.set_offset(offset); }
  std::uint64_t get_offset() const override { return host.get_offset(); }
  std::uint64_t current_seed() const override { return host.current_seed(); }
  std::uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  at::Generator host;

 private:
  DeviceGenerator* clone_impl() const override {
    auto* made = new DeviceGenerator(device().index());
    made->host = host.clone();
    return made;
  }
};

// ---- what torch asks a backend ---------------------------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {c10::kCUDA, current_device}; }
  void setDevice(Device device) const override {
    if (!device.has_index()) return;
    TORCH_CHECK(device.index() < device_count, "CUDA error: invalid device ordinal");
    make_current(device.index());
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index() && device.index() != current_device) make_current(device.index());
  }
  c10::Stream getStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return c10::Stream(c10::Stream::DEFAULT, stream.device()); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(device_count); }
  void record(void**, const c10::Stream&, DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return device_count; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(device_count); }
  DeviceIndex current_device() const override { return ::current_device; }
  DeviceIndex getCurrentDevice() const override { return ::current_device; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  c10::Allocator* getCUDADeviceAllocator() const override { return &allocator; }
  const at::Generator& getDefaultGenerator(DeviceIndex = -1) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(DeviceIndex device = -1) const override {
    return at::make_generator<DeviceGenerator>(device < 0 ? ::current_device : device, c10::default_rng_seed_val);
  }
  bool isPinnedPtr(const void* pointer) const override {
    unsigned type = 0;
    return cuPointerGetAttribute(&type, 2, reinterpret_cast<std::uint64_t>(pointer)) == 0 && type == 1;
  }
  Device getDeviceFromPtr(void* pointer) const override {
    int ordinal = 0;
    check(cuPointerGetAttribute(&ordinal, 9, reinterpret_cast<std::uint64_t>(pointer)), "cuPointerGetAttribute");
    return {c10::kCUDA, static_cast<DeviceIndex>(ordinal)};
  }
};

// ---- operations ------------------------------------------------------------------------------------------------------

at::Tensor on_device(const at::Tensor& host, DeviceIndex device) {
  c10::OptionalDeviceGuard guard(Device(c10::kCUDA, device));
  at::Tensor made = at::detail::empty_strided_generic(host.sizes(), host.strides(), &allocator, DispatchKeySet(DispatchKey::CUDA), host.scalar_type());
  if (const std::size_t bytes = std::min(made.storage().nbytes(), host.storage().nbytes() - host.storage_offset() * host.itemsize()); bytes && made.numel()) {
    std::memcpy(reinterpret_cast<void*>(workbench_driver_storage(reinterpret_cast<std::uint64_t>(made.storage().data()))), host.const_data_ptr(), bytes);
  }
  return made;
}

// The tensors of one operation, each with its stand-in over the same bytes.
class Operation {
 public:
  Operation(const c10::OperatorHandle& handle, torch::jit::Stack* stack) : handle_(handle), stack_(stack) {}

  void run() {
    const std::size_t count = handle_.schema().arguments().size(), first = stack_->size() - count;
    for (std::size_t i = first; i < stack_->size(); ++i) (*stack_)[i] = to_host((*stack_)[i]);
    const int device = device_ < 0 ? current_device : device_;
    if (capturing(device)) {
      captured(device, first);
      return;
    }
    handle_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack_);
    finish();
    // So that it takes some time on the stream's clock.
    InContext context(device);
    cuLaunchHostFunc(current_streams[device], [](void*) {}, nullptr);
  }

 private:
  struct Pair {
    at::Tensor device, host;
  };

  static at::Tensor over_storage(const at::Tensor& tensor) {
    const auto& storage = tensor.storage();
    const auto address = reinterpret_cast<std::uint64_t>(storage.data());
    void* host = address ? reinterpret_cast<void*>(workbench_driver_storage(address)) : nullptr;
    TORCH_CHECK(host || storage.nbytes() == 0, "CUDA error: the memory of a tensor was freed");
    auto same = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(), c10::DataPtr(host, Device(c10::kCPU)),
                                                      c10::GetAllocator(c10::kCPU), /*resizable=*/true);
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(same), DispatchKeySet(DispatchKey::CPU), tensor.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.is_neg()) made._set_neg(true);
    if (tensor.is_conj()) made._set_conj(true);
    return made;
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) {
      if (tensor.defined() && tensor.dim() > 0) host_tensors_ = true;
      return tensor;
    }
    TORCH_CHECK(device_ < 0 || device_ == tensor.get_device() || handle_.schema().name() == "aten::copy_",
                "Expected all tensors to be on the same device, but found at least two devices, cuda:", device_, " and cuda:", int(tensor.get_device()),
                "! (", handle_.schema().name(), ")");
    device_ = tensor.get_device();
    for (const Pair& pair : pairs_)
      if (pair.device.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) return pair.host;
    pairs_.push_back({tensor, over_storage(tensor)});
    return pairs_.back().host;
  }

  IValue to_host(const IValue& value) {
    if (value.isTensor()) return to_host(value.toTensor());
    if (value.isDevice() && value.toDevice().is_cuda()) {
      device_ = value.toDevice().has_index() ? value.toDevice().index() : current_device;
      return Device(c10::kCPU);
    }
    if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
      return static_cast<const DeviceGenerator*>(value.toGenerator().unsafeGetGeneratorImpl())->host;
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorVector()) made.push_back(to_host(each));
      return made;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> made;
      for (const std::optional<at::Tensor> each : value.toOptionalTensorList()) made.push_back(each ? std::optional(to_host(*each)) : std::nullopt);
      return made;
    }
    return value;
  }

  // What came back as device tensors: the arguments themselves, views of them, or new ones.
  at::Tensor to_device(const at::Tensor& host) {
    if (!host.defined() || device_ < 0) return host;
    for (const Pair& pair : pairs_)
      if (pair.host.unsafeGetTensorImpl() == host.unsafeGetTensorImpl()) return pair.device;
    for (const Pair& pair : pairs_) {
      if (pair.host.storage().unsafeGetStorageImpl() != host.storage().unsafeGetStorageImpl()) continue;
      at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(pair.device.storage()), pair.device.key_set(), host.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      if (host.is_neg()) view._set_neg(true);
      if (host.is_conj()) view._set_conj(true);
      return view;
    }
    fresh_.push_back({on_device(host, static_cast<DeviceIndex>(device_)), host});
    return fresh_.back().device;
  }

  IValue to_device(const IValue& value) {
    if (value.isTensor()) return to_device(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorVector()) made.push_back(to_device(each));
      return made;
    }
    return value;
  }

  void finish() {
    // An argument that the operation resized: its storage may have moved, its shape follows.
    for (const Pair& pair : pairs_) {
      const auto &host = pair.host, &device = pair.device;
      const auto bytes = host.storage().nbytes();
      if (bytes > device.storage().nbytes()) {
        c10::OptionalDeviceGuard guard(device.device());
        c10::DataPtr moved = allocator.allocate(bytes);
        std::memcpy(reinterpret_cast<void*>(workbench_driver_storage(reinterpret_cast<std::uint64_t>(moved.get()))), host.storage().data(), bytes);
        device.storage().unsafeGetStorageImpl()->set_data_ptr(std::move(moved));
        device.storage().set_nbytes(bytes);
      }
      if (host.sizes() != device.sizes() || host.strides() != device.strides() || host.storage_offset() != device.storage_offset()) {
        device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      }
    }
    const std::size_t count = handle_.schema().returns().size();
    for (std::size_t i = stack_->size() - count; i < stack_->size(); ++i) (*stack_)[i] = to_device((*stack_)[i]);
  }

  // Shapes are found by running it now, on bytes that are put back; the graph runs it again on what is there then.
  void captured(int device, std::size_t first) {
    static const std::set<std::string> kWaiting = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select",
                                                   "aten::_unique2", "aten::unique_dim", "aten::bincount", "aten::is_set_to"};
    const std::string name = handle_.schema().name();
    const bool pageable = name == "aten::copy_" && host_tensors_;
    TORCH_CHECK(!kWaiting.contains(name) && !pageable, "CUDA error: operation not permitted when stream is capturing (", name,
                pageable ? ": a copy between the device and pageable memory" : "", ")");
    std::vector<IValue> arguments(stack_->begin() + static_cast<std::ptrdiff_t>(first), stack_->end());
    std::vector<std::string> before;
    for (const Pair& pair : pairs_) {
      const auto& storage = pair.host.storage();
      before.emplace_back(static_cast<const char*>(storage.data()), writes(pair.host) ? storage.nbytes() : 0);
    }
    handle_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack_);
    finish();
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      if (!before[i].empty()) std::memcpy(const_cast<void*>(pairs_[i].host.storage().data()), before[i].data(), before[i].size());
    if (fresh_.empty() && std::none_of(before.begin(), before.end(), [](const auto& bytes) { return !bytes.empty(); })) return;  // a view
    auto* node = new Recorded{handle_, std::move(arguments), {}, {}};
    for (const Pair& pair : fresh_) node->results.push_back(over_storage(pair.device));
    for (const auto* list : {&pairs_, &fresh_})
      for (const Pair& pair : *list)
        if (const auto address = reinterpret_cast<std::uint64_t>(pair.device.storage().data())) {
          std::lock_guard lock(blocks_mutex);
          node->memory[address] = blocks.at(address).serial;
        }
    InContext context(device);
    check(cuLaunchHostFunc(current_streams[device], &Recorded::replay, node), "cuLaunchHostFunc");
  }

  bool writes(const at::Tensor& host) const {
    const auto& arguments = handle_.schema().arguments();
    const std::size_t first = stack_->size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = arguments[i].alias_info();
      if (!alias || !alias->isWrite()) continue;
      const IValue& value = (*stack_)[first + i];
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().unsafeGetTensorImpl() == host.unsafeGetTensorImpl()) return true;
      if (value.isTensorList())
        for (const at::Tensor& each : value.toTensorVector())
          if (each.unsafeGetTensorImpl() == host.unsafeGetTensorImpl()) return true;
    }
    return false;
  }

  struct Recorded {
    c10::OperatorHandle handle;
    std::vector<IValue> arguments;
    std::vector<at::Tensor> results;
    std::unordered_map<std::uint64_t, std::uint64_t> memory;  // address and serial number of what it reads and writes

    static void replay(void* data);
  };

  c10::OperatorHandle handle_;
  torch::jit::Stack* stack_;
  int device_ = -1;
  bool host_tensors_ = false;
  std::vector<Pair> pairs_, fresh_;
};

std::string replay_error;

void Operation::Recorded::replay(void* data) {
  auto& node = *static_cast<Recorded*>(data);
  try {
    {
      std::lock_guard lock(blocks_mutex);
      for (const auto& [address, serial] : node.memory) {
        const auto found = blocks.find(address);
        TORCH_CHECK(found != blocks.end() && found->second.serial == serial, "CUDA error: an illegal memory access was encountered: a graph's ",
                    node.handle.schema().name(), " uses memory that was freed after the capture");
      }
    }
    torch::jit::Stack stack(node.arguments.begin(), node.arguments.end());
    node.handle.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack);
    std::size_t next = 0;
    for (const IValue& value : stack) {
      std::vector<at::Tensor> tensors;
      if (value.isTensor()) tensors.push_back(value.toTensor());
      else if (value.isTensorList()) tensors = value.toTensorVector();
      for (const at::Tensor& each : tensors) {
        const bool argument = std::any_of(node.arguments.begin(), node.arguments.end(), [&](const IValue& one) {
          return one.isTensor() && each.defined() && one.toTensor().defined() && one.toTensor().storage().unsafeGetStorageImpl() == each.storage().unsafeGetStorageImpl();
        });
        if (each.defined() && !argument && next < node.results.size()) node.results[next++].copy_(each);
      }
    }
  } catch (const std::exception& error) {
    if (replay_error.empty()) replay_error = error.what();
  }
}

void as_on_the_cpu(const c10::OperatorHandle& handle, torch::jit::Stack* stack) { Operation(handle, stack).run(); }

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, DispatchKeySet(DispatchKey::CUDA), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator, DispatchKeySet(DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), given = C10_AS_INTARRAYREF_SLOW(stride);
  std::vector<std::int64_t> strides(given.begin(), given.end());
  for (std::size_t i = sizes.size(); strides.size() < sizes.size() && i > 0; --i)
    strides.insert(strides.begin(), strides.empty() ? 1 : strides.front() * std::max<std::int64_t>(sizes[i], 1));
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset.expect_int());
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const c10::SymInt size(static_cast<std::int64_t>(source.nbytes() / self.itemsize()));
  return set_storage(self, std::move(source), 0, size, {});
}

// The attention of torch's own composition: the fused ones of a GPU have no counterpart on the CPU.
std::int64_t unfused(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) { return 0; }

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&as_on_the_cpu>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_fused_sdp_choice", &unfused);
  // These have one kernel for all devices, with a table of devices inside that lacks ours.
  for (const char* name : {"copy_"}) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&as_on_the_cpu>());
}

namespace {
C10_REGISTER_GUARD_IMPL(CUDA, Guard);
}
namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks);
}

// ---- for cuda.py -----------------------------------------------------------------------------------------------------

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void gpu_start(int devices) {
  device_count = devices;
  c10::SetAllocator(c10::kCUDA, &allocator, 100);
}
EXPORT int gpu_device() { return current_device; }
EXPORT void gpu_set_device(int device) { make_current(static_cast<DeviceIndex>(device)); }
EXPORT void* gpu_stream(int device) { return current_streams[device]; }
EXPORT void gpu_set_stream(int device, void* stream) { current_streams[device] = stream; }
EXPORT void gpu_push_context(int device) { cuCtxPushCurrent_v2(primary_context(device)); }
EXPORT void gpu_pop_context() { cuCtxPopCurrent_v2(nullptr); }

// The memory that was allocated since the capture began, which is the graph's until it is given back.
EXPORT std::uint64_t gpu_graph_blocks(std::uint64_t* out, std::uint64_t room) {
  std::lock_guard lock(blocks_mutex);
  const std::uint64_t count = graph_blocks.size();
  if (room < count) return count;
  std::copy(graph_blocks.begin(), graph_blocks.end(), out);
  graph_blocks.clear();
  return count;
}
EXPORT void gpu_free_block(std::uint64_t address) { free_block(address); }

// What went wrong in a graph's operations since the last call; "" if nothing.
EXPORT const char* gpu_replay_error() {
  thread_local std::string told;
  told = std::exchange(replay_error, {});
  return told.c_str();
}
