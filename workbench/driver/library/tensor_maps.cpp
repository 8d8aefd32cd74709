// Tensor maps, which workbench.ptx.tensor_map encodes.
#include <algorithm>
#include <cstring>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr u32 kMostDimensions = 5;

}  // namespace

CU_API cuTensorMapEncodeTiled(void* map, int type, u32 rank, void* address, const u64* sizes,
                              const u64* strides, const u32* box, const u32* steps, int interleave,
                              int swizzle, int /* promotion into L2: no value depends on it */,
                              int fill) {
  return entry([&](Call& call) {
    HookTensorMap asked{};
    asked.out = static_cast<u8*>(&needed(static_cast<u8*>(map), "tensorMap"));
    if (rank == 0 || rank > kMostDimensions)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "a tensor map of " + std::to_string(rank) + " dimensions, allowed are 1 to 5"};
    asked.type = static_cast<u32>(type), asked.rank = rank,
    asked.address = reinterpret_cast<u64>(address);
    std::copy_n(&needed(sizes, "globalDim"), rank, asked.sizes);
    if (rank > 1) std::copy_n(&needed(strides, "globalStrides"), rank - 1, asked.strides);
    std::copy_n(&needed(box, "boxDim"), rank, asked.box),
        std::copy_n(&needed(steps, "elementStrides"), rank, asked.steps);
    asked.interleave = static_cast<u32>(interleave), asked.swizzle = static_cast<u32>(swizzle),
    asked.fill = static_cast<u32>(fill);
    ask(call, hooks().encode, static_cast<const HookTensorMap*>(&asked));
  });
}

CU_API cuTensorMapReplaceAddress(void* map, void* address) {
  return entry([&](Call&) {
    const u64 value = reinterpret_cast<u64>(address);
    if (value % 16)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "an address of a tensor map that is no multiple of 16"};
    std::memcpy(&needed(static_cast<u8*>(map), "tensorMap"), &value,
                sizeof value);  // its first field
  });
}

}  // namespace workbench::driver
