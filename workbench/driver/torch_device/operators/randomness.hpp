// Random numbers of the device's generators, drawn by the CPU's kernels.
//
// An operation takes seed and offset of the device's generator, advances the offset, and seeds a
// CPU generator with both. So seeds, states and graphs behave as on a GPU; the numbers are the
// CPU's.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

namespace workbench::torch_device {

constexpr std::uint64_t kOffsetsPerOperation = 4;  // Philox gives four numbers each

// The position at which one operation's numbers begin; in a graph each replay sets seed and offset.
struct RandomPosition {
  at::PhiloxCudaState state;

  static RandomPosition next(const at::Generator& generator) {
    auto* cuda = at::check_generator<at::CUDAGeneratorImpl>(generator);
    std::lock_guard lock(cuda->mutex_);
    return {cuda->philox_cuda_state(kOffsetsPerOperation)};
  }

  std::uint64_t seed() const {
    if (!state.captured_) return mixed(state.seed_.val, state.offset_.val);
    const auto read = [](const std::int64_t* device) {
      return *reinterpret_cast<const std::uint64_t*>(
          workbench_driver_view(reinterpret_cast<std::uint64_t>(device)));
    };
    return mixed(read(state.seed_.ptr), read(state.offset_.ptr) + state.offset_intragraph_);
  }

  // SplitMix64's finaliser. At offset 0 the numbers of a seed are those of the CPU's generator.
  static std::uint64_t mixed(std::uint64_t seed, std::uint64_t offset) {
    if (offset == 0) return seed;
    std::uint64_t z = seed + (offset / kOffsetsPerOperation + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
};

}  // namespace workbench::torch_device
