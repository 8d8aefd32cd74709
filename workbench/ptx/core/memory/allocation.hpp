// Memory whose size depends on a launch. A failed allocation throws OutOfMemory, which says what it
// was for.
#pragma once
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "types.hpp"

namespace workbench::ptx {

// Holds its text in an array: without memory there is none for a string either.
class OutOfMemory : public std::bad_alloc {
 public:
  [[gnu::format(printf, 2, 3)]] explicit OutOfMemory(const char* format, ...) {
    std::va_list numbers;
    va_start(numbers, format);
    std::vsnprintf(text_, sizeof text_, format, numbers);
    va_end(numbers);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[160];
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Memory = std::unique_ptr<T[], FreeMemory>;

// Returns uninitialised bytes aligned to a cache line; null if there is not enough memory.
inline Memory<u8> aligned_bytes(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t whole =
      std::max((bytes + kAlignment - 1) / kAlignment, std::size_t{1}) * kAlignment;
  return Memory<u8>(static_cast<u8*>(std::aligned_alloc(kAlignment, whole)));
}

// Returns zeros; null if there is not enough memory. Pages that are never touched cost nothing.
template <class T>
Memory<T> zeros(u64 count) {
  return Memory<T>(static_cast<T*>(std::calloc(std::max<u64>(count, 1), sizeof(T))));
}

}  // namespace workbench::ptx
