// Tensors on the host over the bytes of tensors on a simulated device.
//
// Memory of the device is memory of this process at another address, which the driver translates.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <optional>
#include <vector>

namespace workbench::torch_device {

// The elements of a tensor on the device, in the driver's form; strides count in elements.
struct Elements {
  std::uint64_t address, size;
  std::uint64_t rank;
  const std::int64_t *sizes, *strides;
};

}  // namespace workbench::torch_device

extern "C" {
std::uint64_t workbench_driver_view(std::uint64_t address);
void workbench_driver_operator(cudaStream_t stream, const char* name, std::uint64_t bytes,
                               const workbench::torch_device::Elements* written,
                               std::uint64_t count, const workbench::torch_device::Elements* read,
                               std::uint64_t read_count, int waits);
void workbench_driver_replayed(const char* name, const workbench::torch_device::Elements* written,
                               std::uint64_t count, const workbench::torch_device::Elements* read,
                               std::uint64_t read_count);
int workbench_driver_settle(cudaStream_t stream);
const char* workbench_driver_latest_error();
int workbench_driver_follows_writes();
int workbench_driver_is_late();
int workbench_driver_on_host(std::uint64_t address);
std::uint32_t workbench_driver_recorded(const char* name);
void workbench_driver_gone(std::uint32_t recorded);
void workbench_driver_mark(const workbench::torch_device::Elements* tensor,
                           const std::uint8_t* unwritten, std::uint64_t source);
std::uint64_t workbench_driver_unwritten(const workbench::torch_device::Elements* tensor,
                                         std::uint8_t* flags);
void workbench_driver_read(const workbench::torch_device::Elements* tensor, const char* reader);
void workbench_driver_tensor(std::uint64_t address, const char* tensor, std::uint32_t element);
void workbench_driver_block(std::uint64_t address, std::uint64_t bytes, int live);
}

namespace workbench::torch_device {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

inline void* bytes_of(const c10::Storage& storage) {
  const auto address = reinterpret_cast<std::uint64_t>(storage.data());
  void* host = address ? reinterpret_cast<void*>(workbench_driver_view(address)) : nullptr;
  TORCH_CHECK(
      host || storage.nbytes() == 0,
      "CUDA error: an illegal memory access was encountered: the memory of a tensor was freed");
  return host;
}

inline std::uint64_t bytes_in(const Tensor& tensor) {
  return tensor.layout() == c10::kStrided ? tensor.nbytes() : 0;
}

// A tensor on the host over the driver's mapping of the bytes of one on the device, or of one in
// page-locked memory.
inline Tensor host_tensor(const Tensor& device) {
  const c10::Storage& storage = device.storage();
  c10::Storage same(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(bytes_of(storage), c10::Device(c10::kCPU)), c10::GetAllocator(c10::kCPU),
      /*resizable=*/true));
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), DispatchKeySet(DispatchKey::CPU), device.dtype());
  c10::TensorImpl* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(device.sizes(), device.strides(), device.storage_offset());
  impl->_set_conj(device.is_conj());
  impl->_set_neg(device.is_neg());
  if (device.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

// The elements of a tensor, which has to outlive the result; of none, `size` is 0.
inline Elements elements_of(const Tensor& device) {
  if (device.layout() != c10::kStrided || device.numel() == 0) return {};
  return {reinterpret_cast<std::uint64_t>(device.const_data_ptr()), device.itemsize(),
          static_cast<std::uint64_t>(device.dim()), device.sizes().data(), device.strides().data()};
}

// A tensor on the device in the layout of one on the host, and with its values, unless they come
// later.
inline Tensor device_tensor(const Tensor& host, c10::DeviceIndex device, bool with_values = true) {
  const c10::Device place(c10::kCUDA, device);
  if (host.layout() != c10::kStrided) return host.to(place);
  Tensor made = at::empty_strided(host.sizes(), host.strides(), host.options().device(place));
  if (host.numel() > 0 && with_values) {
    const std::size_t from = host.storage().nbytes() - host.storage_offset() * host.itemsize();
    std::memcpy(bytes_of(made.storage()), host.const_data_ptr(),
                std::min(made.storage().nbytes(), from));
  }
  made._set_conj(host.is_conj());
  made._set_neg(host.is_neg());
  if (host.unsafeGetTensorImpl()->is_wrapped_number()) {
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return made;
}

// The device tensors among one operation's arguments, each with its tensor on the host.
class HostTensors {
 public:
  struct Pair {
    Tensor device, host;
    const void* bytes;  // the host storage at first: a resize changes the pointer
    bool written;
  };

  Tensor to_host(const Tensor& device, bool written) {
    for (Pair& pair : pairs) {
      if (pair.device.unsafeGetTensorImpl() == device.unsafeGetTensorImpl()) {
        pair.written |= written;
        return pair.host;
      }
    }
    Tensor host = host_tensor(device);
    pairs.push_back({device, host, host.storage().data(), written});
    return host;
  }

  // Gives the device tensors the shapes that the operation gave to their host tensors.
  void finish() {
    for (Pair& pair : pairs) {
      if (!pair.written) continue;
      const Tensor &host = pair.host, &device = pair.device;
      c10::TensorImpl* impl = device.unsafeGetTensorImpl();
      if (host.storage().data() != pair.bytes) {  // a resized out= tensor
        const std::size_t bytes = host.storage().nbytes();
        impl->set_storage_keep_dtype(
            device_tensor(
                host.as_strided({static_cast<std::int64_t>(bytes / host.itemsize())}, {1}, 0),
                device.device().index())
                .storage());
      }
      if (host.sizes() != device.sizes() || host.strides() != device.strides() ||
          host.storage_offset() != device.storage_offset()) {
        impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      }
    }
  }

  // The device tensor of a result: an argument, a view of one, or a new tensor.
  Tensor to_device(const Tensor& host, c10::DeviceIndex device, std::vector<Tensor>* fresh,
                   bool with_values) {
    if (!host.defined() || !host.is_cpu()) return host;
    for (const Pair& pair : pairs) {
      if (pair.host.unsafeGetTensorImpl() == host.unsafeGetTensorImpl()) return pair.device;
    }
    for (const Pair& pair : pairs) {
      if (host.layout() != c10::kStrided || pair.host.layout() != c10::kStrided) continue;
      if (host.storage().nbytes() == 0 || host.storage().data() != pair.host.storage().data())
        continue;
      Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(pair.device.storage()),
                                                             pair.device.key_set(), host.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(),
                                                        host.storage_offset());
      view._set_conj(host.is_conj());
      view._set_neg(host.is_neg());
      return view;
    }
    Tensor made = device_tensor(host, device, with_values);
    if (fresh) fresh->push_back(made);
    return made;
  }

  std::vector<Pair> pairs;
};

}  // namespace workbench::torch_device
