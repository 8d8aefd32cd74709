// The marks of bytes of global memory that have been written, also by earlier launches or by one
// that runs beside this one.
#pragma once
#include <atomic>

#include "machine.hpp"

namespace workbench::ptx {

inline u32 written_of(const Buffer& buffer, u64 sector) {
  if (!buffer.written) return ~0u;
  return std::atomic_ref<u32>(buffer.written[sector - (buffer.address >> 5)])
      .load(std::memory_order_relaxed);
}

inline void mark_written(const Buffer& buffer, u64 sector, u32 bytes) {
  if (!(bytes & ~written_of(buffer, sector))) return;
  std::atomic_ref<u32>(buffer.written[sector - (buffer.address >> 5)])
      .fetch_or(bytes, std::memory_order_relaxed);
  std::atomic_ref<u32>(buffer.first_writes).store(1, std::memory_order_relaxed);
}

}  // namespace workbench::ptx
