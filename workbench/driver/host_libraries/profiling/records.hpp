// Records of CUPTI's activities, laid out as in cupti_activity.h. That header is not needed to
// build this library; tests/driver/test_cupti.py compares the two.
#pragma once
#include <cstdint>

namespace workbench::profiling {

enum Kind : std::uint32_t { kKernel = 3, kConcurrentKernel = 10, kExternalCorrelation = 39 };

// CUpti_ActivityExternalCorrelation.
struct Correlation {
  std::uint32_t kind, external_kind;
  std::uint64_t external_id;
  std::uint32_t correlation, reserved;
};

// CUpti_ActivityKernel10, with room for the additions of later versions.
struct KernelRecord {
  std::uint32_t kind;
  std::uint8_t cache_config, shared_memory_config;
  std::uint16_t registers;
  std::uint32_t partitioned_cache_requested, partitioned_cache_executed;
  std::uint64_t start, end, completed;
  std::uint32_t device, context, stream;
  std::uint32_t grid[3], block[3];
  std::uint32_t static_shared, dynamic_shared, local_per_thread, local_total;
  std::uint32_t correlation;
  std::uint64_t grid_id;
  const char* name;
  std::uint64_t rest[21];
};

}  // namespace workbench::profiling
