// Replaces ATen/DeviceGuard.h, without devices of lists of tensors, whose header takes more time than all the others.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace at {

inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}

inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? device_of(tensor.value()) : std::nullopt;
}

}  // namespace at
