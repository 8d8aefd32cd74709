// Calls for several ranges of memory at once, and attributes of a range of managed memory.
#include <cstring>

#include "driver.hpp"

using namespace workbench::driver;

CU_API cuMemcpyAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);

namespace {

constexpr int kLastAttribute = 8;

enum : int { kReadMostly = 1, kPreferred = 2, kLastPrefetch = 4 };

void check_range(CUdeviceptr address, std::size_t bytes) {
  if (need_allocation(address, bytes)->where != Where::managed)
    throw Refused{CUDA_ERROR_INVALID_VALUE, "not managed memory"};
}

// Advice is not stored: memory lies in one place, equally near to all devices and the host.
void put_range_attribute(void* out, std::size_t size, int which) {
  u8& data = needed(static_cast<u8*>(out), "data");
  if (which < kReadMostly || which > kLastAttribute)
    throw Refused{CUDA_ERROR_INVALID_VALUE,
                  "unknown attribute of a range: " + std::to_string(which)};
  if (size < sizeof(int) || size % sizeof(int))
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the data has room for whole numbers of 4 bytes"};
  const bool is_place = which >= kPreferred && which <= kLastPrefetch;
  const int value = is_place ? CU_DEVICE_INVALID : 0;
  for (std::size_t at = 0; at < size; at += sizeof value)
    std::memcpy(&data + at, &value, sizeof value);
}

void check_ranges(const CUdeviceptr* addresses, const std::size_t* sizes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    check_range((&needed(addresses, "dptrs"))[i], (&needed(sizes, "sizes"))[i]);
}

}  // namespace

CU_API cuMemRangeGetAttribute(void* data, std::size_t size, int which, CUdeviceptr address,
                              std::size_t bytes) {
  return entry([&](Call&) {
    check_range(address, bytes);
    put_range_attribute(data, size, which);
  });
}

CU_API cuMemRangeGetAttributes(void** data, std::size_t* sizes, const int* which, std::size_t count,
                               CUdeviceptr address, std::size_t bytes) {
  return entry([&](Call&) {
    check_range(address, bytes);
    for (std::size_t i = 0; i < count; ++i)
      put_range_attribute((&needed(data, "data"))[i], (&needed(sizes, "dataSizes"))[i],
                          (&needed(which, "attributes"))[i]);
  });
}

// Copies one range after the other. The hints of locations are ignored, as the addresses are
// enough.
CU_API cuMemcpyBatchAsync_v2(const CUdeviceptr* to, const CUdeviceptr* from,
                             const std::size_t* sizes, std::size_t count, const void*,
                             const std::size_t*, std::size_t, CUstream stream) {
  const CUresult checked = entry([&](Call& call) {
    check_stream(*call.context(), stream);
    if (!count) throw Refused{CUDA_ERROR_INVALID_VALUE, "a batch of no copies"};
    needed(to, "dsts");
    needed(from, "srcs");
    needed(sizes, "sizes");
    if (capture_of(*call.context(), stream))
      throw Refused{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a captured stream takes no batches"};
  });
  CUresult result = checked;
  for (std::size_t i = 0; !result && i < count; ++i)
    result = cuMemcpyAsync(to[i], from[i], sizes[i], stream);
  return result;
}

// CUDA 12.8's version has an output for the index of the copy that failed.
CU_API cuMemcpyBatchAsync(const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* sizes,
                          std::size_t count, const void* attributes, const std::size_t* which,
                          std::size_t attribute_count, std::size_t* failed, CUstream stream) {
  const CUresult result =
      cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, which, attribute_count, stream);
  if (result && failed) *failed = ~std::size_t{0};  // unknown
  return result;
}

CU_API cuMemPrefetchBatchAsync(const CUdeviceptr* addresses, const std::size_t* sizes,
                               std::size_t count, const CUmemLocation*, const std::size_t*,
                               std::size_t, unsigned long long, CUstream stream) {
  return entry([&](Call& call) {
    check_stream(*call.context(), stream);
    check_ranges(addresses, sizes, count);
  });
}

// Discarded memory is not read again, so its content may stay.
CU_API cuMemDiscardBatchAsync(const CUdeviceptr* addresses, const std::size_t* sizes,
                              std::size_t count, unsigned long long, CUstream stream) {
  return cuMemPrefetchBatchAsync(addresses, sizes, count, nullptr, nullptr, 0, 0, stream);
}

CU_API cuMemDiscardAndPrefetchBatchAsync(const CUdeviceptr* addresses, const std::size_t* sizes,
                                         std::size_t count, const CUmemLocation*,
                                         const std::size_t*, std::size_t, unsigned long long,
                                         CUstream stream) {
  return cuMemPrefetchBatchAsync(addresses, sizes, count, nullptr, nullptr, 0, 0, stream);
}
